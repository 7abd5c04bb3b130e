"""Tests the measured share of the last-level cache: up to the size at which rereading becomes slower."""

from __future__ import annotations

from dataclasses import replace

import pytest

from glenside.codegen.processor.model import MACHINES
from glenside.execution import last_level_cache as module
from glenside.execution.last_level_cache import last_cache

MACHINE = replace(MACHINES["generic"], l2=1 << 20, l3=1 << 27)


@pytest.mark.needs_compiler
@pytest.mark.parametrize(("held", "noise"), [(5 << 20, 0.9), (30 << 20, 1.0), (90 << 20, 0.85)])
def test_it_ends_where_reading_becomes_slower(held: int, noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = iter([1.0, noise] * 20)
    monkeypatch.setattr(module, "_rate", lambda _, __, size: next(turn) * (28 if size <= held else 28 * 0.7))
    found = last_cache(MACHINE)
    assert held / 1.5 < found <= held


@pytest.mark.needs_compiler
def test_it_is_what_the_machine_says_where_nothing_becomes_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_rate", lambda *_: 28)
    assert last_cache(MACHINE) == MACHINE.l3
    odd = replace(MACHINE, l3=100 << 20)
    assert last_cache(odd) == odd.l3


def test_a_machine_without_one_is_not_measured() -> None:
    assert last_cache(replace(MACHINE, l3=0)) == 0
    assert last_cache(replace(MACHINE, l3=3 << 20)) == 3 << 20


@pytest.mark.needs_compiler
def test_this_computer_has_some() -> None:
    machine = replace(MACHINES["generic"], l2=1 << 18, l3=1 << 23)
    assert 1 << 19 <= last_cache(machine) <= machine.l3
