"""Which dtypes a runtime computes in, and what stands in for the others.

The standard allows more than runtimes have. The tables below were found by running every pair of operator and dtype in
onnxruntime 1.19 and 1.31 on a CPU, on small and on extreme numbers; what stands in a row runs in both and gives the
right numbers. Sums and products along axes of integers are not exact, since they are
made in float64; 1.31 compares int64 wrongly where it looks for the least or the largest, and nowhere else.
"""

from __future__ import annotations

from glenside.ir.dtypes import COMPUTED, FLOATS, INTEGERS, RECORDS, STORED

_FLOATS = tuple(d for d in FLOATS if not RECORDS[d].wider)  # bfloat16 runtimes only move and cast
_CORE = (*_FLOATS, "int32", "int64")

# Operators of which the row is other than _CORE. Those that only move elements take everything, but for Pad.
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
    "ScatterND": ("float32", "float64", *INTEGERS),  # where updates are combined
    "Equal": (*_CORE, "bool"),
    "Div": (*_CORE, "uint64"),  # uint64 only in the later of the two: there is no simple detour
    "MatMul": (*_CORE, "uint32", "uint64"),
    "Neg": (*_CORE, "int8"),
    "Abs": (*_FLOATS, *INTEGERS),
    "Sign": ("float32", "float64", *(d for d in INTEGERS if d != "int64")),  # the sign of a float16 nan would be 0
    "Pad": tuple(d for d in COMPUTED if d not in ("int16", "uint16") and not RECORDS[d].wider),
}

# A dtype that holds all values of another. Sums, differences, products and equality are the same in int64 and uint64,
# order is not: exports that need it look for the least or the largest instead.
_CARRIERS = {
    **dict.fromkeys(("int8", "uint8", "int16", "uint16", "bool"), "int32"),
    **dict.fromkeys(("uint32", "uint64"), "int64"),
    **dict.fromkeys(("float16", "float64"), "float32"),
    **{record.name: "float32" if record.kind == "float" else "int32" for record in RECORDS.values() if record.wider},
}


def runs(op: str, dtype: str) -> bool:
    """Whether runtimes compute that operator in that dtype."""
    return dtype in _ROWS.get(op, _CORE)


def carrier(op: str, dtype: str) -> str | None:
    """The dtype in which to compute, the same when runtimes do; None when there is none."""
    wide = dtype if runs(op, dtype) else _CARRIERS.get(dtype, dtype)
    return wide if runs(op, wide) else None


def carried(op: str, dtype: str) -> str:
    """The dtype in which to compute, where there is one."""
    wide = carrier(op, dtype)
    assert wide is not None, f"{op} of {dtype} has a detour"
    return wide


_MOVES_BFLOAT16 = frozenset("Cast Concat Flatten Gather GatherND Identity Reshape Slice Squeeze Transpose".split())


def moved_in(op: str, dtype: str) -> str:
    """The dtype in which a standard operator that only moves elements takes them: the same where runtimes have that, as
    of every dtype that numpy has too.
    """
    if op in ("Cast", "BitCast") or dtype not in RECORDS or not RECORDS[dtype].wider:
        return dtype
    return dtype if dtype not in STORED and op in _MOVES_BFLOAT16 else RECORDS[dtype].wider
