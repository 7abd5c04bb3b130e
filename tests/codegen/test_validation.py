"""Tests validation of loops at sampled elements: correct loops pass, on every machine; wrong ones fail."""

from __future__ import annotations

import itertools
import random
import tracemalloc

import broken_loops
import lowering_faults
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_terms import terms
from slow_cases import quick

import glenside as gl
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.ir import Loops
from glenside.codegen.lowering.constant_preparation import prepared
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, is_here
from glenside.codegen.translation_validation.validate import Validation, mismatches
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.dtypes import REALS
from glenside.ir.errors import BadInput
from glenside.ir.operand import arrays
from glenside.ir.operator import COMPUTES, OPERATORS, Compute, Operator
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.ir.text import parse
from glenside.semantics.interpreter import evaluate
from glenside.semantics.loop_field import LoopField

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


@pytest.mark.parametrize("way", quick(WAYS, 0, 2, 4))
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


@pytest.mark.parametrize("way", WAYS)
def test_operands_without_axes(way: str) -> None:
    product = "(compute dot-product (access-cartesian-product (access-tensor x) (access-tensor x)))"
    _passes(gl.parse(f"(compute reduce-sum (access {product} 0))", shapes={"x": (1,)}), way)
    total = "(compute reduce-sum (access-tensor x))"
    _passes(gl.parse(f'(linear-map (access-insert-axis {total} 0) 0 2 "1/2 -3")', shapes={"x": (5,)}), way)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_many_random_terms(term: Term) -> None:
    for way in WAYS:
        _passes(Program(term), way)


def _convolution() -> Program:
    b = gl.Builder("p")
    x = b.conv(b.input("x", (1, 3, 7, 7)), b.constant("w", (20, 3, 3, 3)), padding=1)
    return b.finish(b.relu(b.add(x, b.constant("b", (1, 20, 1, 1))))).seeded_constants(0)


@pytest.mark.parametrize(
    "change",
    quick([broken_loops.moved, broken_loops.stretched, broken_loops.dropped], 2),
    ids=["moved", "stretched", "dropped"],
)
def test_wrong_loops(change: broken_loops.Change) -> None:
    """An element farther, a stride too many, a store or a guard too few: what it does not see, the checker does."""
    program, loops = _lowered(_convolution(), "avx512vnni")
    wrong = list(broken_loops.broken(loops, change))
    assert len(wrong) > 10
    found = {what: mismatches(other, program.term, program.constants).wrong or faults(other) for what, other in wrong}
    missed = [what for what, faulty in found.items() if not faulty]
    assert not missed


PROGRAMS = lowering_faults.programs()


@pytest.mark.parametrize("name", PROGRAMS)
def test_planted_faults_of_loops(name: str) -> None:
    """Of random faults, those that change what the loops compute over residues are refused."""
    drawn = random.Random(sum(map(ord, name)))
    program, loops = _lowered(PROGRAMS[name], drawn.choice([*WAYS]))
    faulty = [found for _ in range(6) if (found := lowering_faults.of_loops(loops, drawn)) is not None]
    for kind, where, other in faulty:
        if not faults(other) and not mismatches(other, program.term, program.constants).wrong:
            assert _means(other, program), f"{kind}: {where}"


def _means(loops: Loops, program: Program) -> bool:
    """True if loops compute what a program does, over residues; indices are from 0 to 4."""
    field, random_ = LoopField(), np.random.default_rng(0)
    values = {
        name: random_.normal(size=t.dims).astype(t.dtype)
        if t.dtype in REALS
        else random_.integers(0, 5, t.dims, t.dtype)
        for name, t in program.tensors.items()
    } | dict(program.constants)
    want = arrays(evaluate([program.term], values, field)[0])
    return all(np.array_equal(a, b) for a, b in zip(want, interpret(loops, values, field), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("source", [False, True], ids=["loops", "source"])
def test_many_planted_faults(source: bool) -> None:
    """Of 100 faults that change a number when the function runs at least 95 are refused when it is compiled."""
    found: list[lowering_faults.Outcome] = []
    ways = [way for way, machine in WAYS.items() if machine is None or is_here(machine)]
    made: dict[tuple[str, str], lowering_faults.Made] = {}
    for seed in itertools.count(1):
        drawn = random.Random(seed)
        key = name, way = drawn.choice([*PROGRAMS]), drawn.choice(ways)
        if source and key not in made:
            made[key] = lowering_faults.made_of(PROGRAMS[name], WAYS[way])
        one = lowering_faults.outcome(PROGRAMS[name], WAYS[way], seed, made.get(key))
        found += [one] if one.counts else []
        if len(found) == 100:
            break
    missed = [one for one in found if not one.refused]
    assert len(missed) <= 5, missed


def test_many_samples_of_many_places_take_little_memory() -> None:
    """Each of 9,216 elements may be written at each of 9,216 places."""
    x, places, updates = "(access-tensor x)", "(access-tensor i)", "(access-tensor u)"
    program = parse(
        "(input x (shape 512 9 2) float32)\n(input i (shape 4 2) int64)\n(input u (shape 4 2) float32)\n"
        f"(compute softmax (access (access-scatter-nd {x} {places} {updates} 0 add) 2))"
    )
    tracemalloc.start()
    found = _validated(program, "plain")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not found.wrong, found.wrong
    assert most < 500 << 20
