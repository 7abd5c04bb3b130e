"""Tests copies of strided operands: the first tile that reads a panel copies it for the next ones, and rows read by
many panels are packed before, like a transposed constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import glenside as gl
from glenside.builder import pointwise
from glenside.codegen.loop_ir.affine_analysis import loads_in
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.ir import Buffer, For, Role, Statement, Store
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, is_here, machine_of
from glenside.codegen.runtime.compiled_function import Compiled, Lowered
from glenside.codegen.scheduling.operand_packing import with_first_alone
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program
from glenside.ir.term import build

SMALL = {"l1": 1 << 10, "l2": 1 << 17}
"""Caches that hold few of these programs' operands."""


def _program(depth: int, rows: int, columns: int) -> Program:
    """Returns the sums of products of columns of a and columns of b, with something added to them."""
    p = gl.Builder("p")
    operands = [p.input("a", (depth, rows)), p.input("b", (depth, columns))]
    turned = [build("access", build("access-transpose", t, (1, 0)), 1) for t in operands]
    product = build("compute", "dot-product", build("access-product", *turned, 0))
    return p.finish(p.add(p.input("c", (rows, columns)), product))


def _sums(body: Sequence[Statement]) -> Iterator[Store]:
    for statement in body:
        if isinstance(statement, For):
            yield from _sums(statement.body)
        elif isinstance(statement, Store) and statement.buffer.role is Role.REGISTER:
            yield statement


def _read(program: Program, **caches: int) -> list[Buffer]:
    """Returns the buffers that sums read in place of b, in the order in which they are written."""
    machine = replace(MACHINES["avx512"], **caches)
    *_, nest = Lowered(program, machine).loops.nests
    return [
        load.buffer for store in _sums(nest.body) for load in loads_in(store.formula) if load.buffer.name[:1] == "b"
    ]


@pytest.mark.parametrize(("depth", "rows", "columns"), [(200, 64, 192), (161, 61, 203), (127, 75, 400), (64, 57, 640)])
def test_tiles_read_the_copy_of_the_first(depth: int, rows: int, columns: int) -> None:
    """Only whole panels are packed; the remaining columns are read where they are."""
    read = _read(_program(depth, rows, columns), **SMALL)
    copies = [buffer for buffer in dict.fromkeys(read) if buffer.role is Role.SCRATCH]
    assert copies
    assert {buffer.name for buffer in read[: read.index(copies[0])]} == {"b"}, "the first tile"
    assert all(buffer.dims[0] == depth and 4 * buffer.bytes <= SMALL["l2"] for buffer in copies)


@pytest.mark.parametrize(
    ("depth", "rows", "columns", "caches"),
    [
        (200, 64, 192, {}),  # it is near
        (200, 28, 192, SMALL),  # few tiles read it
        (1000, 64, 192, SMALL),  # it would not be near
    ],
)
def test_nothing_is_copied_in_vain(depth: int, rows: int, columns: int, caches: dict[str, int]) -> None:
    assert {buffer.role for buffer in _read(_program(depth, rows, columns), **caches)} == {Role.INPUT}


@pytest.mark.parametrize(
    ("depth", "rows", "columns", "caches", "packed"),
    [
        (64, 57, 640, SMALL, ["a"]),
        (101, 57, 803, SMALL, ["a"]),
        (64, 57, 320, SMALL, []),  # few panels read it
        (64, 57, 640, {}, []),  # it is near
        (640, 57, 640, SMALL, []),  # what is packed would not be
    ],
)
def test_rows_that_many_panels_read_are_packed(
    depth: int, rows: int, columns: int, caches: dict[str, int], packed: list[str]
) -> None:
    """By vectors: elements packed for a tile are adjacent, as in the operand."""
    program = _program(depth, rows, columns)
    loops = lower(program, replace(MACHINES["avx512"], **caches))
    assert [packing.source.name for packing in loops.packings] == packed
    assert [nest.what for nest in loops.nests[:-1]] == [f"{name} packed" for name in packed]
    assert all("vector" in str(statement) for nest in loops.nests[:-1] for statement in nest.body)
    assert faults(loops, arena(loops)) == []
    if depth * rows * columns > 64 * 57 * 640:
        return
    draw = np.random.default_rng(0)
    given = {t.name: draw.integers(-9, 9, tuple(t.dims)).astype(np.float32) for t in program.tensors.values()}
    (found,) = interpret(loops, given)
    assert np.array_equal(found, given["a"].T @ given["b"] + given["c"])


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    ("depth", "rows", "columns"),
    [
        (200, 64, 192),
        (161, 61, 203),
        *(pytest.param(*s, marks=pytest.mark.slow) for s in [(127, 75, 400), (53, 150, 333)]),
        (67, 59, 531),
    ],
)
def test_copies_are_what_they_are_of(depth: int, rows: int, columns: int) -> None:
    """Sums of whole numbers, which are exact."""
    native = machine_of("native")
    assert native is not None
    machine = replace(native, **SMALL)
    lowered = Lowered(_program(depth, rows, columns), machine)
    assert faults(lowered.loops, lowered.arena) == []
    draw = np.random.default_rng(0)
    given = {t.name: draw.integers(-9, 9, tuple(t.dims)).astype(np.float32) for t in lowered.program.tensors.values()}
    want = given["a"].T @ given["b"] + given["c"]
    f = Compiled(lowered, machine)
    for threads in (1, 3):
        assert np.array_equal(f(given, threads=threads), want)


