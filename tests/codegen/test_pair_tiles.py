"""Tests bfloat16 products in pairs: the instruction's meaning to the bit, and programs that use it."""

from __future__ import annotations

import ctypes
import math
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.emit_c.vector_casts import vector_type
from glenside.codegen.loop_ir.intrinsics import DOT_2
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, is_here
from glenside.codegen.runtime.compile_and_load import compiler, flags
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program

MACHINE = "avx512bf16"
LEAST = Fraction(1, 1 << 126)
needs_pairs = pytest.mark.skipif(not is_here(MACHINES[MACHINE]), reason="the processor has no such instruction")


def _product(m: int, k: int, n: int) -> Program:
    b = gl.Builder("product")
    x, w = b.input("x", (m, k), dtype="bfloat16"), b.constant("w", (k, n), dtype="bfloat16")
    return b.finish(b.relu(b.matmul(x, w))).seeded_constants(0)


def _convolution(channels: int, made: int) -> Program:
    b = gl.Builder("convolution")
    x = b.input("x", (1, channels, 7, 9), dtype="bfloat16")
    first = b.relu(b.conv(x, b.constant("w", (channels, channels, 1, 1), dtype="bfloat16")))
    return b.finish(
        b.conv(first, b.constant("v", (made, channels, 3, 3), dtype="bfloat16"), padding=1)
    ).seeded_constants(0)


PROGRAMS = {
    "even": lambda: _product(20, 64, 48),
    "odd": lambda: _product(13, 37, 21),
    "one": lambda: _product(16, 1, 32),
    "convolution": lambda: _convolution(19, 24),
}


def _halves(draw: np.random.Generator, count: int, low: int, high: int) -> np.ndarray:
    """Draws the bits of bfloat16 numbers with exponents in a range, subnormal ones among them."""
    sign, exponent = draw.integers(0, 2, count) << 15, draw.integers(low, high, count) << 7
    return (sign | exponent | draw.integers(0, 128, count)).astype(np.uint16)


def _float(bits: int) -> np.float32:
    return np.array(bits, np.uint32).view(np.float32)[()]


def _flushed(x: np.float32) -> np.float32:
    return x if abs(Fraction(float(x))) >= LEAST else np.float32(math.copysign(0, x))


def _added(total: np.float32, a: int, b: int) -> np.float32:
    """total + a b with one rounding, to the nearest, of halves to even ones; by exact numbers."""
    first, second, total = _flushed(_float(int(a) << 16)), _flushed(_float(int(b) << 16)), _flushed(total)
    exact = Fraction(float(first)) * Fraction(float(second)) + Fraction(float(total))
    near = np.float32(float(exact))  # of two roundings: one beside it may be nearer
    options = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    best = min(options, key=lambda x: (abs(Fraction(float(x)) - exact), int(np.array(x).view(np.uint32)) & 1))
    return _flushed(best)


@pytest.mark.needs_compiler
@needs_pairs
@pytest.mark.parametrize("exponents", [(120, 136), (60, 70), (0, 12)], ids=["usual", "sums below normal", "denormal"])
def test_the_instruction_is_what_its_record_says(exponents: tuple[int, int], tmp_path: Path) -> None:
    types = [vector_type(*kind) for kind in (("uint8", 64), ("int32", 16), ("uint32", 16), ("float32", 16))]
    pairs_of_row = "*(const u8x64 *)(b + 64 * i)"
    one = f"*(f32x16 *)(s + 16 * i) = {DOT_2.name}_x16(*(f32x16 *)(s + 16 * i), a[i], {pairs_of_row});"
    call = f"void run(float *s, const uint32_t *a, const char *b) {{ for (int i = 0; i < 64; i++) {one} }}"
    path = tmp_path / "one.c"
    path.write_text("\n".join(["#include <stdint.h>", *types, *DOT_2.texts(16), call]))
    told = [*compiler(), *flags(MACHINES[MACHINE]), "-shared", "-fPIC", str(path), "-o", str(tmp_path / "one.so")]
    subprocess.run(told, check=True, timeout=100)
    draw = np.random.default_rng(exponents[0])
    same, pairs = _halves(draw, 128, *exponents), _halves(draw, 2048, 120, 136)
    totals = _halves(draw, 1024, *exponents).astype(np.uint32) << 16 | draw.integers(0, 1 << 16, 1024).astype(np.uint32)
    totals = totals.view(np.float32)
    found = totals.copy()
    library = ctypes.CDLL(str(tmp_path / "one.so"))
    library.run(*(ctypes.c_void_p(array.ctypes.data) for array in (found, same, pairs)))
    for lane, total in enumerate(totals):
        row = lane // 16
        for second in (1, 0):  # the second product is added first
            total = _added(total, same[2 * row + second], pairs[2 * lane + second])
        assert np.array(total).view(np.uint32) == found[lane : lane + 1].view(np.uint32)[0], lane


def _takes_pairs(program: Program, machine: str) -> bool:
    return DOT_2.name in str(lower(program, MACHINES[machine]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_pairs_are_of_machines_that_add_them(name: str) -> None:
    assert _takes_pairs(PROGRAMS[name](), MACHINE)
    assert not _takes_pairs(PROGRAMS[name](), "avx512vnni")


@pytest.mark.needs_compiler
@needs_pairs
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_keep_to_their_bounds(name: str) -> None:
    program = PROGRAMS[name]()
    found = gl.compile(program, "none", machine=MACHINE)
    assert faults(found.loops, found.arena) == []
    checked = found.check()
    assert checked.ok, str(checked)
    (given,) = (t for t in program.tensors.values() if not t.constant)
    draw = np.random.default_rng(0)  # whole numbers, of which sums are exact
    whole = {n: draw.integers(-8, 9, t.dims).astype(t.dtype) for n, t in program.tensors.items()}
    constants = {n: array for n, array in whole.items() if n != given.name}
    (want,) = gl.evaluate([program.term], whole)
    got = gl.compile(replace(program, constants=constants), "none", machine=MACHINE)(whole[given.name])
    assert np.array_equal(np.asarray(got).view(np.uint16), np.asarray(want).reshape(got.shape).view(np.uint16))


@pytest.mark.needs_compiler
@needs_pairs
def test_numbers_below_the_normal_ones_are_within_the_bound() -> None:
    """They count as 0, which the bound of the loops knows: the checker sees it if it did not."""
    program = _product(16, 32, 16)
    small = np.full((32, 16), 2.0**-130).astype(program.constants["w"].dtype)
    program = replace(program, constants={"w": small})
    assert gl.compile(program, "none", machine=MACHINE).check().ok


def test_products_of_floats_are_as_they_were() -> None:
    b = gl.Builder("floats")
    x, w = b.input("x", (20, 64)), b.constant("w", (64, 48))
    assert not _takes_pairs(b.finish(b.matmul(x, w)).seeded_constants(0), MACHINE)
