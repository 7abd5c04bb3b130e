"""Changes of dtype."""

from __future__ import annotations

from glenside.ir.operator import Kind, Operator, fields, register
from glenside.ir.operators.requirements import require_dtype
from glenside.ir.types import AccessType


def _check_cast(a: AccessType, dtype: str) -> None:
    require_dtype("cast", dtype)


cast = register(
    Operator(
        name="cast",
        fields=fields(a=Kind.TERM, dtype=Kind.DTYPE),
        check=_check_cast,
        result=lambda a, dtype: a.with_dtype(dtype),
        evaluate=lambda arithmetic, a, dtype: arithmetic.cast(a, dtype),
        doc="The same values in another dtype: floats are cut towards zero, integers wrap, bool is `not zero`.",
        symbolic=False,  # the algebra names dtypes by literals, not by variables
        movement=False,
    )
)
