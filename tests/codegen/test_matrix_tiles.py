"""Tests products on a matrix unit: splitting numbers, packing, and programs that use it."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.check.compiled import Function
from glenside.codegen.emit_c import amx
from glenside.codegen.emit_c.printer import source
from glenside.codegen.emit_c.vector_casts import vector_type
from glenside.codegen.loop_ir.accesses import used_buffers
from glenside.codegen.loop_ir.affine_analysis import at
from glenside.codegen.loop_ir.bf16_split_matmul import PartPacking, product_of
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.intrinsics import PARTS
from glenside.codegen.loop_ir.ir import Apply, Buffer, For, Load, Loops, Nest, Role, Statement, Store, Way
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, Machine, is_here
from glenside.codegen.processor.work_record import Work
from glenside.codegen.runtime.compile_and_load import compiler, flags
from glenside.codegen.scheduling import select_schedule
from glenside.codegen.scheduling.constant_packing import packed_constants
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.index_map import Axis
from glenside.ir.program import Program
from glenside.ir.types import Dims

CHEAP = Work(cycles=1, matrices=1e-3, far=1e-2, weights=1e-2)
"""Prices by which all products are left to the unit."""
UNIT = replace(MACHINES["amx"], l2=1 << 17, nanoseconds=CHEAP)
WITHOUT = replace(MACHINES["generic"], name="without", vector=64, l2=1 << 17, matrix=384, nanoseconds=CHEAP)
"""A processor that is taken for one with a unit for matrices, and has none: plain loops do the same."""
needs_unit = pytest.mark.skipif(not is_here(UNIT), reason="the processor has no unit for matrices")
MACHINES_HERE = [pytest.param(UNIT, marks=needs_unit, id="unit"), pytest.param(WITHOUT, id="plain loops")]


def _product(m: int, k: int, n: int, dtype: str = "float32") -> Program:
    b = gl.Builder("product")
    x, w = b.input("x", (m, k), dtype=dtype), b.constant("w", (k, n), dtype=dtype)
    return b.finish(b.relu(b.matmul(x, w))).seeded_constants(0)


def _convolution(channels: int, made: int, kernel: int, stride: int = 1, size: tuple[int, int] = (15, 13)) -> Program:
    b = gl.Builder("convolution")
    x = b.input("x", (1, channels, *size))
    first = b.relu(b.conv(x, b.constant("w", (channels, channels, 1, 1))))
    second = b.conv(first, b.constant("v", (made, channels, kernel, kernel)), padding=kernel // 2, strides=stride)
    return b.finish(b.relu(second)).seeded_constants(0)


def _queries() -> Program:
    """Two products of the same rows."""
    b = gl.Builder("queries")
    x = b.relu(b.input("x", (130, 610)))
    q, k = (b.matmul(x, b.constant(name, (610, 96))) for name in "qk")
    return b.finish(b.multiply(q, b.relu(k))).seeded_constants(0)


def _perceptron() -> Program:
    """Returns a product that is the unit's by itself, and that a band takes with the next one, which is not: what was
    packed for it is not needed then.
    """
    b = gl.Builder("perceptron")
    x = b.matmul(b.transpose(b.input("x", (64, 4, 80)), (1, 0, 2)), b.constant("w", (80, 160)))
    return b.finish(b.matmul(b.relu6(x), b.constant("v", (160, 72)))).seeded_constants(0)


def _batched(groups: int, m: int, k: int, n: int) -> Program:
    b = gl.Builder("batched")
    return b.finish(b.matmul(b.input("x", (groups, m, k)), b.constant("w", (groups, k, n)))).seeded_constants(0)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "whole": lambda: _product(96, 128, 64),
    "odd": lambda: _product(77, 75, 80),
    "one pair more": lambda: _product(61, 65, 96),
    "many rows": lambda: _product(700, 64, 64),
    "long sums": lambda: _product(130, 610, 96),
    "halves": lambda: _product(75, 131, 80, "bfloat16"),
    "pointwise": lambda: _convolution(64, 96, 1),
    "windows": lambda: _convolution(32, 64, 3),
    "strided": lambda: _convolution(32, 48, 3, 2, (21, 17)),
    "bands": _perceptron,
    "queries": _queries,
    "groups": lambda: _batched(3, 70, 64, 96),
}


def _products(loops: Loops) -> list[For]:
    def within(body: tuple[Statement, ...]) -> list[For]:
        loops = [s for s in body if isinstance(s, For)]
        return [found for s in loops for found in ([s] if s.way is Way.MATRIX else within(s.body))]

    return [found for nest in loops.nests for found in within(nest.body)]


def _compiled(program: Program, machine: Machine) -> Function:
    return Function(program, machine, None, None)


def test_parts_are_all_of_a_number() -> None:
    draw = np.random.default_rng(0)
    x = draw.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
    x = x[np.isfinite(x) & (abs(x) < 3.38e38) & (abs(x) > 2.0**-109)]
    given, axis = Buffer("x", Dims((x.size,)), "float32", Role.INPUT), Axis(0, x.size)
    made = [Buffer(part.name, given.dims, "bfloat16", Role.RESULT) for part in PARTS]
    values = [Apply(part, (Load(given, at(axis)),), "bfloat16") for part in PARTS]
    nests = [Nest("a part", b, (For(axis, (Store(b, at(axis), v),)),)) for b, v in zip(made, values, strict=True)]
    total = sum(
        part.astype(np.float64) for part in interpret(Loops("p", (given, *made), tuple(nests), tuple(made)), {"x": x})
    )
    assert np.array_equal(total, x.astype(np.float64))


@pytest.mark.needs_compiler
@pytest.mark.parametrize("machine", [pytest.param(UNIT, marks=needs_unit, id="unit"), MACHINES["generic"]])
def test_vectors_have_the_same_parts(machine: Machine, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    x = draw.integers(0, 1 << 32, 1 << 14, dtype=np.uint32).view(np.float32)
    x = np.ascontiguousarray(x[~np.isnan(x) & (abs(x) > 2.0**-102)][: 1 << 13])  # with no part below normal ones
    types = [vector_type(dtype, 16) for dtype in ("int32", "uint32", "float32", "uint16")]
    texts = list(dict.fromkeys(text for part in PARTS for text in part.texts(16)))
    calls = "".join(
        f"*(u16x16 *)(y + {i} * n + k) = {part.name}_x16(*(f32x16 *)(x + k));" for i, part in enumerate(PARTS)
    )
    run = f"void run(float *x, uint16_t *y, long n) {{ for (long k = 0; k < n; k += 16) {{ {calls} }} }}"
    path = tmp_path / "parts.c"
    path.write_text("\n".join(["#include <stdint.h>", *types, *texts, run]))
    told = [*compiler(), *flags(machine), "-shared", "-fPIC", str(path), "-o", str(tmp_path / "parts.so")]
    subprocess.run(told, check=True, timeout=100)
    found = np.empty((3, x.size), np.uint16)
    given = (ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(found.ctypes.data), ctypes.c_long(x.size))
    ctypes.CDLL(str(tmp_path / "parts.so")).run(*given)
    rest = x.astype(np.float32)
    for part in found:
        near = _nearest(rest)
        finite = np.isfinite(rest) & np.isfinite(_float(near))
        assert np.array_equal(part[finite], near[finite])
        with np.errstate(invalid="ignore", over="ignore"):
            rest = rest - _float(near)


def _nearest(x: np.ndarray) -> np.ndarray:
    """Returns the bits of the nearest bfloat16, halves to the even one."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _float(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("paired", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize(
    ("outer", "lines", "inner"),
    [((), (48,), (64,)), ((2,), (16,), (37,)), ((), (5, 7), (3, 45)), ((3,), (80,), (2, 33)), ((), (96,), (17,))],
)
def test_constants_are_packed_as_loops_say(
    outer: tuple[int, ...], lines: tuple[int, ...], inner: tuple[int, ...], paired: bool
) -> None:
    if paired and int(np.prod(lines)) % 16:
        pytest.skip("columns are whole vectors")
    sizes = (*outer, *lines, *inner)
    strides = np.cumprod((1, *sizes[:0:-1]))[::-1].tolist()
    pairs = list(zip(sizes, strides, strict=True))
    a, b = len(outer), len(outer) + len(lines)
    source = Buffer("w", Dims(sizes), "float32", Role.CONSTANT)
    found = PartPacking(
        Buffer("w.parts", Dims((0,)), "bfloat16", Role.CONSTANT),
        source,
        0,
        tuple(pairs[:a]),
        tuple(pairs[b:]),
        0,
        (),
        lines=tuple(pairs[a:b]),
        height=32 if paired else 26,
        paired=paired,
    )
    size = int(np.prod(outer, initial=1)) * found.blocks * found.height * found.depth
    found = replace(found, buffer=Buffer("w.parts", Dims((size,)), "bfloat16", Role.CONSTANT))
    value = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    (packed,) = packed_constants([found], {source: value}).values()
    axis, copy = Axis(0, size), Buffer("copy", Dims((size,)), "bfloat16", Role.RESULT)
    nest = Nest("a copy", copy, (For(axis, (Store(copy, at(axis), Load(found.buffer, at(axis))),)),))
    (told,) = interpret(Loops("p", (source, found.buffer, copy), (nest,), (copy,), (found,)), {"w": value})
    assert np.array_equal(packed.view(np.uint16), told.view(np.uint16))


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_are_of_machines_with_a_unit(name: str) -> None:
    program = PROGRAMS[name]()
    found = _products(lower(program, UNIT))
    assert found
    assert name != "long sums" or any(product_of(loop).adds for loop in found)
    for loop in found:
        product = product_of(loop)
        again = product.statement(iter(range(1000, 1100)))
        assert product_of(again) == product
    assert not _products(lower(program, MACHINES["avx512bf16"]))


