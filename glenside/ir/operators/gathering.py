"""Elements picked by computed indices."""

from __future__ import annotations

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operator import Kind, Operator, fields, register, require
from glenside.ir.operators.requirements import require_axis
from glenside.ir.types import INTEGERS, AccessType


def _check_gather(a: AccessType, indices: AccessType, axis: int) -> None:
    require_axis("access-gather", axis, a.rank)
    require(indices.dtype in INTEGERS, "access-gather", "indices of an integer dtype", indices)


def _result_gather(a: AccessType, indices: AccessType, axis: int) -> AccessType:
    dims = a.dims.take(axis).append(indices.dims).append(a.dims.drop(axis + 1))
    return AccessType(dims, a.split + (indices.rank - 1 if axis < a.split else 0), a.dtype)


def _evaluate_gather(_: object, a: Array, indices: Array, axis: int) -> Array:
    size = a.shape[axis]
    if indices.size and not (0 <= indices.min() and indices.max() < size):
        raise BadInput(f"access-gather requires indices from 0 to {size - 1}, got {indices.min()} to {indices.max()}")
    return np.take(a, indices, axis)


access_gather = register(
    Operator(
        name="access-gather",
        fields=fields(a=Kind.TERM, indices=Kind.TERM, axis=Kind.INT),
        check=_check_gather,
        result=_result_gather,
        evaluate=_evaluate_gather,
        doc="The elements of one axis at computed indices: all axes of the indices stand in place of that axis, "
        "on its side of the split.",
        symbolic=False,  # on which side of the split the axis stands is a condition
    )
)
