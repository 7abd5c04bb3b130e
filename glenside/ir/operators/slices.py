"""Defines slices and concatenations along one axis."""

from __future__ import annotations

import numpy as np

from glenside.ir.blockwise import store
from glenside.ir.index_map import IndexMap, Piece, Within, along, axes_of, mapped
from glenside.ir.operand import Array
from glenside.ir.operator import Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_axis
from glenside.ir.types import AccessType


def _check_slice(a: AccessType, axis: int, lo: int, hi: int) -> None:
    require_axis("access-slice", axis, a.rank)
    size = a.dims[axis]
    require(0 <= lo <= hi <= size, "access-slice", f"0 <= lo <= hi <= {size} on axis {axis}", f"lo {lo} and hi {hi}")


def _map_slice(a: AccessType, axis: int, lo: int, hi: int) -> IndexMap:
    dims = a.dims.set(axis, hi - lo)
    return mapped(dims, along(dims, axis, lambda i: i + lo))


access_slice = operator(
    name="access-slice",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM, axis=Kind.INT, lo=Kind.INT, hi=Kind.INT),
    check=_check_slice,
    result=lambda a, axis, lo, hi: a.with_dims(a.dims.set(axis, hi - lo)),
    index_map=_map_slice,
    evaluate=lambda _, a, axis, lo, hi: a[(slice(None),) * axis + (slice(lo, hi),)],
    places=lambda out, a, axis, lo, hi: [out if hi - lo == a.dims[axis] else None],
    adjoint=lambda terms, g, a, axis, lo, hi: (terms.pad(g, axis, lo, a.access.dims[axis] - hi),),
    doc="Elements lo to hi - 1 of one axis: that dim becomes hi - lo.",
    examples=example("(access-slice (access (access-tensor x) 1) 1 2 7)", x="m 9"),
)


def _check_concatenate(a: AccessType, b: AccessType, axis: int) -> None:
    require_axis("access-concatenate", axis, a.rank)
    agree = a.rank == b.rank and (a.split, a.dtype, a.dims.remove(axis)) == (b.split, b.dtype, b.dims.remove(axis))
    require(agree, "access-concatenate", f"operands that differ on axis {axis} at most", f"{a} and {b}")


def _parts(out: Array, axis: int, first: int) -> list[Array]:
    before = (slice(None),) * axis
    return [out[(*before, slice(first))], out[(*before, slice(first, None))]]


def _evaluate_concatenate(_: object, a: Array, b: Array, axis: int, out: Array | None = None) -> Array:
    if out is None:
        out = np.empty((*a.shape[:axis], a.shape[axis] + b.shape[axis], *a.shape[axis + 1 :]), a.dtype)
    for part, operand in zip(_parts(out, axis, a.shape[axis]), (a, b), strict=True):
        store(part, operand)
    return out


def _map_concatenate(a: AccessType, b: AccessType, axis: int) -> IndexMap:
    first, second = a.dims[axis], b.dims[axis]
    dims = a.dims.set(axis, first + second)
    here = axes_of(dims)[axis]
    of_a = Piece(0, tuple(axes_of(dims)), (Within(here, 0, first),))
    of_b = Piece(1, tuple(along(dims, axis, lambda i: i - first)), (Within(here, first, first + second),))
    return IndexMap(dims, (of_a, of_b))


access_concatenate = operator(
    name="access-concatenate",
    kind=OperatorKind.MOVEMENT,
    fields=fields(a=Kind.TERM, b=Kind.TERM, axis=Kind.INT),
    check=_check_concatenate,
    result=lambda a, b, axis: a.with_dims(a.dims.set(axis, a.dims.get(axis) + b.dims.get(axis))),
    index_map=_map_concatenate,
    evaluate=_evaluate_concatenate,
    places=lambda out, a, b, axis: _parts(out, axis, a.dims[axis]),
    adjoint=lambda terms, g, a, b, axis: (
        terms.slice(g, axis, 0, a.access.dims[axis]),
        terms.slice(g, axis, a.access.dims[axis], g.access.dims[axis]),
    ),
    doc="b after a along one axis; all other dims, the split and the dtype agree.",
    examples=example(
        "(access-concatenate (access (access-tensor x) 1) (access (access-tensor y) 1) 1)", x="m n", y="m k"
    ),
)
