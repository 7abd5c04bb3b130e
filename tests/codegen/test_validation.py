"""Validation of loops at sampled elements: right ones pass, of every operator and on every machine; others do not."""

from __future__ import annotations

import broken_loops
import pytest
from hypothesis import HealthCheck, given, settings
from random_terms import terms

import glenside as gl
from glenside.codegen.checker import faults
from glenside.codegen.constants import prepared
from glenside.codegen.loops import Loops
from glenside.codegen.lower import lower
from glenside.codegen.machine import MACHINES
from glenside.codegen.validation.samples import Validation, mismatches
from glenside.ir.errors import BadInput
from glenside.ir.operator import COMPUTES, OPERATORS, Compute, Operator
from glenside.ir.program import Program
from glenside.ir.term import Term

WAYS = {"plain": None, **{name: MACHINES[name] for name in ("generic", "avx2", "avx512vnni", "amx")}}
RECORDS = {**OPERATORS, **COMPUTES}


def _lowered(program: Program, way: str) -> tuple[Program, Loops]:
    program = prepared(program) if WAYS[way] is not None else program
    return program, lower(program, WAYS[way])


def _validated(program: Program, way: str) -> Validation:
    program, loops = _lowered(program, way)
    return mismatches(loops, program.term, program.constants)


def _passes(program: Program, way: str) -> None:
    try:
        found = _validated(program, way)
    except BadInput:  # what has no loops
        return
    assert not found.wrong, found.wrong
    assert not found.skipped, found.skipped


@pytest.mark.parametrize("way", WAYS)
def test_every_record(way: str) -> None:
    for record in RECORDS.values():
        assert isinstance(record, Operator | Compute)
        for example in record.examples:
            _passes(example.program(), way)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_random_terms(term: Term) -> None:
    for way in WAYS:
        _passes(Program(term), way)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_many_random_terms(term: Term) -> None:
    for way in WAYS:
        _passes(Program(term), way)


def _convolution() -> Program:
    b = gl.Builder("p")
    x = b.conv(b.input("x", (1, 16, 13, 13)), b.constant("w", (24, 16, 3, 3)), padding=1)
    return b.finish(b.relu(b.add(x, b.constant("b", (1, 24, 1, 1))))).seeded_constants(0)


@pytest.mark.parametrize(
    "change", [broken_loops.moved, broken_loops.stretched, broken_loops.dropped], ids=["moved", "stretched", "dropped"]
)
def test_wrong_loops(change: broken_loops.Change) -> None:
    """An element farther, a stride too many, a store or a guard too few: what it does not see, the checker does."""
    program, loops = _lowered(_convolution(), "avx512vnni")
    wrong = list(broken_loops.broken(loops, change))
    assert len(wrong) > 10
    found = {what: mismatches(other, program.term, program.constants).wrong or faults(other) for what, other in wrong}
    missed = [what for what, faulty in found.items() if not faulty]
    assert not missed
