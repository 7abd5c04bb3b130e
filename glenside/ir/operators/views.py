"""Defines operators that keep elements: in a tuple, or under another split, order or shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glenside.ir.index_map import IndexMap, along, broadcast, mapped, reshaped, same, transposed
from glenside.ir.operand import Array
from glenside.ir.operator import Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_axis, require_order, require_sizes, spelled
from glenside.ir.types import AccessType, Dims, TupleType, Type

construct_tuple = operator(
    name="construct-tuple",
    kind=OperatorKind.VIEW,
    fields=fields(items=Kind.TERMS),
    check=lambda *items: None,
    result=lambda *items: TupleType(items),
    evaluate=lambda _, *items: items,
    adjoint=lambda terms, g, *items: tuple(g),
    doc="Several access patterns as one value.",
    symbolic=False,  # a tuple has no dims
    examples=example("(construct-tuple (access (access-tensor x) 1) (access-tensor y))", x="m n", y="k"),
)


def _check_get(a: Type, index: int) -> None:
    if not isinstance(a, TupleType):
        require(False, "tuple-get-item", "a tuple", a)
    else:
        require(0 <= index < len(a.items), "tuple-get-item", f"0 <= index < {len(a.items)}", index)


tuple_get_item = operator(
    name="tuple-get-item",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM, index=Kind.INT),
    check=_check_get,
    result=lambda a, index: a.items[index],
    evaluate=lambda _, a, index: a[index],
    adjoint=lambda terms, g, a, index: (tuple(g if i == index else None for i in range(len(a.type.items))),),
    doc="One element of a tuple, counted from 0.",
    symbolic=False,  # a tuple has no dims
    examples=example(
        "(tuple-get-item (construct-tuple (access (access-tensor x) 1) (access-tensor y)) 1)", x="m n", y="k"
    ),
)

access = operator(
    name="access",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM, split=Kind.INT),
    check=lambda a, split: require(0 <= split <= a.rank, "access", f"0 <= split <= {a.rank}", split),
    result=lambda a, split: a.with_split(split),
    index_map=lambda a, split: same(a.dims),
    evaluate=lambda _, a, split: a,
    places=lambda out, *_: [out],
    adjoint=lambda terms, g, a, *_: (g,),
    doc="The same dims with the first `split` axes as the shape.",
    examples=example("(access (access-tensor x) 2)", x="m n k"),
)

access_transpose = operator(
    name="access-transpose",
    kind=OperatorKind.MOVEMENT,
    fields=fields(a=Kind.TERM, order=Kind.INTS),
    check=lambda a, order: require_order("access-transpose", order, a.rank, "axes"),
    result=lambda a, order: a.with_dims(a.dims.permute(order)),
    index_map=lambda a, order: transposed(a.dims, order),
    evaluate=lambda _, a, order: a.transpose(order),
    places=lambda out, a, order: [out.transpose(np.argsort(order))],
    shares=True,
    adjoint=lambda terms, g, a, order: (terms.untransposed(g, order),),
    doc="Axis i of the result is axis order[i] of a, counted over all axes; the split is kept, axes may cross it.",
    examples=example("(access-transpose (access (access-tensor x) 1) (list 2 0 1))", x="m n k"),
)


def _under(out: Array, dims: Sequence[int]) -> Array | None:
    """Returns a view under other dims; None if only a copy can have them."""
    try:
        return np.asarray(out.reshape(tuple(dims), copy=False))
    except ValueError:
        return None


def _check_reshape(a: AccessType, target: tuple[Dims, Dims]) -> None:
    require_sizes("access-reshape", "sizes", target[0].append(target[1]))
    kept = target[0].product() == a.shape.product() and target[1].product() == a.item.product()
    sizes = f"a shape of {a.shape.product()} and an item of {a.item.product()} elements"
    require(kept, "access-reshape", sizes, f"{spelled(target[0])}{spelled(target[1])}")


access_reshape = operator(
    name="access-reshape",
    kind=OperatorKind.MOVEMENT,
    fields=fields(a=Kind.TERM, target=Kind.ACCESS_SHAPE),
    check=_check_reshape,
    result=lambda a, target: target[0].access(target[1], a.dtype),
    index_map=lambda a, target: reshaped(a.dims, target[0].append(target[1])),
    evaluate=lambda _, a, target: a.reshape(target[0] + target[1]),
    places=lambda out, a, target: [_under(out, a.dims)],
    shares=True,
    adjoint=lambda terms, g, a, *_: (terms.reshape(g, a.access.dims),),
    doc="The elements in row-major order under other dims; the sizes of shape and item are each kept.",
    examples=example(
        "(access-reshape (access (access-tensor x) 1) (access-shape (shape $m 1) (shape $k $n)))", x="m n k"
    ),
)


def _check_rearrange(a: AccessType, parts: Dims, order: Dims, target: tuple[Dims, Dims]) -> None:
    name = "access-rearrange"
    require_sizes(name, "sizes", parts.append(target[0]).append(target[1]))
    require(parts.product() == a.size, name, f"parts of {a.size} elements", spelled(parts))
    require_order(name, order, len(parts), "parts")
    sizes = target[0].product() * target[1].product() == a.size
    require(sizes, name, f"a result of {a.size} elements", f"{spelled(target[0])}{spelled(target[1])}")


def _map_rearranged(a: AccessType, parts: Dims, order: Dims, target: tuple[Dims, Dims]) -> IndexMap:
    moved = reshaped(a.dims, parts).then(transposed(parts, order))
    return moved.then(reshaped(moved.dims, target[0].append(target[1])))


access_rearrange = operator(
    name="access-rearrange",
    kind=OperatorKind.MOVEMENT,
    fields=fields(a=Kind.TERM, parts=Kind.SHAPE, order=Kind.INTS, target=Kind.ACCESS_SHAPE),
    check=_check_rearrange,
    result=lambda a, parts, order, target: target[0].access(target[1], a.dtype),
    index_map=_map_rearranged,
    evaluate=lambda _, a, parts, order, target: a.reshape(parts).transpose(order).reshape(target[0] + target[1]),
    shares=True,
    adjoint=lambda terms, g, a, parts, order, target: (
        terms.reshape(terms.untransposed(terms.reshape(g, parts.permute(order)), order), a.access.dims),
    ),
    doc="The elements of a: cut into parts in row-major order, the parts permuted, then reshaped. Any chain of "
    "reshapes and transposes is one such step, whatever its splits.",
    examples=example(
        "(access-rearrange (access-tensor x) (shape $m 2 $n) (list 1 2 0) (access-shape (shape 2) (shape $n $m)))",
        x="m 2 n",
    ),
)


def _flat(dims: Dims) -> Dims:
    return Dims((dims.product(),)) if dims else dims


access_flatten = operator(
    name="access-flatten",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM),
    check=lambda a: None,
    result=lambda a: _flat(a.shape).access(_flat(a.item), a.dtype),
    index_map=lambda a: reshaped(a.dims, _flat(a.shape).append(_flat(a.item))),
    evaluate=lambda _, a: a.array.reshape(_flat(a.access.shape) + _flat(a.access.item)),
    adjoint=lambda terms, g, a, *_: (terms.reshape(g, a.access.dims),),
    doc="Shape and item each become one axis; an empty side stays empty.",
    symbolic=False,  # a condition decides whether a side is empty
    typed=True,
    examples=example("(access-flatten (access (access-tensor x) 2))", x="m n k l"),
)

access_shift_right = operator(
    name="access-shift-right",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM),
    check=lambda a: require(a.split > 0, "access-shift-right", "a shape of at least one axis", a),
    result=lambda a: a.with_split(a.split - 1),
    index_map=lambda a: same(a.dims),
    evaluate=lambda _, a: a,
    adjoint=lambda terms, g, a, *_: (g,),
    doc="The last axis of the shape becomes the first axis of the item.",
    examples=example("(access-shift-right (access (access-tensor x) 2))", x="m n k"),
)

access_flip = operator(
    name="access-flip",
    kind=OperatorKind.MOVEMENT,
    fields=fields(a=Kind.TERM, axis=Kind.INT),
    check=lambda a, axis: require_axis("access-flip", axis, a.rank),
    result=lambda a, axis: a,
    index_map=lambda a, axis: mapped(a.dims, along(a.dims, axis, lambda i: i * -1 + (a.dims[axis] - 1))),
    evaluate=lambda _, a, axis: np.flip(a, axis),
    places=lambda out, a, axis: [np.flip(out, axis)],
    shares=True,
    adjoint=lambda terms, g, a, axis: (terms.flip(g, axis),),
    doc="One axis in reverse order.",
    examples=example("(access-flip (access (access-tensor x) 1) 1)", x="m n"),
)

access_insert_axis = operator(
    name="access-insert-axis",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM, axis=Kind.INT),
    check=lambda a, axis: require(0 <= axis <= a.rank, "access-insert-axis", f"0 <= axis <= {a.rank}", axis),
    result=lambda a, axis: AccessType(a.dims.insert(axis, 1), a.split + (axis <= a.split), a.dtype),
    index_map=lambda a, axis: reshaped(a.dims, a.dims.insert(axis, 1)),
    evaluate=lambda _, a, axis: np.expand_dims(a, axis),
    places=lambda out, a, axis: [np.squeeze(out, axis)],
    adjoint=lambda terms, g, a, *_: (terms.reshape(g, a.access.dims),),
    doc="A new axis of size 1 at that position; up to the split, the split included, it belongs to the shape.",
    symbolic=False,  # a condition decides the side of the split
    examples=example("(access-insert-axis (access (access-tensor x) 1) 1)", x="m n"),
)


def _check_squeeze(a: AccessType, axis: int) -> None:
    require_axis("access-squeeze", axis, a.rank)
    require(a.dims[axis] == 1, "access-squeeze", f"axis {axis} to have size 1", a)


access_squeeze = operator(
    name="access-squeeze",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM, axis=Kind.INT),
    check=_check_squeeze,
    result=lambda a, axis: AccessType(a.dims.remove(axis), a.split - (axis < a.split), a.dtype),
    index_map=lambda a, axis: reshaped(a.dims, a.dims.remove(axis)),
    evaluate=lambda _, a, axis: np.squeeze(a, axis),
    places=lambda out, a, axis: [np.expand_dims(out, axis)],
    adjoint=lambda terms, g, a, *_: (terms.reshape(g, a.access.dims),),
    doc="Removes an axis of size 1.",
    symbolic=False,  # a condition decides the side of the split
    examples=example("(access-squeeze (access (access-tensor x) 1) 1)", x="m 1 n"),
)


def _check_broadcast(a: AccessType, target: tuple[Dims, Dims]) -> None:
    shape, item = target
    require_sizes("access-broadcast", "sizes", shape.append(item))
    aligned = len(shape) == a.split and len(item) == a.rank - a.split
    fits = aligned and all(have in (1, want) for have, want in zip(a.dims, shape.append(item), strict=True))
    need = f"a shape of {a.split} and an item of {a.rank - a.split} axes, each as in {a} unless that is 1"
    require(fits, "access-broadcast", need, f"{spelled(shape)}{spelled(item)}")


access_broadcast = operator(
    name="access-broadcast",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM, target=Kind.ACCESS_SHAPE),
    check=_check_broadcast,
    result=lambda a, target: a.with_dims(target[0].append(target[1])),
    index_map=lambda a, target: broadcast(a.dims, target[0].append(target[1])),
    evaluate=lambda _, a, target: np.broadcast_to(a, target[0] + target[1]),
    adjoint=lambda terms, g, a, target: (terms.sum_to(g, a.access.dims),),
    doc="Axes of size 1 are repeated to the size given; all others stay. Rank and split are kept.",
    examples=example(
        "(access-broadcast (access (access-tensor x) 1) (access-shape (shape $m) (shape $k $n)))", x="m 1 n"
    ),
)
