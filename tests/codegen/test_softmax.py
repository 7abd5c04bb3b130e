"""Tests softmax and log-softmax in vectors for rows of any length, without scalar function calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.builder import layout
from glenside.codegen.loop_ir.affine_analysis import parts_in
from glenside.codegen.loop_ir.ir import Apply, For, Let, Nest, Role, Statement, Store, Way
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program

SHAPES = [(50, 10), (16, 15), (17, 3), (9, 5), (2, 20, 7), (40, 17), (33, 16), (1, 100), (4, 2)]


def _program(kind: str, shape: Sequence[int], dtype: str = "float32") -> Program:
    b = gl.Builder("p")
    x = b.input("x", shape, dtype=dtype)
    return b.finish(b.softmax(b.add(x, x), -1, kind))


def _expected(kind: str, x: np.ndarray) -> np.ndarray:
    x = 2 * x.astype(np.float64)
    lowered = x - x.max(-1, keepdims=True)
    powers = np.exp(lowered)
    sums = powers.sum(-1, keepdims=True)
    found: np.ndarray = powers / sums if kind == "softmax" else lowered - np.log(sums)
    return found


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "shape"),
    quick(product(["softmax", "log-softmax"], SHAPES), 1, 2, 4, 5, 7, 11, 13, unpacked=True),
)
def test_values(kind: str, shape: tuple[int, ...], dtype: str) -> None:
    f = gl.compile(_program(kind, shape, dtype), "none")
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype) * 4
    for threads in (1, 2):
        np.testing.assert_allclose(f(x, threads=threads), _expected(kind, x), rtol=1e-4, atol=1e-6)
    assert f.check().ok


def test_what_is_no_number_stays_in_its_row() -> None:
    f = gl.compile(_program("log-softmax", (40, 10)), "none")
    x = np.zeros((40, 10), np.float32)
    x[3, 4], x[20, 0] = np.nan, -np.inf
    found = f(x)
    assert np.isnan(found[3]).all()
    assert np.isfinite(np.delete(found, [3, 20], 0)).all()
    assert np.isneginf(found[20, 0])
    assert np.isfinite(found[20, 1:]).all()


def _functions(body: Sequence[Statement], lanes: int = 1) -> Iterator[int]:
    """Of each exp and log, of how many lanes it is."""
    for statement in body:
        if isinstance(statement, For):
            yield from _functions(statement.body, statement.axis.size if statement.way is Way.VECTOR else lanes)
        elif isinstance(statement, Store | Let):
            names = [part.primitive.name for part in parts_in(statement.formula) if isinstance(part, Apply)]
            yield from (lanes for name in names if name in ("exp", "log"))


def _nest(kind: str, shape: tuple[int, ...]) -> Nest:
    return next(nest for nest in lower(_program(kind, shape), MACHINES["avx512"]).nests if nest.what == kind)


@pytest.mark.parametrize(("kind", "found"), [("softmax", [16]), ("log-softmax", [16, 16])])
def test_short_rows_are_taken_together(kind: str, found: list[int]) -> None:
    nest = _nest(kind, (64, 10))
    assert [*_functions(nest.body)] == found


def test_the_logarithm_of_a_sum_is_taken_once() -> None:
    """Of long rows: one for each, and powers in vectors."""
    nest = _nest("log-softmax", (64, 64))
    assert sorted(_functions(nest.body)) == [1, 16]


def test_threads_share_rows_and_have_memory_of_their_own() -> None:
    nest = _nest("log-softmax", (1024, 10))
    assert isinstance(nest.body[0], For)
    assert nest.body[0].way is Way.PARALLEL
    roles = {statement.buffer.role for statement in _stores(nest.body)}
    assert roles == {Role.TEMPORARY, Role.SCRATCH}


def _stores(body: Sequence[Statement]) -> Iterator[Store]:
    for statement in body:
        if isinstance(statement, For):
            yield from _stores(statement.body)
        elif isinstance(statement, Store):
            yield statement


def test_short_rows_whose_elements_lie_apart() -> None:
    """Two classes of each pixel, which are made one picture after the other."""
    b = gl.Builder("classes")
    x = b.conv(b.input("x", (1, 16, 9, 40)), b.constant("w", (2, 16, 3, 3)))
    program = b.finish(b.softmax(b.transpose(x, (0, 2, 3, 1)))).seeded_constants(0)
    for machine in MACHINES.values():
        lowered = Lowered(program, machine)
        assert faults(lowered.loops, lowered.arena) == []
    given = np.random.default_rng(0).standard_normal((1, 16, 9, 40)).astype(np.float32)
    want = gl.compile(program, machine="plain")(given)
    np.testing.assert_allclose(gl.compile(program, "none")(given), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("machine", [*MACHINES])
@pytest.mark.parametrize("kind", quick(["softmax", "log-softmax"], 0))
def test_one_row_of_all_elements_on_one_thread(kind: str, machine: str) -> None:
    """Of many elements without a row of their own, no other thread sees the largest."""
    for dims in ("6 9 74", "4000", "3 7 1 500", "2 3 4"):
        program = gl.parse(f"(input x (shape {dims}) float32)\n(compute {kind} (access-tensor x))")
        assert not faults(Lowered(program, MACHINES[machine]).loops)


def test_rows_of_masked_scores_of_grouped_heads_are_contiguous() -> None:
    b, (heads, group, rows, keys, head) = gl.Builder("scores"), (4, 2, 8, 96, 16)
    q, k = b.input("q", (heads, group * rows, head)), b.input("k", (keys, heads, head))
    scores = layout.reshape(b.matmul(q, layout.transpose(k, (1, 2, 0))), (heads, group, rows, keys))
    mask = layout.broadcast(b.input("mask", (rows, keys)), (heads, group, rows, keys))
    p = b.finish(b.softmax(layout.reshape(b.add(scores, mask), (heads, group * rows, keys)), -1))
    (nest,) = (nest for nest in lower(p, MACHINES["avx2"]).nests if nest.what == "softmax")
    assert [*_functions(nest.body)] == [8]
    assert gl.compile(p, "none").check().ok
