"""Tests state in the memory of its last value: rows appended along any axis, rows replaced at indices."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.builder import Builder
from glenside.builder.layout import concatenate, reshape, slice_axis, transpose
from glenside.builder.reductions import reduce_axes
from glenside.codegen.runtime.stateful import laid_out
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput, OutOfBounds
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.passes.state_layout import StateLayout

pytestmark = pytest.mark.needs_compiler
HEADS, HEAD, WINDOW = 3, 4, 8


def address(array: np.ndarray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def finish(b: Builder, *results: Term) -> Program:
    return b.finish(build("construct-tuple", *results))


def appending(order: tuple[int, ...], rows: int, past: int) -> Program:
    """Returns a step with two caches, whose axes are those of ()(1 heads past head) in another order."""
    b, along = Builder(), order.index(2)

    def dims(n: int) -> list[int]:
        return [(1, HEADS, n, HEAD)[axis] for axis in order]

    k = b.input("k", dims(rows))
    keys = concatenate([b.input("past.keys", dims(past)), k], along)
    values = concatenate([b.input("past.values", dims(past)), b.relu(k)], along)
    total = reduce_axes("reduce-sum", keys, [along])
    return finish(b, total, keys, values)


STATE = {"past.keys": "output_1", "past.values": "output_2"}


@pytest.mark.parametrize("order", quick([(0, 1, 2, 3), (2, 1, 0, 3), (0, 1, 3, 2), (0, 2, 1, 3)], 2))
def test_rows_are_appended_in_place_along_each_axis(order: tuple[int, ...], tmp_path: Path) -> None:
    along = order.index(2)
    program = gl.open_program(lambda rows, past: appending(order, rows, past), rows=(1, 3), past=(0, 9))
    f = gl.compile(program, "none", state=STATE)
    assert "copied" not in repr(f.state)
    rng, before = np.random.default_rng(0), address(f.state["past.keys"])
    every = np.zeros([(1, HEADS, 0, HEAD)[axis] for axis in order], np.float32)
    for rows in (1, 1, 3, 2):
        k = rng.standard_normal([(1, HEADS, rows, HEAD)[axis] for axis in order], np.float32)
        every = np.concatenate([every, k], along)
        np.testing.assert_allclose(f(k), every.sum(along), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(f.state["past.keys"], every)
        np.testing.assert_array_equal(f.state["past.values"], np.maximum(every, 0))
        assert address(f.state["past.keys"]) == before
    f.save(tmp_path / "state.npz")
    np.savez(tmp_path / "more.npz", **np.load(tmp_path / "state.npz"), past=np.array(3))
    with pytest.raises(BadInput, match="has past, too: it is a state of another function"):
        f.load(tmp_path / "more.npz")
    f.reset()
    assert f.state["past.values"].size == 0
    f.load(tmp_path / "state.npz")
    np.testing.assert_array_equal(f.state["past.keys"], every)
    f.state["past.values"] = every
    np.testing.assert_array_equal(f.state["past.values"], every)
    one = np.zeros([(1, HEADS, 1, HEAD)[axis] for axis in order], np.float32)
    for _ in range(3):
        f(one)
    with pytest.raises(BadInput, match="past is from 0 to 9, got 10"):
        f(one)
    assert f.state["past.keys"].shape[along] == 10
    with pytest.raises(BadInput, match=r"the state past\.keys has at most shape"):
        f.state["past.keys"] = np.repeat(one, 40, along)


def replacing(b: Builder, cache: Term, axis: int, at: Term, new: Term) -> Term:
    """Returns a cache in which rows along an axis are replaced at indices."""
    order = (axis, *(i for i in range(cache.access.rank) if i != axis))
    indices = reshape(at, (at.access.dims[0], 1))
    found = build("access-scatter-nd", transpose(cache, order), indices, transpose(new, order), 0, "replace")
    return transpose(found, sorted(range(len(order)), key=order.__getitem__))


def static(rows: int) -> Program:
    """Returns a step over a cache ()(1 heads window head), of which rows are replaced."""
    b = Builder()
    at, k = b.input("at", (rows,), "int64"), b.input("k", (1, HEADS, rows, HEAD))
    caches = [b.input(name, (1, HEADS, WINDOW, HEAD)) for name in ("keys", "values")]
    keys, values = (replacing(b, cache, 2, at, new) for cache, new in zip(caches, (k, b.relu(k)), strict=True))
    return finish(b, reduce_axes("reduce-sum", keys, [2]), keys, values)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("rows", [1, 2])
def test_rows_are_replaced_in_place(is_open: bool, rows: int) -> None:
    program: Any = gl.open_program(static, rows=(1, 4)) if is_open else static(rows)
    f = gl.compile(program, "none", state={"keys": "output_1", "values": "output_2"})
    assert "copied" not in repr(f.state)
    before, every = address(f.state["values"]), np.zeros((1, HEADS, WINDOW, HEAD), np.float32)
    rng = np.random.default_rng(0)
    for begin in (0, 6, 3, 6):
        k = rng.standard_normal((1, HEADS, rows, HEAD), np.float32)
        every[:, :, begin : begin + rows] = k
        np.testing.assert_allclose(f(np.arange(begin, begin + rows), k), every.sum(2), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(f.state["keys"], every)
        np.testing.assert_array_equal(f.state["values"], np.maximum(every, 0))
    assert address(f.state["values"]) == before
    with pytest.raises(OutOfBounds):  # the last index is wrong: nothing is stored
        f(np.arange(WINDOW - rows + 1, WINDOW + 1), np.ones_like(k))
    np.testing.assert_array_equal(f.state["keys"], every)


@pytest.mark.parametrize("late", [True, False])
def test_state_whose_last_value_is_read_after_it_changes_is_copied(late: bool) -> None:
    """Reads of the old value between the copy and the end of the stores forbid one memory."""
    b = Builder()
    cache, at = b.input("cache", (WINDOW, HEAD)), b.input("at", (2,), "int64")
    old = b.gather(cache, at)
    new = b.relu(concatenate([slice_axis(old, 0, 1, 2), slice_axis(old, 0, 0, 1)], 0))  # swaps two rows
    changed = build("access-scatter-nd", cache, reshape(at, (2, 1)), new, 0, "replace")
    total = reduce_axes("reduce-sum", cache if late else changed, [0])
    f = gl.compile(finish(b, total, changed), "none", state={"cache": "output_1"})
    f.state["cache"] = start = np.random.default_rng(0).standard_normal((WINDOW, HEAD)).astype(np.float32)
    want = start.copy()
    want[[5, 2]] = np.maximum(start[[2, 5]], 0)
    np.testing.assert_allclose(f(np.array([5, 2])), (start if late else want).sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(f.state["cache"], want)


def test_state_that_moves_is_copied_and_said_to_be() -> None:
    b = Builder()
    cache, k = b.input("cache", (HEADS, WINDOW, HEAD)), b.input("k", (HEADS, 1, HEAD))
    rolled = slice_axis(concatenate([cache, k], 1), 1, 1, WINDOW + 1)
    f = gl.compile(finish(b, reduce_axes("reduce-sum", rolled, [1]), rolled), "none", state={"cache": "output_1"})
    assert repr(f.state) == f"<state cache {(HEADS, WINDOW, HEAD)} copied>"
    for step in range(3):
        f(np.full((HEADS, 1, HEAD), step, np.float32))
    np.testing.assert_array_equal(f.state["cache"][0, :, 0], [0, 0, 0, 0, 0, 0, 1, 2])


def test_layouts_of_state() -> None:
    found = laid_out(appending((0, 1, 2, 3), 2, 5), STATE)
    assert found[1] == dict.fromkeys(STATE, StateLayout((2, 0, 1, 3)))
    assert tuple(found[0].inputs["past.keys"].dims) == (5, 1, HEADS, HEAD)
    assert laid_out(appending((2, 1, 0, 3), 2, 5), STATE)[1] == {}
    program, rng = appending((0, 1, 2, 3), 2, 5), np.random.default_rng(0)
    given = {name: rng.standard_normal(tuple(t.dims), np.float32) for name, t in program.inputs.items()}
    want = gl.evaluate([program.term], given)[0]
    have = gl.evaluate([found[0].term], {n: a.transpose(2, 0, 1, 3) if n in STATE else a for n, a in given.items()})[0]
    np.testing.assert_array_equal(have[0], want[0])
    for own, right in zip(have[1:], want[1:], strict=True):
        np.testing.assert_array_equal(own.transpose(1, 2, 0, 3), right)


def paged(rows: int, pages: int) -> Program:
    """Returns a step over a pool of blocks of 4 rows: rows are stored in slots, and blocks are read by a table."""
    b = Builder()
    slots, table = b.input("slots", (rows,), "int64"), b.input("table", (pages,), "int64")
    k, pool = b.input("k", (rows, HEADS, HEAD)), b.input("pool", (6, 4, HEADS, HEAD))
    flat = reshape(pool, (24, HEADS, HEAD))
    stored = build("access-scatter-nd", flat, reshape(slots, (rows, 1)), k, 0, "replace")
    pool = reshape(stored, (6, 4, HEADS, HEAD))
    return finish(b, reduce_axes("reduce-sum", b.gather(pool, table), [0, 1]), pool)


@pytest.mark.parametrize("is_open", [False, True])
def test_pages_are_read_from_a_pool_that_changes_in_place(is_open: bool) -> None:
    program: Any = gl.open_program(paged, rows=(1, 4), pages=(1, 6)) if is_open else paged(2, 3)
    f = gl.compile(program, "none", state={"pool": "output_1"})
    assert "copied" not in repr(f.state)
    loops = f.function.lowered.greatest if is_open else f.function.loops
    assert max(b.dims.product() for b in loops.buffers if b.role.value == "temporary") < 24 * HEADS * HEAD or is_open
    pool, rng = np.zeros((6, 4, HEADS, HEAD), np.float32), np.random.default_rng(0)
    for slots, table in (([3, 4], [0, 1, 5]), ([20, 5], [5, 1, 1])):
        k = rng.standard_normal((2, HEADS, HEAD), np.float32)
        pool.reshape(24, HEADS, HEAD)[slots] = k
        found = f(np.array(slots), np.array(table), k)
        np.testing.assert_allclose(found, pool[table].sum((0, 1)), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(f.state["pool"], pool)
    with pytest.raises(OutOfBounds):
        f(np.array([0, 24]), np.array([0, 1, 2]), k)
    np.testing.assert_array_equal(f.state["pool"], pool)


@pytest.mark.parametrize(("along", "dtype"), quick(product([0, 2], ["bfloat16", "float16"]), 1, 2, unpacked=True))
def test_rows_of_halves_from_an_onnx_file_are_appended_exactly(dtype: str, along: int, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    kind, make = getattr(onnx.TensorProto, dtype.upper()), onnx.helper

    def value(name: str, rows: str) -> Any:
        return make.make_tensor_value_info(name, kind, [rows if i == along else (1, 2, 2, 8)[i] for i in range(4)])

    nodes = [make.make_node("Concat", ["past_k", "k"], ["present_k"], axis=along), make.make_node("Neg", ["k"], ["y"])]
    given, found = [value("past_k", "past"), value("k", "rows")], [value("present_k", "total"), value("y", "rows")]
    graph = make.make_graph(nodes, "cache", given, found)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)]), tmp_path / "cache.onnx")
    f = gl.compile(tmp_path / "cache.onnx", "none", dims={"past": (0, 20), "rows": (1, 4)}, state=True)
    assert "copied" not in repr(f.state)
    rng, every = np.random.default_rng(0), []
    for rows in (1, 3, 1, 2):
        drawn = rng.standard_normal([rows if i == along else (1, 2, 2, 8)[i] for i in range(4)])
        every.append(drawn.astype(RECORDS[dtype].numpy))
        f(every[-1])
    assert f.state["past_k"].dtype == RECORDS[dtype].numpy
    np.testing.assert_array_equal(f.state["past_k"].astype("f4"), np.concatenate(every, along).astype("f4"))
