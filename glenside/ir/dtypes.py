"""The dtypes of elements, one record each: every list of dtypes, width and limit in the package is made of them.

A dtype is computed in, or it is only stored: language models come in floats and integers of 8, 4 and 2 bits whose
sums and products nobody wants in that dtype. Those are moved, and cast to what they are computed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """One dtype. Its name is numpy's, which has those of `ml_dtypes` since that is imported here, and JAX's.

    kind     "float", "integer" or "bool"
    bits     of one element in an ONNX file, which packs those of less than a byte; in memory each has bytes of its own
    wider    the dtype of numpy's own that holds all values, where this is none of those: casts there and back lose
             nothing, and what is computed is computed there and rounded once
    sums     the dtype in which dot-product, reduce-sum and systolic-array accumulate, when it is another
    stored   only moved and cast, never computed in
    opset    the first version of ONNX in which operators that move and cast take it
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

    @property
    def numpy(self) -> np.dtype[Any]:
        """Of arrays in memory."""
        return np.dtype(self.name)

    @property
    def signed(self) -> bool:
        """Whether an integer may be below 0."""
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
"""Floats of which sums are to be made in float32."""
REALS = tuple(r.name for r in RECORDS.values() if r.kind == "float")
"""Floats that are computed in, and those that are stored."""
WHOLE = tuple(r.name for r in RECORDS.values() if r.kind == "integer")
"""Integers that are computed in, and those that are stored."""

# Accumulating narrow integers widens them (operators.md, "Dtypes"); every other dtype is kept.
WIDENED = {r.name: r.sums for r in RECORDS.values() if r.sums}


def widen(dtype: str) -> str:
    """The dtype in which dot-product, reduce-sum and systolic-array accumulate."""
    return WIDENED.get(dtype, dtype)


def wider(dtype: str) -> str:
    """The dtype of numpy's own that holds all values of one: that one, when it is numpy's."""
    return RECORDS[dtype].wider or dtype


@cache
def name_of(dtype: np.dtype[Any]) -> str:
    """What numpy calls a dtype, which it spells anew each time."""
    return dtype.name


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of a numpy dtype have floats: those that numpy does not know have no kind there."""
    return (dtype.kind == "f" or dtype.kind == "V") and name_of(dtype) in REALS


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of a numpy dtype have integers, which bool is none of."""
    return dtype.kind in "iu" or (dtype.kind == "V" and dtype.name in WHOLE)


def is_signed(dtype: np.dtype[Any]) -> bool:
    """Whether they have integers that may be below 0."""
    return is_integer(dtype) and RECORDS[dtype.name].signed


def limits(dtype: str) -> tuple[int, int]:
    """The least and the largest value of an integer dtype, or of bool."""
    record = RECORDS[dtype]
    if record.kind == "bool":
        return 0, 1
    return (-(1 << record.bits - 1), (1 << record.bits - 1) - 1) if record.signed else (0, (1 << record.bits) - 1)


_finfo: Any = ml_dtypes.finfo  # of numpy's floats too; it has no types of its own


def largest_float(dtype: str) -> float:
    """The largest finite value of a float dtype."""
    return float(_finfo(dtype).max)


def fraction_bits(dtype: str) -> int:
    """How many bits of a float's fraction are kept."""
    return int(_finfo(dtype).nmant)


def least_exponent(dtype: str) -> int:
    """The exponent of the smallest float of full precision."""
    return int(_finfo(dtype).minexp)


def bits_dtype(dtype: str) -> np.dtype[Any]:
    """The unsigned integers of the same width in memory, as which the bits of a dtype are kept in files."""
    return np.dtype(f"u{RECORDS[dtype].numpy.itemsize}")
