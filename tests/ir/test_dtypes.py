"""Tests dtype records against ml_dtypes, ONNX and exact fractions; storage-only dtypes are only moved and cast."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx_exports import leaf

import glenside as gl
from glenside.builder import Builder
from glenside.ir.dtypes import (
    COMPUTED,
    DTYPES,
    FLOATS,
    INTEGERS,
    REALS,
    RECORDS,
    STORED,
    WHOLE,
    bits_dtype,
    is_float,
    is_integer,
    is_signed,
    largest_float,
    limits,
    wider,
)
from glenside.ir.errors import BadInput, TypeMismatch
from glenside.ir.files import array_outlines, read_array, read_arrays, write_array, write_arrays
from glenside.ir.operand import Array
from glenside.ir.packing import packed, packed_bytes, unpacked
from glenside.ir.program import Program
from glenside.ir.rounding import rounded
from glenside.ir.term import build
from glenside.ir.text import parse, print_program

pytestmark = pytest.mark.filterwarnings("ignore:invalid value")  # what ml_dtypes says where it meets a nan
NARROW = [dtype for dtype in REALS if RECORDS[dtype].wider]


def codes(dtype: str) -> Array:
    """Returns every value that a dtype of at most 16 bits has."""
    return np.arange(1 << RECORDS[dtype].bits).astype(bits_dtype(dtype)).view(dtype)


def test_each_dtype_is_in_its_lists() -> None:
    assert set(FLOATS) | set(INTEGERS) | {"bool"} == set(COMPUTED)
    assert set(REALS) | set(WHOLE) | {"bool"} == set(DTYPES)
    assert set(COMPUTED) | set(STORED) == set(DTYPES)
    assert len({record.onnx for record in RECORDS.values()}) == len(DTYPES)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_record_says_what_numpy_and_onnx_do(dtype: str) -> None:
    onnx = pytest.importorskip("onnx")
    known = RECORDS[dtype].numpy
    assert known.name == dtype
    assert RECORDS[dtype].bits <= 8 * known.itemsize
    assert onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(RECORDS[dtype].onnx)) == known
    assert (is_float(known), is_integer(known)) == (dtype in REALS, dtype in WHOLE)
    if dtype in WHOLE:
        bounds = ml_dtypes.iinfo(dtype)
        assert limits(dtype) == (bounds.min, bounds.max)
        assert is_signed(known) == (bounds.min < 0)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if RECORDS[dtype].wider])
def test_a_wider_dtype_holds_every_value(dtype: str) -> None:
    every = codes(dtype)
    again = every.astype(wider(dtype)).astype(dtype)
    nan = np.isnan(every.astype(float))
    assert (again[~nan].view(bits_dtype(dtype)) & 255 == every[~nan].view(bits_dtype(dtype)) & 255).all()
    assert np.isnan(again.astype(float))[nan].all()


# Rounding, against exact fractions


def nearest(x: Fraction, dtype: str, values: Array) -> float:
    """Returns the nearest of the finite values; of two the one whose last bit is 0."""
    at = int(np.searchsorted(values, float(x)))
    around = values[max(at - 2, 0) : at + 2].tolist()
    last = {v: int(np.asarray(v).astype(dtype).view(bits_dtype(dtype))) & 1 for v in around}
    return min(around, key=lambda v: (abs(Fraction(v) - x), last[v]))


@pytest.mark.parametrize("dtype", NARROW)
def test_numbers_are_rounded_once(dtype: str) -> None:
    every = codes(dtype).astype(np.float64)
    values = np.unique(every[np.isfinite(every)])
    between = np.add(values[1:], values[:-1]) / 2
    tried = np.concatenate([values, between, np.nextafter(between, np.inf), np.nextafter(between, -np.inf)])
    tried = tried[:: max(1, len(tried) // 4001)]
    got = rounded(tried, dtype).astype(np.float64).tolist()
    assert got == [nearest(Fraction(x), dtype, values) for x in tried.tolist()]


def test_integers_are_rounded_once() -> None:
    """Where float64 and float32 on the way would each round a little up."""
    large = [2**24 + 2**16 + 1, 2**62 + 2**54 + 1, -(2**62) - 2**54 - 1, 2**62 + 2**54 - 1, 2**62 + 2**54, -(2**63)]
    wanted = [2**24 + 2**17, 2**62 + 2**55, -(2**62) - 2**55, 2**62, 2**62, -(2**63)]
    assert rounded(np.array(large), "bfloat16").astype(float).tolist() == list(map(float, wanted))
    assert rounded(np.array([2**64 - 1], np.uint64), "bfloat16").astype(float).tolist() == [2.0**64]


BEYOND = {
    "bfloat16": (np.inf, np.nan),
    "float8_e4m3fn": (np.nan, np.nan),
    "float8_e4m3fnuz": (np.nan, np.nan),
    "float8_e5m2": (np.inf, np.nan),
    "float8_e5m2fnuz": (np.nan, np.nan),
    "float4_e2m1fn": (6.0, 0.0),
}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("given", ["float16", "float32", "float64"])
def test_what_is_beyond_the_largest(dtype: str, given: str) -> None:
    beyond, nan = BEYOND[dtype]
    with np.errstate(over="ignore"):
        x = np.array([largest_float(dtype), np.inf, -np.inf, np.nan], given)
    found = rounded(x, dtype).astype(np.float64)
    kept = largest_float(dtype) if np.isfinite(x[0]) else np.inf
    np.testing.assert_array_equal(found, [kept, beyond, -beyond, nan])


def test_there_is_no_negative_zero_in_fnuz() -> None:
    zero = np.array([-0.0], np.float32)
    signs = {dtype: bool(np.signbit(rounded(zero, dtype).astype(np.float32))[0]) for dtype in NARROW}
    assert signs == {dtype: not dtype.endswith("fnuz") for dtype in NARROW}


def test_casts_to_integers_cut_and_wrap() -> None:
    x = np.array([1.9, -1.9, 2.5, 7, 8, -9, 17], np.float32)
    assert rounded(x, "int4").tolist() == [1, -1, 2, 7, -8, 7, 1]
    assert rounded(x, "uint4").tolist() == [1, 15, 2, 7, 8, 7, 1]
    assert rounded(np.array([200, -3]), "int2").tolist() == [0, 1]
    assert rounded(rounded(np.array([7, -8]), "int4"), "uint2").tolist() == [3, 0]
    assert rounded(np.array([0, 2, -1]).astype("int4"), "bool").tolist() == [False, True, True]


# What is only stored


@pytest.mark.parametrize("dtype", STORED)
def test_arithmetic_of_what_is_only_stored_is_refused_with_what_would_be_right(dtype: str) -> None:
    whole = leaf("x", (3, 4), dtype)
    x = build("access", whole, 1)
    wanted = f"requires a dtype that is computed in, such as {wider(dtype)}, to which {dtype} is cast, got"
    for kind in ("relu", "reduce-sum", "reduce-max", "softmax", "argmax", "elementwise-add", "(compare eq)", "select"):
        with pytest.raises(TypeMismatch, match=re.escape(wanted)):
            build("compute", kind, x)
    pair = build("access-product", x, x, 0)
    for made in (
        lambda: build("compute", "dot-product", pair),
        lambda: build("linear-map", x, 1, 1, "1 1 1 1"),
        lambda: build("access-pad", x, "min-padding", 1, 1, 0),
        lambda: build("access-overlap-add", build("access", leaf("y", (3, 2, 2), dtype), 2), (4,), (1,)),
        lambda: build("access-scatter-nd", whole, leaf("i", (1, 1), "int64"), leaf("y", (1, 4), dtype), 0, "max"),
    ):
        with pytest.raises(TypeMismatch, match=re.escape(wanted)):
            made()


def test_a_stored_float_holds_exact_numbers_alone() -> None:
    assert build("full", (2,), "448", "float8_e4m3fn").access.dtype == "float8_e4m3fn"
    for value, dtype in (("1/3", "float8_e4m3fn"), ("449", "float8_e4m3fn"), ("7", "float4_e2m1fn"), ("8", "int4")):
        with pytest.raises(TypeMismatch, match=f"a value that {dtype} can hold"):
            build("full", (2,), value, dtype)


@pytest.mark.parametrize("dtype", STORED)
def test_elements_are_moved_as_they_are(dtype: str) -> None:
    values = codes(dtype)
    values = np.resize(values, (6, 4)) if values.size < 24 else values.reshape(-1, 4)
    x = leaf("x", values.shape, dtype)
    n = values.shape[0]
    made = [
        build("access-transpose", x, (1, 0)),
        build("access-windows", x, (2, 2), (1, 2)),
        build("access-concatenate", build("access-flip", x, 1), x, 1),
        build("access-dilate", build("access-pad", x, "zero-padding", 1, 1, 2), 1, 1),
        build("access-gather", x, leaf("i", (3,), "int64"), 0),
        build("access-broadcast", build("access-slice", x, 0, 1, 2), ((), (3, 4))),
        build("access-reshape", x, ((), (2, n * 2))),
        build("bitcast", x, "uint8" if RECORDS[dtype].bits == 8 else f"uint{RECORDS[dtype].bits}"),
    ]
    given = {"x": values, "i": np.array([2, 0, -1])}
    bits = {"x": values.view(np.uint8), "i": given["i"]}
    whole = gl.parse(print_program(Program(build("construct-tuple", *made[:-1]))).replace(dtype, "uint8")).term
    for got, want in zip(gl.evaluate([*made[:-1]], given), gl.evaluate([whole], bits)[0], strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.view(np.uint8), want)
    (read,) = gl.evaluate([made[-1]], given)
    np.testing.assert_array_equal(read.view(np.uint8), values.view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_program_comes_back_from_its_text(dtype: str) -> None:
    term = build("access-transpose", build("cast", leaf("x", (2, 3)), dtype), (1, 0))
    assert parse(print_program(Program(term))).term == term


# Files


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if RECORDS[dtype].wider])
def test_bits_in_files_say_what_they_are(tmp_path: Path, dtype: str) -> None:
    array = np.resize(codes(dtype), (3, 4))
    write_arrays(tmp_path / "a.npz", {"w": array, "number": array[0, 1]})
    with np.load(tmp_path / "a.npz") as plain:
        assert plain["w"].dtype.names == (dtype,)
        assert plain["w"].dtype.itemsize == array.dtype.itemsize
    again = read_arrays(tmp_path / "a.npz")
    assert again["w"].dtype == array_outlines(tmp_path / "a.npz")["w"].dtype == dtype
    np.testing.assert_array_equal(again["w"].view(bits_dtype(dtype)), array.view(bits_dtype(dtype)))
    assert again["number"].shape == ()
    b = Builder()
    program = b.finish(build("cast", b.constant("w", (3, 4), dtype, value=array), "float32"))
    gl.save(program, tmp_path / "p.glenside")
    loaded = gl.load(tmp_path / "p.glenside", weights=tmp_path / "p.npz")
    assert loaded.constants["w"].dtype == dtype
    np.testing.assert_array_equal(*(gl.evaluate([p.term], p.constants)[0] for p in (program, loaded)))


def test_arrays_that_do_not_say_what_they_are_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3, "bfloat16"))
    with pytest.raises(BadInput, match=re.escape('array.view([("bfloat16", "u2")])')):
        read_array(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.zeros(3, [("bfloat16", "u4")]))
    with pytest.raises(BadInput, match="elements of bfloat16 are stored as uint16, but it has uint32"):
        read_array(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.zeros(3, [("a", "u2"), ("b", "u2")]))
    with pytest.raises(BadInput, match="cannot name"):
        read_array(tmp_path / "a.npy")
    with pytest.raises(BadInput, match="none of"):
        write_array(tmp_path / "a.npy", np.zeros(3, "float8_e8m0fnu"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_elements_are_packed_as_onnx_does(dtype: str, count: int) -> None:
    onnx = pytest.importorskip("onnx")
    array = np.resize(codes(dtype) if RECORDS[dtype].wider else np.array([1, 0, 1], dtype), (count, 1))
    data = packed(array)
    assert len(data) == packed_bytes(array.shape, dtype)
    assert data.tobytes() == onnx.numpy_helper.from_array(array).raw_data
    again = unpacked(data, array.shape, dtype)
    assert again.dtype == dtype
    np.testing.assert_array_equal(again.view(np.uint8), array.view(np.uint8))
