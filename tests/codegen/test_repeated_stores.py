"""Tests vectors whose lanes are stored several times in consecutive elements, as by a nearest resize."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.codegen.cost.count_work import works
from glenside.codegen.loop_ir.affine_analysis import repeats
from glenside.codegen.loop_ir.intrinsics import MAX_INTERLEAVE
from glenside.codegen.loop_ir.ir import Buffer, For, Load, Role, Statement, Store, Way
from glenside.codegen.lowering.constant_preparation import prepared
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.ir.index_map import Axis, Index
from glenside.ir.types import Dims


@pytest.mark.parametrize(
    ("seed", "machine"), quick(product(range(5), ["native", "avx2", "generic"]), 0, 4, 8, 9, 13, unpacked=True)
)
def test_nearest_resizes_are_right_on_every_machine(machine: str, seed: int) -> None:
    draw = random.Random(seed)
    factor = draw.choice((2, 2, 3, 4, 7, 8, 9))
    dims = (1, draw.randint(1, 5), *(draw.randint(1, 40) for _ in range(draw.choice((1, 2)))))
    value = np.random.default_rng(seed).standard_normal(dims).astype(np.float32)
    b, has_relu = gl.Builder("resize"), draw.random() < 0.5
    x = b.input("x", dims)
    f = gl.compile(b.finish(b.upsample(b.relu(x) if has_relu else x, factor)), "none", machine=machine)
    expected = np.maximum(value, 0) if has_relu else value
    for axis in range(2, len(dims)):
        expected = expected.repeat(factor, axis)
    assert np.array_equal(f(value), expected)
    assert f.check().ok


@pytest.mark.parametrize(
    ("factor", "repeated"), [(2, True), (3, True), (MAX_INTERLEAVE, True), (MAX_INTERLEAVE + 1, False)]
)
def test_whole_vectors_are_stored(factor: int, repeated: bool) -> None:
    b = gl.Builder("resize")
    machine = MACHINES["avx512"]
    loops = lower(prepared(b.finish(b.upsample(b.input("x", (1, 4, 32, 32)), factor)), lazily=True), machine)
    (work,) = works(loops, machine)
    assert work.stores == pytest.approx(4 * 32 * 32 * factor * factor / 16, rel=0.05)
    found: list[int] = []

    def visit(statement: Statement) -> None:
        if isinstance(statement, For):
            found.append(repeats(statement))
            for inner in statement.body:
                visit(inner)

    for nest in loops.nests:
        for statement in nest.body:
            visit(statement)
    assert (factor in found) == repeated


def test_only_equal_values_in_consecutive_elements_are_repeated() -> None:
    x, y = (Buffer(name, Dims((64,)), "float32", role) for name, role in (("x", Role.INPUT), ("y", Role.RESULT)))
    lane = Axis(0, 16)

    def loop(places: list[tuple[int, int]], loads: list[int], way: Way = Way.VECTOR) -> For:
        stores = [
            Store(y, Index(((lane, step),), begin), Load(x, Index(((lane, 1),), first)))
            for (step, begin), first in zip(places, loads, strict=True)
        ]
        return For(lane, tuple(stores), way)

    assert repeats(loop([(2, 0), (2, 1)], [0, 0])) == 2
    assert repeats(loop([(3, 5), (3, 6), (3, 7)], [1, 1, 1])) == 3
    assert repeats(loop([(1, 0)], [0])) == 1
    assert repeats(loop([(2, 0), (2, 1)], [0, 1])) == 1, "two values"
    assert repeats(loop([(2, 1), (2, 0)], [0, 0])) == 1, "in another order"
    assert repeats(loop([(3, 0), (3, 1)], [0, 0])) == 1, "with a gap"
    assert repeats(loop([(2, 0), (2, 1)], [0, 0], Way.LOOP)) == 1


@pytest.mark.parametrize("along", [2, 3])
def test_resizes_of_open_sizes_are_right(along: int) -> None:
    def program(n: int) -> gl.Program:
        b = gl.Builder("resize")
        return b.finish(b.upsample(b.input("x", (1, 2, n, 20) if along == 2 else (1, 2, 20, n)), 2))

    f = gl.compile(gl.open_program(program, "resize", n=(1, 40)))
    for n in (1, 2, 7, 16, 17, 33, 40):
        value = np.random.default_rng(n).standard_normal((1, 2, n, 20) if along == 2 else (1, 2, 20, n))
        x = value.astype(np.float32)
        assert np.array_equal(f(x), x.repeat(2, 2).repeat(2, 3)), n
