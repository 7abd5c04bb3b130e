"""Defines the dtypes of elements, one record each, from which every list of dtypes, widths and limits derives.

A dtype is either computed in, or only stored: language models use floats and integers of 8, 4 and 2 bits that are
moved, and cast to a wider dtype for sums and products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """One dtype. Its name is numpy's, including the names of `ml_dtypes`, which is imported here; JAX uses the same.

    kind     "float", "integer" or "bool"
    bits     of one element in an ONNX file, which packs elements of less than a byte; in memory each has whole bytes
    wider    numpy's own dtype that holds all values, if this is not one of numpy's: casts there and back lose
             nothing, and operators compute there and round once
    sums     the dtype in which dot-product, reduce-sum and systolic-array accumulate, if another
    stored   only moved and cast, never computed in
    opset    the first version of ONNX whose operators that move and cast take it
    onnx     its name in TensorProto.DataType
    """

    name: str
    kind: str
    bits: int
    wider: str = ""
    sums: str = ""
    stored: bool = False
    opset: int = 13
    onnx: str = ""

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of arrays in memory."""
        return np.dtype(self.name)

    @property
    def signed(self) -> bool:
        """True if an integer can be negative."""
        return not self.name.startswith("u")


def _stored_float(name: str, opset: int, onnx: str, bits: int = 8) -> DType:
    return DType(name, "float", bits, wider="float32", stored=True, opset=opset, onnx=onnx)


def _stored_integer(name: str, bits: int, opset: int) -> DType:
    wider = "uint8" if name.startswith("u") else "int8"
    return DType(name, "integer", bits, wider=wider, stored=True, opset=opset, onnx=name.upper())


RECORDS: dict[str, DType] = {
    record.name: record
    for record in (
        DType("float16", "float", 16, onnx="FLOAT16"),
        DType("bfloat16", "float", 16, wider="float32", onnx="BFLOAT16"),
        DType("float32", "float", 32, onnx="FLOAT"),
        DType("float64", "float", 64, onnx="DOUBLE"),
        DType("int8", "integer", 8, sums="int32", onnx="INT8"),
        DType("int16", "integer", 16, sums="int32", onnx="INT16"),
        DType("int32", "integer", 32, onnx="INT32"),
        DType("int64", "integer", 64, onnx="INT64"),
        DType("uint8", "integer", 8, sums="int32", onnx="UINT8"),
        DType("uint16", "integer", 16, onnx="UINT16"),
        DType("uint32", "integer", 32, onnx="UINT32"),
        DType("uint64", "integer", 64, onnx="UINT64"),
        DType("bool", "bool", 8, onnx="BOOL"),
        _stored_float("float8_e4m3fn", 19, "FLOAT8E4M3FN"),
        _stored_float("float8_e4m3fnuz", 19, "FLOAT8E4M3FNUZ"),
        _stored_float("float8_e5m2", 19, "FLOAT8E5M2"),
        _stored_float("float8_e5m2fnuz", 19, "FLOAT8E5M2FNUZ"),
        _stored_float("float4_e2m1fn", 23, "FLOAT4E2M1", bits=4),
        _stored_integer("int4", 4, 21),
        _stored_integer("uint4", 4, 21),
        _stored_integer("int2", 2, 25),
        _stored_integer("uint2", 2, 25),
    )
}

DTYPES = tuple(RECORDS)
FLOATS = tuple(r.name for r in RECORDS.values() if r.kind == "float" and not r.stored)
INTEGERS = tuple(r.name for r in RECORDS.values() if r.kind == "integer" and not r.stored)
STORED = tuple(r.name for r in RECORDS.values() if r.stored)
COMPUTED = tuple(name for name in DTYPES if name not in STORED)
HALVES = tuple(r.name for r in RECORDS.values() if r.kind == "float" and r.bits == 16)
"""Floats whose sums should be accumulated in float32."""
REALS = tuple(r.name for r in RECORDS.values() if r.kind == "float")
"""All floats, computed in or only stored."""
WHOLE = tuple(r.name for r in RECORDS.values() if r.kind == "integer")
"""All integers, computed in or only stored."""

# Accumulating narrow integers widens them (operators.md, "Dtypes"); every other dtype is kept.
WIDENED = {r.name: r.sums for r in RECORDS.values() if r.sums}


def widen(dtype: str) -> str:
    """Returns the dtype in which dot-product, reduce-sum and systolic-array accumulate."""
    return WIDENED.get(dtype, dtype)


def wider(dtype: str) -> str:
    """Returns numpy's own dtype that holds all values of `dtype`, which may be `dtype` itself."""
    return RECORDS[dtype].wider or dtype


@cache
def name_of(dtype: np.dtype[Any]) -> str:
    """Returns numpy's name of a dtype; memoized, since numpy builds it anew each time."""
    return dtype.name


def is_float(dtype: np.dtype[Any]) -> bool:
    """True if arrays of a numpy dtype hold floats, including floats that numpy itself lacks."""
    return (dtype.kind == "f" or dtype.kind == "V") and name_of(dtype) in REALS


def is_integer(dtype: np.dtype[Any]) -> bool:
    """True if arrays of a numpy dtype hold integers; bool does not count."""
    return dtype.kind in "iu" or (dtype.kind == "V" and dtype.name in WHOLE)


def is_signed(dtype: np.dtype[Any]) -> bool:
    """True if arrays of a numpy dtype hold signed integers."""
    return is_integer(dtype) and RECORDS[dtype.name].signed


def limits(dtype: str) -> tuple[int, int]:
    """Returns the least and the largest value of an integer dtype, or of bool."""
    record = RECORDS[dtype]
    if record.kind == "bool":
        return 0, 1
    return (-(1 << record.bits - 1), (1 << record.bits - 1) - 1) if record.signed else (0, (1 << record.bits) - 1)


def all_bits(dtype: str) -> int:
    """Returns the value of an integer dtype all of whose bits are 1."""
    return -1 if RECORDS[dtype].signed else limits(dtype)[1]


_finfo: Any = ml_dtypes.finfo  # works for numpy's floats too; ml_dtypes has no type annotations


def largest_float(dtype: str) -> float:
    """Returns the largest finite value of a float dtype."""
    return float(_finfo(dtype).max)


def fraction_bits(dtype: str) -> int:
    """Returns the number of stored fraction bits of a float dtype."""
    return int(_finfo(dtype).nmant)


def least_exponent(dtype: str) -> int:
    """Returns the exponent of the smallest normal float."""
    return int(_finfo(dtype).minexp)


def bits_dtype(dtype: str) -> np.dtype[Any]:
    """Returns the unsigned integer dtype of the same width, in which files store the bits of a dtype."""
    return np.dtype(f"u{RECORDS[dtype].numpy.itemsize}")
