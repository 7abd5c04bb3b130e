"""Tests the order of dims in which sums are stored, so that they are computed in vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.builder import layout
from glenside.codegen.loop_ir.affine_analysis import coefficient, loads_in
from glenside.codegen.loop_ir.ir import Buffer, For, Nest, Packing, Role, Statement, Store, Way
from glenside.codegen.lowering.term_reads import dims_of_parts
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import machine_of
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program
from glenside.ir.term import build
from glenside.ir.types import Dims


def _step(batch: int, channels: int, filters: int, size: int, window: int) -> Program:
    """Builds the training step of a convolution that follows another one."""
    b = gl.Builder("net")
    x = b.relu(b.conv(b.input("x", (batch, channels, size, size)), b.constant("v", (channels, channels, 1, 1))))
    y = b.conv(x, b.constant("w", (filters, channels, window, window)), padding=window // 2, name="conv")
    return gl.training_step(b.finish(b.relu(y)), "squared-error", gl.SGD("0.1")).program


def _stores(body: Sequence[Statement], way: Way | None = None) -> Iterator[tuple[Store, Way | None]]:
    """What is stored, and the way of the loop around it."""
    for statement in body:
        if isinstance(statement, For):
            yield from _stores(statement.body, statement.way)
        elif isinstance(statement, Store):
            yield statement, way


def _share_of_vectors(nest: Nest) -> float:
    ways = [way for _, way in _stores(nest.body)]
    return ways.count(Way.VECTOR) / len(ways)


@pytest.mark.parametrize("sizes", [(2, 24, 32, 4, 3), (1, 48, 64, 8, 3), (2, 128, 128, 8, 3), (2, 64, 64, 2, 3)])
@pytest.mark.parametrize("machine", ["avx512", "avx2"])
def test_products_of_a_step_are_vectors(sizes: tuple[int, ...], machine: str) -> None:
    """However wide its pictures and windows are, which are a part of a vector, or less."""
    loops = lower(_step(*sizes), machine_of(machine))
    assert faults(loops) == []
    products = [nest for nest in loops.nests if "dot-product" in nest.what]
    assert len(products) >= 2, "gradients of weights and of an input"
    for nest in products:
        assert _share_of_vectors(nest) > 0.7, f"{nest.what}\n{loops}"


def test_a_sum_has_no_dims_of_an_operand_of_as_many_elements() -> None:
    """The sums and the windows have equally many elements, but the sums must not get the dims of the windows."""
    b = gl.Builder("p")
    filters, windows = b.input("a", (30, 2, 3, 5)), b.input("b", (4, 3, 3, 2, 3, 5))
    operands = build("access", filters, 1), build("access", windows, 3)
    product = build("compute", "dot-product", build("access-product", *operands, 0))
    assert product.access.size == windows.access.size
    assert dims_of_parts(product, ()) is None
    flat = layout.reshape(product, (30 * 36,))
    assert dims_of_parts(flat, ()) == (30, 4, 3, 3)


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    "sizes",
    [(3, 33, 20, 7, 5), *(pytest.param(s, marks=pytest.mark.slow) for s in [(2, 24, 32, 4, 3), (2, 64, 64, 2, 3)])],
)
def test_steps_in_other_orders_give_the_same(sizes: tuple[int, ...]) -> None:
    program = _step(*sizes)
    random = np.random.default_rng(0)
    values = {name: random.standard_normal(t.dims).astype(t.dtype) for name, t in program.tensors.items()}
    want = gl.compile(program, machine="plain")(**values)
    for threads in (1, 3):
        found = gl.compile(program, "none")(**values, threads=threads)
        for one, other in zip(_arrays(found), _arrays(want), strict=True):
            assert np.abs(one - other).max() <= 1e-5 * max(1, np.abs(other).max())


def _arrays(value: Any) -> list[Any]:
    return [part for item in value for part in _arrays(item)] if isinstance(value, tuple) else [value]


def test_what_is_packed_is_read_as_it_lies() -> None:
    """The columns of a panel are read at once; all other axes are read in the order of their strides."""
    source = Buffer("w", Dims((6, 40, 3, 3)), "float32", Role.TEMPORARY)
    packed = Buffer("w.packed", Dims((source.dims.product(),)), "float32", Role.TEMPORARY)
    packing = Packing(packed, source, 0, ((3, 1),), ((3, 3), (6, 360)), 9, ((0, 16, 2), (32, 8, 1)))
    for statement in packing.statements():
        axes = []
        while isinstance(statement, For):
            axes.append(statement.axis)
            (statement,) = statement.body
        assert isinstance(statement, Store)
        (load,) = loads_in(statement.formula)
        *others, last = (coefficient(load.place, axis) for axis in axes)
        assert last == 9
        assert others == sorted(others, reverse=True)


@pytest.mark.parametrize("machine", ["amx", "avx512", "avx2", "generic"])
@pytest.mark.parametrize("sizes", [(0, 24, 32), (24, 0, 32), (24, 32, 0), (0, 0, 0)])
def test_nothing_has_an_order_too(sizes: tuple[int, int, int], machine: str) -> None:
    """No vector is as short as an axis without elements is: none is looked for."""
    rows, steps, columns = sizes
    b = gl.Builder("none")
    x = b.matmul(b.input("x", (rows, steps)), b.constant("w", (steps, columns)))
    loops = lower(b.finish(b.relu(x)).seeded_constants(0), machine_of(machine))
    assert faults(loops) == []
    assert list(loops.results[0].dims) == [rows, columns]


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_sum_of_which_elements_are_picked_is_made_in_vectors(axis: int) -> None:
    """Whatever axis is picked: in the order of the results, 7 x 7 windows of three channels would not fill vectors."""
    b = gl.Builder("p")
    y = b.relu(b.conv(b.input("x", (1, 3, 32, 32)), b.constant("w", (64, 3, 7, 7)), strides=2, padding=3))
    picked = layout.gather(y, b.constant("i", (5,), dtype="int64"), axis)
    loops = lower(b.finish(picked), machine_of("avx512"))
    assert faults(loops) == []
    (product,) = (nest for nest in loops.nests if "dot-product" in nest.what)
    assert product.buffer.dims[-1] == 64
    assert _share_of_vectors(product) > 0.7
