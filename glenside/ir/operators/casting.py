"""Defines casts: to another dtype, to the same bits, and to fewer fractional bits."""

from __future__ import annotations

from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import same
from glenside.ir.operator import Keeps, Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_dtype, require_float
from glenside.ir.rounding import rounding_scratch
from glenside.ir.types import AccessType

cast = operator(
    name="cast",
    kind=OperatorKind.COMPUTE,
    fields=fields(a=Kind.TERM, dtype=Kind.DTYPE),
    check=lambda a, dtype: require_dtype("cast", dtype),
    result=lambda a, dtype: a.with_dtype(dtype),
    evaluate=lambda arithmetic, a, dtype: arithmetic.cast(a, dtype),
    shares=lambda a, dtype: a.dtype == dtype,
    scratch=lambda a, dtype: rounding_scratch(a.shape, a.dtype, dtype),
    operations=lambda a, dtype: a.size,
    adjoint=lambda terms, g, a, dtype: (terms.cast(g, a.access.dtype),),
    doc="The same values in another dtype. To an integer, floats are truncated towards zero and integers wrap. To a "
    "float, numbers are rounded to nearest, ties to even; beyond the largest they become inf, or nan in float8_e4m3fn, "
    "float8_e4m3fnuz and float8_e5m2fnuz, or the largest in float4_e2m1fn, which has neither. To bool: `not zero`.",
    keeps=Keeps.ZERO,
    examples=example("(cast (access (access-tensor x) 1) int8)", x="m n"),
)


def _check_bitcast(a: AccessType, dtype: str) -> None:
    require_dtype("bitcast", dtype)
    width = RECORDS[a.dtype].bits
    require(RECORDS[dtype].bits == width, "bitcast", f"a dtype of {width} bits, as {a} has", dtype)


bitcast = operator(
    name="bitcast",
    kind=OperatorKind.COMPUTE,
    fields=fields(a=Kind.TERM, dtype=Kind.DTYPE),
    check=_check_bitcast,
    result=lambda a, dtype: a.with_dtype(dtype),
    evaluate=lambda arithmetic, a, dtype: arithmetic.reinterpret(a, dtype),
    shares=lambda a, dtype: dtype != "bool",
    operations=lambda a, dtype: a.size,
    adjoint=lambda terms, g, a, dtype: (g if dtype == a.access.dtype else None,),
    doc="The same bits as another dtype of the same width; bool is `not zero`. Between dtypes the derivative is 0.",
    examples=example("(bitcast (access (access-tensor x) 1) uint32)", x="m n"),
)


# Fixed-point numbers of secure computation protocols: each is an integer times 2^-f.
truncate = operator(
    name="truncate",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM),
    check=lambda a: require_float("truncate", a),
    result=lambda a: a,
    index_map=lambda a: same(a.dims),
    evaluate=lambda arithmetic, a: arithmetic.truncate(a),
    adjoint=lambda terms, g, a: (g,),
    doc="a, with the fractional bits that it had before its last product. A product of fixed-point numbers of f "
    "fractional bits has 2 f of them; dropping f rounds by less than 2^-f. As a real number it equals a.",
    examples=example("(truncate (access (access-tensor x) 1))", x="m n"),
)
