"""An operator from outside the package: one record, in one file."""

from __future__ import annotations

import numpy as np

from glenside.ir.index_map import along, mapped
from glenside.ir.operator import Kind, OperatorKind, example, fields, operator, require
from glenside.ir.types import AccessType


def _check(a: AccessType, axis: int, n: int) -> None:
    require(0 <= axis < a.rank, "access-roll", f"0 <= axis < {a.rank}", axis)
    require(0 <= n <= a.dims[axis], "access-roll", f"0 <= n <= {a.dims[axis]}", n)


access_roll = operator(
    name="access-roll",
    kind=OperatorKind.MOVEMENT,
    fields=fields(a=Kind.TERM, axis=Kind.INT, n=Kind.INT),
    check=_check,
    result=lambda a, axis, n: a,
    index_map=lambda a, axis, n: mapped(a.dims, along(a.dims, axis, lambda i: (i + (a.dims[axis] - n)) % a.dims[axis])),
    evaluate=lambda _, a, axis, n: np.roll(a, n, axis),
    adjoint=lambda terms, g, a, axis, n: (access_roll(g, axis, a.access.dims[axis] - n),),
    doc="The elements of one axis, n places further on; what leaves at the end comes in at the front.",
    examples=example("(access-roll (access (access-tensor x) 1) 1 2)", x="m 5 n"),
)
