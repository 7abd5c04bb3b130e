"""Tests effects of instructions: waits inferred from wrong effects are refused, and the interlock is declared once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from npu_programs import drawn_for, small_machine
from slow_cases import quick

from glenside.ir.errors import BadInput
from glenside.npu.isa.base import Instruction
from glenside.npu.isa.effects import ACCUMULATORS, ARRAY, LANES, PARAMETERS, TABLES, WEIGHTS, Effect
from glenside.npu.isa.fields import UNITS
from glenside.npu.isa.table import INSTRUCTIONS
from glenside.npu.model import execute, infer_synchronization
from glenside.npu.model.access_sets import access_sets
from glenside.npu.model.infer_synchronization import waiting
from glenside.npu.program import binary_format
from glenside.npu.program.program import NpuProgram

PIPELINED, SERIAL = small_machine(4, 4), small_machine(4, 4, pipelined=False)


def _again(program: NpuProgram) -> NpuProgram:
    """Returns the program with waits inferred again, from its instructions by start time without their waits."""
    order = execute.in_order(execute.times(program))
    bare = [replace(program.queue(unit)[n], wait=type(program.queue(unit)[n].wait)()) for _, unit, n in order]  # type: ignore[type-var]
    return replace(program, queues=waiting(program, bare))


def _refused(program: NpuProgram, *, infers: bool = True) -> bool:
    """True if the simulator refuses the waits that are inferred; without `infers`, also if none are."""
    try:
        again = _again(program)
    except BadInput:
        assert not infers
        return True
    try:
        execute.run(again)
    except BadInput:
        return True
    return False


@pytest.mark.parametrize(
    ("memory", "writes"),
    quick(product((LANES, WEIGHTS, ACCUMULATORS, TABLES, PARAMETERS), (False, True)), 0, 3, 4, 7, 8, unpacked=True),
    ids=lambda own: getattr(own, "name", str(own)),
)
def test_waits_inferred_without_an_access_are_refused(
    memory: Any, writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(own: Instruction, *given: Any) -> Iterator[tuple[Effect, np.ndarray]]:
        found = access_sets(own, *given)
        return (pair for pair in found if pair[0].memory is not memory or pair[0].writes is not writes)

    programs = [drawn_for(PIPELINED, seed) for seed in range(6)]
    assert not any(map(_refused, programs))
    monkeypatch.setattr(infer_synchronization, "access_sets", lacking)
    assert any(_refused(own, infers=not writes) for own in programs)


@pytest.mark.parametrize("memory", [LANES, WEIGHTS, ACCUMULATORS], ids=lambda own: own.name)
def test_waits_inferred_from_other_locations_are_refused(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(own: Instruction, *given: Any) -> Iterator[tuple[Effect, np.ndarray]]:
        for effect, at in access_sets(own, *given):
            is_other = effect.memory is memory and not effect.writes and at.size > 0
            yield effect, at.reshape(-1)[:1] if is_other else at

    programs = [drawn_for(PIPELINED, seed) for seed in range(6)]
    monkeypatch.setattr(infer_synchronization, "access_sets", elsewhere)
    assert any(map(_refused, programs))


def test_a_load_into_a_serial_array_waits_for_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(own: Instruction, *given: Any) -> Iterator[tuple[Effect, np.ndarray]]:
        return (pair for pair in access_sets(own, *given) if pair[0].memory is not ARRAY)

    programs = [drawn_for(SERIAL, seed) for seed in range(6)]
    assert not any(map(_refused, programs))
    monkeypatch.setattr(infer_synchronization, "access_sets", lacking)
    assert any(map(_refused, programs))


def test_every_field_that_locates_something_is_of_an_effect() -> None:
    """An instruction that is added to the table declares what its addresses are for."""
    for kind in INSTRUCTIONS:
        located = {own.at for own in kind.effects} | {own.count for own in kind.effects}
        located |= {own.when for own in kind.effects}
        values = {"counts", "wait", "turn", "carry", "alike", "column", "fresh", "greatest", "increment"}
        assert set(kind.kinds()) <= located | values, kind.mnemonic()
        assert kind.unit in UNITS


def test_files_do_not_depend_on_comments_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    before, text = binary_format.layout(), binary_format.package()
    for old, new, same in (("// An entry", "// Another entry", True), ("DMA_BITS = 508", "DMA_BITS = 509", False)):
        assert old in text
        monkeypatch.setattr(binary_format, "package", partial(text.replace, old, new))
        assert (binary_format.layout() == before) is same
