"""Changes of dtype."""

from __future__ import annotations

import numpy as np

from glenside.ir.example import example
from glenside.ir.operator import Keeps, Kind, Operator, OperatorKind, fields, register, require
from glenside.ir.operators.requirements import require_dtype
from glenside.ir.types import AccessType


def _check_cast(a: AccessType, dtype: str) -> None:
    require_dtype("cast", dtype)


cast = register(
    Operator(
        name="cast",
        kind=OperatorKind.COMPUTE,
        fields=fields(a=Kind.TERM, dtype=Kind.DTYPE),
        check=_check_cast,
        result=lambda a, dtype: a.with_dtype(dtype),
        evaluate=lambda arithmetic, a, dtype: arithmetic.cast(a, dtype),
        shares=lambda a, dtype: a.dtype == dtype,
        operations=lambda a, dtype: a.size,
        doc="The same values in another dtype: floats are cut towards zero, integers wrap, bool is `not zero`.",
        keeps=Keeps.ZERO,
        examples=example("(cast (access (access-tensor x) 1) int8)", x="m n"),
    )
)


def _check_bitcast(a: AccessType, dtype: str) -> None:
    require_dtype("bitcast", dtype)
    width = np.dtype(a.dtype).itemsize
    require(np.dtype(dtype).itemsize == width, "bitcast", f"a dtype of {8 * width} bits, as {a} has", dtype)


bitcast = register(
    Operator(
        name="bitcast",
        kind=OperatorKind.COMPUTE,
        fields=fields(a=Kind.TERM, dtype=Kind.DTYPE),
        check=_check_bitcast,
        result=lambda a, dtype: a.with_dtype(dtype),
        evaluate=lambda arithmetic, a, dtype: arithmetic.reinterpret(a, dtype),
        shares=lambda a, dtype: dtype != "bool",
        operations=lambda a, dtype: a.size,
        doc="The same bits as another dtype of the same width; bool is `not zero`.",
        examples=example("(bitcast (access (access-tensor x) 1) uint32)", x="m n"),
    )
)
