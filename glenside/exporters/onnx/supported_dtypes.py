"""Lists the dtypes in which runtimes compute each operator, and the dtypes that replace others.

The standard allows more dtypes than runtimes support. The tables below were measured by running every pair of operator
and dtype in onnxruntime 1.19 and 1.31 on a CPU, on small and on extreme numbers; the dtypes of a row run in both and
give correct results. Sums and products of integers along axes are inexact, since they are computed in float64; 1.31
compares int64 wrongly in searches for the minimum or maximum, and nowhere else.
"""

from __future__ import annotations

from glenside.ir.dtypes import COMPUTED, FLOATS, INTEGERS, RECORDS, STORED

_FLOATS = tuple(d for d in FLOATS if not RECORDS[d].wider)  # runtimes only move and cast bfloat16
_CORE = (*_FLOATS, "int32", "int64")

# Operators whose row differs from _CORE. Operators that only move elements take all dtypes, except Pad.
_ROWS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Max", "Min"), (*_FLOATS, "int32", "uint32", "uint64")),
    **dict.fromkeys(("Sqrt", "Exp", "Log", "Tanh", "Sigmoid", "Floor", "Ceil", "Round", "Relu"), _FLOATS),
    **dict.fromkeys(("Softmax", "LogSoftmax", "ReduceMean", "ReduceSum", "Pow"), _FLOATS),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), (*_FLOATS, "int8", "uint8", "int32")),
    **dict.fromkeys(("ArgMax", "ArgMin"), (*_FLOATS, "int32")),
    **dict.fromkeys(("Conv", "AveragePool", "ReduceProd", "Erf"), ("float16", "float32")),
    **dict.fromkeys(("ConvTranspose", "HardSwish", "HardSigmoid"), ("float32",)),
    "MaxPool": (*_FLOATS, "int8", "uint8"),
    **dict.fromkeys(("And", "Or", "Not", "Xor"), ("bool",)),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), INTEGERS),
    "Sin": _FLOATS,
    **dict.fromkeys("Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh".split(), ("float16", "float32")),
    "Mod": (*_FLOATS, *INTEGERS),
    "ScatterND": ("float32", "float64", *INTEGERS),  # if updates are combined
    "Equal": (*_CORE, "bool"),
    "Div": (*_CORE, "uint64"),  # uint64 only in the later of the two: there is no simple replacement
    "MatMul": (*_CORE, "uint32", "uint64"),
    "Neg": (*_CORE, "int8"),
    "Abs": (*_FLOATS, *INTEGERS),
    "Sign": ("float32", "float64", *(d for d in INTEGERS if d != "int64")),  # the sign of a float16 nan would be 0
    "Pad": tuple(d for d in COMPUTED if d not in ("int16", "uint16") and not RECORDS[d].wider),
}

# A dtype that holds all values of another. Sums, differences, products and equality are the same in int64 and uint64,
# order is not: exports that need order use the minimum or the maximum instead. Of float64, only
# erf is computed in float32.
_CARRIERS = {
    **dict.fromkeys(("int8", "uint8", "int16", "uint16", "bool"), "int32"),
    **dict.fromkeys(("uint32", "uint64"), "int64"),
    **dict.fromkeys(("float16", "float64"), "float32"),
    **{record.name: "float32" if record.kind == "float" else "int32" for record in RECORDS.values() if record.wider},
}


def runs(op: str, dtype: str) -> bool:
    """True if runtimes compute that operator in that dtype."""
    return dtype in _ROWS.get(op, _CORE)


def supported_dtype(op: str, dtype: str) -> str | None:
    """Returns the dtype in which to compute: the same if runtimes support it, else its carrier, else None."""
    wide = dtype if runs(op, dtype) else _CARRIERS.get(dtype, dtype)
    return wide if runs(op, wide) else None


def required_dtype(op: str, dtype: str) -> str:
    """Returns the dtype in which to compute, which must exist."""
    wide = supported_dtype(op, dtype)
    assert wide is not None, f"{op} of {dtype} has an export of its own"
    return wide


_MOVES_BFLOAT16 = frozenset("Cast Concat Flatten Gather GatherND Identity Reshape Slice Squeeze Transpose".split())


def moved_in(op: str, dtype: str) -> str:
    """Returns the dtype in which a standard operator moves elements: the same if runtimes support it.

    They support all dtypes that numpy has too.
    """
    if op in ("Cast", "BitCast") or dtype not in RECORDS or not RECORDS[dtype].wider:
        return dtype
    return dtype if dtype not in STORED and op in _MOVES_BFLOAT16 else RECORDS[dtype].wider
