"""Tests schedules of products with an open number of rows: how rows are cut, and how often weights are read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.builder import layout
from glenside.check.open_function import lowered_open
from glenside.codegen.loop_ir.ir import For, Role, Statement, Store, Way
from glenside.codegen.processor.model import MACHINES
from glenside.codegen.scheduling.tile_partition import tiles_of_rows
from glenside.ir.index_map import Axis
from glenside.ir.open_integer import OpenInteger
from glenside.ir.program import Program
from glenside.ir.size_expression import Expression, Size

LIMIT = 24


@pytest.mark.parametrize("height", [1, 2, 3, 4, 6])
def test_fewer_rows_than_a_limit_are_cut_into_tiles_of_which_the_last_two_are_equal(height: int) -> None:
    rows = Axis(0, OpenInteger(7, Expression(((1, (Size("n"),)),))), LIMIT)
    pieces = tiles_of_rows([rows], height)
    for n in range(LIMIT):
        cut: list[int] = []
        for begin, own, times in pieces:
            at, many = (x.expression.at({"n": n}) if isinstance(x, OpenInteger) else x for x in (begin, times))
            assert at == sum(cut)
            cut += [own] * many
        assert sum(cut) == n
        assert len(cut) == -(-n // height)
        assert all(own == height for own in cut[:-2])
        assert len(cut) < 2 or cut[-2] - cut[-1] <= 1


def _product(rows: int, columns: int = 40, depth: int = 24) -> Program:
    b = gl.Builder("product")
    value = np.random.default_rng(0).standard_normal((columns, depth)).astype("float32")
    return b.finish(b.linear(b.input("x", (rows, depth)), b.constant("w", (columns, depth), value=value)))


def _loops(statement: Statement) -> list[For]:
    if not isinstance(statement, For):
        return []
    return [statement, *(loop for inner in statement.body for loop in _loops(inner))]


def test_few_rows_read_each_panel_of_columns_once() -> None:
    product = gl.open_program(_product, rows=(1, 200))
    f = gl.compile(product, "none")
    for rows in (1, 2, 7, 8, 13, 47, 48, 49, 200):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype("float32")
        w = np.random.default_rng(0).standard_normal((40, 24)).astype("float32")
        np.testing.assert_allclose(f(x), x @ w.T, rtol=1e-4, atol=1e-4)
    (nest,) = lowered_open(product, MACHINES["avx2"]).template.at({"rows": 13}, None).nests
    running = [loop for loop in map(_loops, nest.body) if all(one.axis.size for one in loop[:1])]
    assert all(loops[0].way is Way.PARALLEL for loops in running), "threads divide the columns"
    assert sum(loops[0].axis.size for loops in running) <= 5, "panels of columns"
    tiles = [one.axis.size for one in running[0][1:] if one.way is Way.LOOP and one.axis.size not in (0, 24)]
    assert sum(tiles) == 3, "13 rows are 6, 4 and 3"


def _scores(rows: int, keys: int, heads: int = 3, head: int = 24) -> Program:
    b = gl.Builder("scores")
    q, k = b.input("q", (heads, rows, head)), b.input("k", (keys, heads, head))
    return b.finish(b.matmul(q, layout.transpose(k, (1, 2, 0))))


def test_few_rows_read_keys_as_they_are_stored_and_many_pack_them() -> None:
    f = gl.compile(gl.open_program(_scores, rows=(1, 90), keys=(1, 40)), "none")
    for rows, keys in ((1, 1), (1, 40), (7, 33), (8, 33), (9, 16), (90, 40)):
        draw = np.random.default_rng(rows)
        q, k = (draw.standard_normal(dims).astype("float32") for dims in ((3, rows, 24), (keys, 3, 24)))
        np.testing.assert_allclose(f(q, k), np.einsum("hrd,khd->hrk", q, k), rtol=1e-4, atol=1e-4)
    packed = {}
    for rows in (7, 8):
        loops = f.lowered.template.at({"rows": rows, "keys": 33}, None)
        packed[rows] = sum(packing.buffer.dims.product() for packing in loops.packings)
    assert packed == {7: 0, 8: 3 * 32 * 24}, "of 33 keys the last is read as it is stored"


def _of_matrix(rows: int, columns: int = 80, depth: int = 900) -> Program:
    b = gl.Builder("of a matrix")
    return b.finish(b.matmul(b.input("x", (rows, depth)), b.input("w", (depth, columns))))


def test_many_rows_copy_panels_of_a_large_matrix_that_is_read_as_it_is_stored() -> None:
    machine = MACHINES["avx2"]
    f = gl.open_program(_of_matrix, rows=(1, 300))
    lowered = lowered_open(f, replace(machine, l2=1 << 18))
    copied = {}
    for rows in (1, 2, 3, 11, 12, 300):
        loops = lowered.template.at({"rows": rows}, None)
        copied[rows] = any(_copies(loop) for nest in loops.nests for loop in nest.body)
    assert copied == {1: False, 2: False, 3: False, 11: False, 12: True, 300: True}


def _copies(statement: Statement) -> bool:
    if isinstance(statement, Store):
        return statement.buffer.role is Role.SCRATCH
    return isinstance(statement, For) and statement.axis.size > 0 and any(map(_copies, statement.body))


def test_numbers_of_tiles_are_computed_from_quotients_that_are_computed_once() -> None:
    lowered = lowered_open(gl.open_program(_of_matrix, rows=(1, 300)), MACHINES["avx2"])
    setter = lowered.text.source.end.partition("open_sizes(")[2].partition("\n}")[0]
    lines = [line for line in setter.splitlines() if "floor_quotient(" in line]
    assert lines
    assert all(line.count("floor_quotient(") == 1 for line in lines if line.strip().startswith("const"))
    assert not any("floor_quotient" in line for line in setter.splitlines() if line.strip().startswith("open_numbers["))


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 11, 12, 13, 14, 48, 55, 300])
def test_rows_of_a_matrix_that_is_read_as_it_is_stored(rows: int) -> None:
    f = _compiled_matrix()
    draw = np.random.default_rng(rows)
    x, w = (draw.standard_normal(dims).astype("float32") for dims in ((rows, 900), (900, 80)))
    np.testing.assert_allclose(f(x, w), x @ w, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("machine", ["avx2", "avx512"])
@pytest.mark.parametrize("most", [3, 20, 53])
def test_sums_along_a_short_open_axis_are_in_vectors(machine: str, most: int) -> None:
    """A representative length of less than four vectors decides the number of accumulators, for all lengths."""
    assert not lowered_open(gl.open_program(_softmax, n=(1, most)), MACHINES[machine]).remarks


def _softmax(n: int) -> Program:
    b = gl.Builder("softmax")
    return b.finish(b.softmax(b.input("x", (3, n)), 1))


@cache
def _compiled_matrix() -> Any:
    return gl.compile(gl.open_program(_of_matrix, rows=(1, 300)), "none")
