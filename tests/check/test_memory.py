"""Tests that a check without enough memory reports it, and allocates nothing."""

from __future__ import annotations

import tracemalloc

import pytest

from glenside.check import check, is_equal, memory
from glenside.check.memory import least_bytes
from glenside.ir.program import Program
from glenside.ir.term import build
from glenside.ir.types import Dims, Tensor


def product(rows: int) -> Program:
    a, b = (build("access-tensor", Tensor(name, Dims((n, 6)), "float32")) for name, n in (("a", rows), ("b", 4)))
    pairs = build("access-product", build("access", a, 1), build("access", b, 1), 0)
    return Program(build("compute", "dot-product", pairs))


def test_a_lack_of_memory_is_known_beforehand() -> None:
    program = product(1 << 40)
    tracemalloc.start()
    report = check(program, program)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
    assert report.result.startswith("not checked: it takes 43,980.5 GB of memory at least, and ")
    assert not report.ok


def test_what_is_told_is_what_lies_there(monkeypatch: pytest.MonkeyPatch) -> None:
    program = product(1000)
    least = least_bytes(program.tensors.values(), 4, program.term)
    assert least == 4 * (6000 + 24 + 4000)
    monkeypatch.setattr(memory, "available_bytes", lambda: least)
    assert is_equal(check(program, program).result)
    monkeypatch.setattr(memory, "available_bytes", lambda: least - 1)
    assert check(program, program).result.startswith("not checked")


def test_an_allocation_that_fails_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("glenside.check.trials.draw_residues", fail)
    assert check(product(10), product(10)).result == "not checked: memory does not suffice"