@pytest.mark.parametrize("machine", [WITHOUT, MACHINES["amx"]], ids=["all", "as prices tell"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_are_well_formed(name: str, machine: Machine) -> None:
    found = lower(PROGRAMS[name](), machine)
    assert faults(found, arena(found)) == []
    own = (Role.REGISTER, Role.SCRATCH)
    assert {b for nest in found.nests for b in used_buffers(nest.body) if b.role not in own} <= {*found.buffers}


@pytest.mark.needs_compiler
@pytest.mark.parametrize("machine", MACHINES_HERE)
@pytest.mark.parametrize("name", quick(PROGRAMS, 5, 11))
def test_programs_keep_to_their_bounds(name: str, machine: Machine) -> None:
    program = PROGRAMS[name]()
    found = _compiled(program, machine)
    assert _products(found.loops)
    checked = found.check()
    assert checked.ok, str(checked)
    (given,) = (t for t in program.tensors.values() if not t.constant)
    draw = np.random.default_rng(0)  # whole numbers, of which sums are exact
    whole = {n: draw.integers(-8, 9, t.dims).astype(t.dtype) for n, t in program.tensors.items()}
    constants = {n: array for n, array in whole.items() if n != given.name}
    (want,) = gl.evaluate([program.term], whole)
    one = _compiled(replace(program, constants=constants), machine)
    for threads in (1, 3):
        got = np.asarray(one(whole[given.name], threads=threads))
        assert np.array_equal(got.astype(np.float64), np.asarray(want).reshape(got.shape).astype(np.float64))


@pytest.mark.needs_compiler
@pytest.mark.parametrize("machine", MACHINES_HERE)
def test_sums_are_nearer_to_exact_than_one_after_the_other(machine: Machine) -> None:
    """Relative to the sum of magnitudes: products of float32 were off by 2.4e-7 to 3.0e-7 at this depth."""
    program, x = _product(96, 512, 64), np.random.default_rng(2).standard_normal((96, 512)).astype(np.float32)
    w = program.constants["w"].astype(np.float64)
    got = np.asarray(_compiled(program, machine)(x))
    off = abs(got - np.maximum(x @ w, 0)) / (abs(x.astype(np.float64)) @ abs(w))
    assert off.max() < 2.0e-7


def _single(machine: Machine) -> float:
    """How far single products are from exact, as a part of them: each sum has one that is not 0."""
    program, draw = _product(64, 64, 64), np.random.default_rng(3)
    w = (1 + draw.random((64, 64))).astype(np.float32)
    x = np.diag((1 + draw.random(64)).astype(np.float32))
    got = np.asarray(_compiled(replace(program, constants={"w": w}), machine)(x))
    want = np.diag(x).astype(np.float64)[:, None] * w
    return float((abs(got - want) / want).max())


@pytest.mark.needs_compiler
@pytest.mark.parametrize("machine", MACHINES_HERE)
def test_a_product_that_is_left_out_is_seen(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    """One of the six of parts, the least of which are 2^-17 of a number."""
    assert _single(machine) < 2.0**-22
    pairs, made = amx.PRODUCTS[3], amx.matrix_functions
    for left_out in range(6):

        def mutant(parts: int, left_out: int = left_out) -> list[str]:
            with monkeypatch.context() as patch:
                patch.setitem(amx.PRODUCTS, 3, tuple(p for i, p in enumerate(pairs) if i != left_out))
                return made(parts)

        monkeypatch.setattr("glenside.codegen.emit_c.printer.matrix_functions", mutant)
        assert _single(machine) > 2.0**-20, pairs[left_out]


@pytest.mark.needs_compiler
@pytest.mark.parametrize("machine", MACHINES_HERE)
def test_the_bound_sees_products_that_are_left_out(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    """Leaves out products of high and middle parts in the C that runs, but not in the reference."""
    pairs, made = amx.PRODUCTS[3], amx.matrix_functions

    def mutant(parts: int) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setitem(amx.PRODUCTS, 3, tuple(p for p in pairs if p != (1, 0)))
            return made(parts)

    monkeypatch.setattr("glenside.codegen.emit_c.printer.matrix_functions", mutant)
    assert not _compiled(_product(40, 32, 32), machine).check().ok


def test_rows_that_several_products_read_are_packed_once() -> None:
    titles = lower(_queries(), UNIT).titles
    assert sum(title.endswith(" packed") for title in titles) == 1, titles


@pytest.mark.parametrize("name", quick(PROGRAMS, 1, 5, 7, 11))
def test_what_is_remembered_of_other_blocks_changes_no_loops(name: str) -> None:
    program = PROGRAMS[name]()
    select_schedule._known.cache_clear()
    first = str(lower(program, UNIT))
    assert select_schedule._known.cache_info().misses
    assert str(lower(program, UNIT)) == first
    assert select_schedule._known.cache_info().hits
    assert str(lower(program, replace(UNIT, l2=1 << 21))) != first or name not in ("long sums", "queries")


def test_prices_tell_which_products_are_worth_it() -> None:
    machine = MACHINES["amx"]
    assert _products(lower(_product(196, 512, 512), machine))
    assert not _products(lower(_product(9, 33, 32), machine))  # rows of zeros, and a pair more than a chunk
    assert not _products(lower(_batched(200, 8, 256, 256), machine))  # each weight is read once, and waited for


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_compilers_know_that_there_is_a_unit(name: str, tmp_path: Path) -> None:
    """Their names for it differ: without it what runs is loops, hundreds of times as slow."""
    found = shutil.which(name)
    if found is None or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip(f"there is no {name} for this")
    (tmp_path / "one.c").write_text(str(source(lower(_product(96, 128, 64), UNIT))))
    told = [found, *flags(UNIT, name), "-S", "one.c", "-o", "one.s"]
    subprocess.run(told, cwd=tmp_path, check=True, timeout=100)
    text = (tmp_path / "one.s").read_text()
    assert all(word in text for word in ("ldtilecfg", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"))
