"""Defines operators that enlarge axes: padding at the ends, zeros between neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from glenside.ir.blockwise import store
from glenside.ir.index_map import Fill, IndexMap, Multiple, Within, along, axes_of, mapped
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import MOVED, Field, Keeps, Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_axis
from glenside.ir.scalar import require_computed
from glenside.ir.types import AccessType, largest

PADDINGS = ("zero-padding", "min-padding")


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)


def _check_pad(a: AccessType, kind: str, axis: int, before: int, after: int) -> None:
    require(kind in PADDINGS, "access-pad", " or ".join(PADDINGS), kind)
    require_axis("access-pad", axis, a.rank)
    if kind == "min-padding":  # dtypes that are only stored have no -inf, and no maximum to ignore it
        require_computed("access-pad of min-padding", a.dtype, a)
    require(min(before, after) >= 0, "access-pad", "before >= 0 and after >= 0", f"before {before} and after {after}")


def _evaluate_pad(
    arithmetic: Any, operand: Operand, kind: str, axis: int, before: int, after: int, out: Array | None = None
) -> Array:
    a, size = operand.array, operand.access.dims[axis]
    fill = 0 if kind == "zero-padding" else arithmetic.lowest(operand.access.dtype)
    result = np.empty(operand.access.dims.set(axis, before + size + after), a.dtype) if out is None else out
    result[_along(axis, slice(0, before))] = fill
    store(result[_along(axis, slice(before, before + size))], a)
    result[_along(axis, slice(before + size, None))] = fill
    return result


def _map_pad(a: AccessType, kind: str, axis: int, before: int, after: int) -> IndexMap:
    dims = a.dims.set(axis, before + a.dims[axis] + after)
    inside = Within(axes_of(dims)[axis], before, before + a.dims[axis])
    fill = Fill.ZERO if kind == "zero-padding" else Fill.LOWEST
    return mapped(dims, along(dims, axis, lambda i: i - before), inside, fill=fill)


def _adjoint_pad(terms: Any, g: Any, a: Any, kind: str, axis: int, before: int, after: int) -> tuple[Any]:
    return (terms.slice(g, axis, before, before + a.access.dims[axis]),)


access_pad = operator(
    name="access-pad",
    kind=OperatorKind.MOVEMENT,
    fields=fields(
        a=Kind.TERM, kind=Field("kind", Kind.KEYWORD, PADDINGS), axis=Kind.INT, before=Kind.INT, after=Kind.INT
    ),
    check=_check_pad,
    result=lambda a, kind, axis, before, after: a.with_dims(a.dims.set(axis, a.dims.get(axis) + before + after)),
    index_map=_map_pad,
    evaluate=_evaluate_pad,
    places=lambda out, a, kind, axis, before, after: [out[_along(axis, slice(before, before + a.dims[axis]))]],
    linear=lambda a, kind, *_: kind == "zero-padding",
    keeps=lambda a, kind, *_: MOVED if kind == "zero-padding" else MOVED & ~Keeps.ZERO,
    adjoint=_adjoint_pad,
    doc="One axis grows by elements before and after: zeros, or the lowest value of the dtype (-inf for floats).",
    typed=True,
    examples=example("(access-pad (access (access-tensor x) 1) zero-padding 1 1 3)", x="m n"),
)


def _check_dilate(a: AccessType, axis: int, n: int) -> None:
    require_axis("access-dilate", axis, a.rank)
    require(n >= 0, "access-dilate", "n >= 0", n)


def _dilated(size: Any, n: Any) -> Any:
    return size + largest(size - 1, 0) * n


def _evaluate_dilate(_: object, a: Array, axis: int, n: int, out: Array | None = None) -> Array:
    if out is None:
        out = np.empty((*a.shape[:axis], _dilated(a.shape[axis], n), *a.shape[axis + 1 :]), a.dtype)
    store(out[_along(axis, slice(None, None, n + 1))], a)
    for gap in range(1, n + 1):
        out[_along(axis, slice(gap, None, n + 1))] = 0
    return out


def _map_dilate(a: AccessType, axis: int, n: int) -> IndexMap:
    dims = a.dims.set(axis, _dilated(a.dims[axis], n))
    between = Multiple(axes_of(dims)[axis], n + 1)
    return mapped(dims, along(dims, axis, lambda i: i // (n + 1)), between, fill=Fill.ZERO)


access_dilate = operator(
    name="access-dilate",
    kind=OperatorKind.MOVEMENT,
    fields=fields(a=Kind.TERM, axis=Kind.INT, n=Kind.INT),
    check=_check_dilate,
    result=lambda a, axis, n: a.with_dims(a.dims.set(axis, _dilated(a.dims.get(axis), n))),
    index_map=_map_dilate,
    evaluate=_evaluate_dilate,
    places=lambda out, a, axis, n: [out[_along(axis, slice(None, None, n + 1))]],
    adjoint=lambda terms, g, a, axis, n: (terms.strided(g, [n + 1 if i == axis else 1 for i in range(a.access.rank)]),),
    doc="n zeros between the neighbours of one axis (n = dilation - 1).",
    examples=example("(access-dilate (access (access-tensor x) 1) 1 2)", x="m n"),
)
