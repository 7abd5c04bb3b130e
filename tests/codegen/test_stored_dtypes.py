"""Tests storage-only dtypes in compiled code: every code is cast as in `ml_dtypes`, in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.builder import Builder
from glenside.builder.pointwise import cast, multiply
from glenside.codegen.processor.model import MACHINES, is_here
from glenside.ir.dtypes import COMPUTED, REALS, RECORDS, STORED, WHOLE, limits, name_of
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

pytestmark = pytest.mark.needs_compiler


def _codes(dtype: str) -> Array:
    return np.arange(1 << RECORDS[dtype].bits, dtype=np.uint8).view(dtype)


def _between(dtype: str) -> Array:
    """Returns the values of a storage-only dtype, midpoints between neighbours, numbers next to midpoints, and
    overflows.
    """
    values = _codes(dtype).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    halves = (values[1:] + values[:-1]) / 2
    ends = np.array([values[-1], values[-1] + (values[-1] - values[-2]) / 2])
    beside = [np.nextafter(halves, end) for end in (-1e9, 1e9)]
    return np.concatenate([values, halves, *beside, ends, -ends, 2 * ends, [-0.0, 1e-30, -1e-30]])


def _input(name: str, array: Array) -> Term:
    return build("access", build("access-tensor", Tensor(name, Dims(array.shape), name_of(array.dtype))), 1)


def _same(want: Array, got: Array) -> bool:
    """To the bit, but for which nan it is."""
    assert want.dtype == got.dtype
    width = want.dtype.itemsize
    same = want.view(f"u{width}") == got.view(f"u{width}")
    if name_of(want.dtype) in REALS:
        same |= np.isnan(want.astype(np.float64)) & np.isnan(got.astype(np.float64))
    return bool(same.all())


def _agrees(terms: list[Term], values: dict[str, Array], machine: str) -> gl.Function:
    compiled = gl.compile(Program(build("construct-tuple", *terms)), "none", machine=machine)
    found = compiled(*(values[buffer.name] for buffer in compiled.inputs))
    with np.errstate(all="ignore"):
        want = gl.evaluate(terms, values)
    for term, a, b in zip(terms, want, found, strict=True):
        assert _same(a, b), term
    return compiled


@pytest.mark.parametrize("machine", quick(["native", "plain"], 0))
@pytest.mark.parametrize("dtype", quick(STORED, 0, 2, 4, 6, 8))
def test_each_code_and_what_is_between_two(dtype: str, machine: str) -> None:
    codes = _codes(dtype)
    whole = np.isfinite(codes.astype(np.float32))  # which integer is no number is nowhere said
    values = {"all": codes, "numbers": codes[whole], "reals": _between(dtype)}
    values["floats"] = values["reals"].astype(np.float32)
    values["bytes"] = np.arange(-128, 128).astype(np.int8)
    values["wide"] = np.arange(-300, 300).astype(np.int64)
    all_codes, numbers = _input("all", codes), _input("numbers", values["numbers"])
    terms = [cast(all_codes, to) for to in (*COMPUTED, dtype) if to in REALS]
    terms += [cast(numbers, to) for to in COMPUTED if to in WHOLE or to == "bool"]
    terms += [cast(_input(name, values[name]), dtype) for name in ("reals", "floats", "bytes", "wide")]
    _agrees(terms, values, machine)


@pytest.mark.parametrize("dtype", quick(STORED, 0, 3, 4, 5, 8))
def test_moved_padded_and_checked(dtype: str) -> None:
    codes = _codes(dtype)[:4]
    x = _input("x", codes)
    moved = build("access-pad", x, "zero-padding", 0, 1, 2)
    compiled = _agrees([moved, cast(moved, "float32"), cast(cast(x, "float32"), dtype)], {"x": codes}, "native")
    assert compiled.check().ok


def test_one_stored_dtype_becomes_another() -> None:
    for dtype in STORED:
        codes = _codes(dtype)
        codes = codes[np.isfinite(codes.astype(np.float32))]
        low, high = limits("int2")
        kept = codes[(codes.astype(np.float32) >= low) & (codes.astype(np.float32) <= high)]
        terms = [cast(_input("codes", codes), to) for to in STORED if to in REALS]
        terms += [cast(_input("kept", kept), to) for to in STORED if to in WHOLE]
        _agrees(terms, {"codes": codes, "kept": kept}, "native")


@pytest.mark.parametrize("machine", ["plain", *(name for name, own in MACHINES.items() if is_here(own))])
def test_floats_of_16_bits_are_cast_as_numpy_casts_them(machine: str) -> None:
    """All values of float16 and bfloat16, and floats around the middle of each two neighbours, in vectors and alone."""
    b, casts, given, want = gl.Builder("p"), [], [], []
    for dtype in ("float16", "bfloat16"):
        every = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(-1, 64)
        with np.errstate(all="ignore"):
            values = every.astype(np.float32)
            whole = np.sort(values[np.isfinite(values)])
            middles = ((whole[1:].astype(np.float64) + whole[:-1]) / 2).astype(np.float32)
            ends = np.array([np.inf, -np.inf, np.nan, 3e38, -1e-45, 65520, 65519.996], np.float32)
            floats = np.concatenate([middles, np.nextafter(middles, 9e9), np.nextafter(middles, -9e9), whole, ends])
            floats = np.resize(floats.astype(np.float32), (-(-floats.size // 63), 63))
            for array, wanted in ((every, "float32"), (floats, dtype)):
                x = b.input(f"x{len(given)}", array.shape, array.dtype.name)
                casts.append(cast(x, wanted))
                given.append(array)
                want.append(array.astype(wanted))
    f = gl.compile(b.finish(build("construct-tuple", *casts)), "none", machine=machine)
    for found, other in zip(f(*given), want, strict=True):
        np.testing.assert_array_equal(found.astype(np.float32), other.astype(np.float32))


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
@pytest.mark.parametrize("columns", [4, 8])
def test_each_stored_element_is_cast_for_all_lanes(dtype: str, columns: int) -> None:
    """All elements of a dtype times a vector, which is what products do with a narrow operand of many rows."""
    bits = np.arange(1 << RECORDS[dtype].bits, dtype=np.uint16 if dtype == "bfloat16" else np.uint8)
    rows = bits.view(RECORDS[dtype].numpy)
    b = Builder()
    x, y = b.input("x", (rows.size, 1), dtype), b.input("y", (1, columns))
    f = gl.compile(b.finish(multiply(cast(x, "float32"), y)), "none")
    assert f"float32_of_each_{dtype}_x" in f.source
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = rows.astype(np.float32)[:, None] * np.ones((1, columns), np.float32)
    np.testing.assert_array_equal(f(rows[:, None], np.ones((1, columns), np.float32)), wanted)