def test_the_first_tile_is_taken_from_the_first_rows() -> None:
    assert with_first_alone([(0, 14, 9), (126, 13, 10)]) == [(0, 14, 1), (14, 14, 8), (126, 13, 10)]
    assert with_first_alone([(0, 14, 1), (14, 13, 2)]) == [(0, 14, 1), (14, 13, 2)]


@pytest.mark.parametrize("machine", ["avx512", "avx2", "generic"])
def test_constants_that_lie_the_other_way_are_packed(machine: str) -> None:
    """One that is read along columns, where rows are stored: all is done in vectors then."""
    p = gl.Builder("other way")
    x, bias = p.input("x", (37, 48)), p.transpose(p.constant("bias", (48, 37)), (1, 0))
    program = p.finish(p.multiply(p.sigmoid(x), p.add(x, bias))).seeded_constants(0)
    loops = lower(program, MACHINES[machine])
    (packing,) = loops.packings
    assert packing.source.name == "bias"
    assert "vector" in str(loops)
    assert faults(loops, arena(loops)) == []
    values = {**program.constants, "x": np.random.default_rng(0).standard_normal((37, 48)).astype(np.float32)}
    (want,), (got,) = gl.evaluate([program.term], values), interpret(loops, values)
    assert np.allclose(got, want, 1e-6, 1e-6)


@pytest.mark.parametrize("machine", ["avx512", "avx2", "generic"])
def test_no_more_of_a_constant_is_packed_than_there_is(machine: str) -> None:
    """Each of two constants in one row is read only in its part, behind a guard."""
    p = gl.Builder("parts")
    row = p.concatenate([p.constant("w", (21,)), p.constant("v", (10,))], 0)
    program = p.finish(p.relu(p.flip(row, 0))).seeded_constants(0)
    loops = lower(program, MACHINES[machine])
    for packing in loops.packings:
        columns = sum(width * times for _, width, times in packing.pieces)
        last = packing.first + (columns - 1) * packing.stride
        assert 0 <= min(packing.first, last) <= max(packing.first, last) < packing.source.dims.product()
    (want,), (got,) = gl.evaluate([program.term], program.constants), interpret(loops, program.constants)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("machine", ["avx2", "avx512", "avx512bf16"])
@pytest.mark.parametrize("rows", [9, 17])
def test_packed_halves_are_copied_as_they_are_stored(machine: str, rows: int) -> None:
    """Copies without a conversion: 32 float32 fill no vector register, and GCC cannot convert them in one."""
    b = gl.Builder("scores")
    keys = pointwise.cast(b.input("k", (2, rows, 64), "bfloat16"), "float32")
    program = b.finish(b.matmul(b.input("q", (2, 18, 64)), b.transpose(keys, (0, 2, 1))))
    assert "f32x32" not in Lowered(program, MACHINES[machine]).source
    if not is_here(MACHINES[machine]):
        pytest.skip("this computer has no such instructions")
    draw = np.random.default_rng(0)
    q, k = draw.standard_normal((2, 18, 64)).astype("float32"), draw.standard_normal((2, rows, 64)).astype("bfloat16")
    found = gl.compile(program, "none", machine=machine)(q=q, k=k)
    np.testing.assert_allclose(found, q @ k.astype("float32").transpose(0, 2, 1), rtol=1e-4, atol=1e-4)
