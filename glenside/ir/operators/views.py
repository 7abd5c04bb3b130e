"""The same elements under another split, order or shape."""

from __future__ import annotations

import numpy as np

from glenside.ir.example import example
from glenside.ir.index_map import IndexMap, along, broadcast, mapped, reshaped, same, transposed
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Kind, Operator, OperatorKind, fields, register, require
from glenside.ir.operators.requirements import require_axis, require_sizes, spelled
from glenside.ir.types import AccessType, Dims


def _check_access(a: AccessType, split: int) -> None:
    require(0 <= split <= a.rank, "access", f"0 <= split <= {a.rank}", split)


access = register(
    Operator(
        name="access",
        kind=OperatorKind.VIEW,
        fields=fields(a=Kind.TERM, split=Kind.INT),
        check=_check_access,
        result=lambda a, split: a.with_split(split),
        index_map=lambda a, split: same(a.dims),
        evaluate=lambda _, a, split: a,
        doc="The same dims with the first `split` axes as the shape.",
        examples=example("(access (access-tensor x) 2)", x="m n k"),
    )
)


def _check_transpose(a: AccessType, order: Dims) -> None:
    require(sorted(order) == list(range(a.rank)), "access-transpose", f"an order of {a.rank} axes", spelled(order))


access_transpose = register(
    Operator(
        name="access-transpose",
        kind=OperatorKind.MOVEMENT,
        fields=fields(a=Kind.TERM, order=Kind.INTS),
        check=_check_transpose,
        result=lambda a, order: a.with_dims(a.dims.permute(order)),
        index_map=lambda a, order: transposed(a.dims, order),
        evaluate=lambda _, a, order: a.transpose(order),
        shares=True,
        doc="Axis i of the result is axis order[i] of a, counted over all axes; the split is kept, axes may cross it.",
        examples=example("(access-transpose (access (access-tensor x) 1) (list 2 0 1))", x="m n k"),
    )
)


def _check_reshape(a: AccessType, target: tuple[Dims, Dims]) -> None:
    require_sizes("access-reshape", "sizes", target[0].append(target[1]))
    kept = target[0].product() == a.shape.product() and target[1].product() == a.item.product()
    sizes = f"a shape of {a.shape.product()} and an item of {a.item.product()} elements"
    require(kept, "access-reshape", sizes, f"{spelled(target[0])}{spelled(target[1])}")


access_reshape = register(
    Operator(
        name="access-reshape",
        kind=OperatorKind.MOVEMENT,
        fields=fields(a=Kind.TERM, target=Kind.ACCESS_SHAPE),
        check=_check_reshape,
        result=lambda a, target: target[0].access(target[1], a.dtype),
        index_map=lambda a, target: reshaped(a.dims, target[0].append(target[1])),
        evaluate=lambda _, a, target: a.reshape(target[0] + target[1]),
        shares=True,
        doc="The elements in row-major order under other dims; the sizes of shape and item are each kept.",
        examples=example(
            "(access-reshape (access (access-tensor x) 1) (access-shape (shape $m 1) (shape $k $n)))",
            x="m n k",
        ),
    )
)


def _check_rearrange(a: AccessType, parts: Dims, order: Dims, target: tuple[Dims, Dims]) -> None:
    name = "access-rearrange"
    require_sizes(name, "sizes", parts.append(target[0]).append(target[1]))
    require(parts.product() == a.size, name, f"parts of {a.size} elements", spelled(parts))
    require(sorted(order) == list(range(len(parts))), name, f"an order of {len(parts)} parts", spelled(order))
    sizes = target[0].product() * target[1].product() == a.size
    require(sizes, name, f"a result of {a.size} elements", f"{spelled(target[0])}{spelled(target[1])}")


def _map_rearranged(a: AccessType, parts: Dims, order: Dims, target: tuple[Dims, Dims]) -> IndexMap:
    moved = reshaped(a.dims, parts).then(transposed(parts, order))
    return moved.then(reshaped(moved.dims, target[0].append(target[1])))


access_rearrange = register(
    Operator(
        name="access-rearrange",
        kind=OperatorKind.MOVEMENT,
        fields=fields(a=Kind.TERM, parts=Kind.SHAPE, order=Kind.INTS, target=Kind.ACCESS_SHAPE),
        check=_check_rearrange,
        result=lambda a, parts, order, target: target[0].access(target[1], a.dtype),
        index_map=_map_rearranged,
        evaluate=lambda _, a, parts, order, target: a.reshape(parts).transpose(order).reshape(target[0] + target[1]),
        shares=True,
        doc="The elements of a, cut into parts in row-major order, with the parts in another order, under other dims: "
        "any chain of reshapes and transposes as one step, whatever its splits.",
        examples=example(
            "(access-rearrange (access-tensor x) (shape $m 2 $n) (list 1 2 0) (access-shape (shape 2) (shape $n $m)))",
            x="m 2 n",
        ),
    )
)


def _flat(dims: Dims) -> Dims:
    return Dims((dims.product(),)) if dims else dims


def _evaluate_flatten(_: object, a: Operand) -> Array:
    return a.array.reshape(_flat(a.access.shape) + _flat(a.access.item))


access_flatten = register(
    Operator(
        name="access-flatten",
        kind=OperatorKind.VIEW,
        fields=fields(a=Kind.TERM),
        check=lambda a: None,
        result=lambda a: _flat(a.shape).access(_flat(a.item), a.dtype),
        index_map=lambda a: reshaped(a.dims, _flat(a.shape).append(_flat(a.item))),
        evaluate=_evaluate_flatten,
        doc="Shape and item each become one axis; an empty side stays empty.",
        symbolic=False,  # whether a side is empty is a condition
        typed=True,
        examples=example("(access-flatten (access (access-tensor x) 2))", x="m n k l"),
    )
)


access_shift_right = register(
    Operator(
        name="access-shift-right",
        kind=OperatorKind.VIEW,
        fields=fields(a=Kind.TERM),
        check=lambda a: require(a.split > 0, "access-shift-right", "a shape of at least one axis", a),
        result=lambda a: a.with_split(a.split - 1),
        index_map=lambda a: same(a.dims),
        evaluate=lambda _, a: a,
        doc="The last axis of the shape becomes the first axis of the item.",
        examples=example("(access-shift-right (access (access-tensor x) 2))", x="m n k"),
    )
)


def _check_flip(a: AccessType, axis: int) -> None:
    require_axis("access-flip", axis, a.rank)


access_flip = register(
    Operator(
        name="access-flip",
        kind=OperatorKind.MOVEMENT,
        fields=fields(a=Kind.TERM, axis=Kind.INT),
        check=_check_flip,
        result=lambda a, axis: a,
        index_map=lambda a, axis: mapped(a.dims, along(a.dims, axis, lambda i: i * -1 + (a.dims[axis] - 1))),
        evaluate=lambda _, a, axis: np.flip(a, axis),
        shares=True,
        doc="One axis in reverse order.",
        examples=example("(access-flip (access (access-tensor x) 1) 1)", x="m n"),
    )
)


def _check_insert_axis(a: AccessType, axis: int) -> None:
    require(0 <= axis <= a.rank, "access-insert-axis", f"0 <= axis <= {a.rank}", axis)


access_insert_axis = register(
    Operator(
        name="access-insert-axis",
        kind=OperatorKind.VIEW,
        fields=fields(a=Kind.TERM, axis=Kind.INT),
        check=_check_insert_axis,
        result=lambda a, axis: AccessType(a.dims.insert(axis, 1), a.split + (axis <= a.split), a.dtype),
        index_map=lambda a, axis: reshaped(a.dims, a.dims.insert(axis, 1)),
        evaluate=lambda _, a, axis: np.expand_dims(a, axis),
        doc="A new axis of size 1 at that position; up to the split, the split included, it belongs to the shape.",
        symbolic=False,  # on which side of the split the axis lands is a condition
        examples=example("(access-insert-axis (access (access-tensor x) 1) 1)", x="m n"),
    )
)


def _check_squeeze(a: AccessType, axis: int) -> None:
    require_axis("access-squeeze", axis, a.rank)
    require(a.dims[axis] == 1, "access-squeeze", f"axis {axis} to have size 1", a)


access_squeeze = register(
    Operator(
        name="access-squeeze",
        kind=OperatorKind.VIEW,
        fields=fields(a=Kind.TERM, axis=Kind.INT),
        check=_check_squeeze,
        result=lambda a, axis: AccessType(a.dims.remove(axis), a.split - (axis < a.split), a.dtype),
        index_map=lambda a, axis: reshaped(a.dims, a.dims.remove(axis)),
        evaluate=lambda _, a, axis: np.squeeze(a, axis),
        doc="Removes an axis of size 1.",
        symbolic=False,  # on which side of the split the axis stood is a condition
        examples=example("(access-squeeze (access (access-tensor x) 1) 1)", x="m 1 n"),
    )
)


def _check_broadcast(a: AccessType, target: tuple[Dims, Dims]) -> None:
    shape, item = target
    require_sizes("access-broadcast", "sizes", shape.append(item))
    aligned = len(shape) == a.split and len(item) == a.rank - a.split
    fits = aligned and all(have in (1, want) for have, want in zip(a.dims, shape.append(item), strict=True))
    need = f"a shape of {a.split} and an item of {a.rank - a.split} axes, each as in {a} unless that is 1"
    require(fits, "access-broadcast", need, f"{spelled(shape)}{spelled(item)}")


access_broadcast = register(
    Operator(
        name="access-broadcast",
        kind=OperatorKind.VIEW,
        fields=fields(a=Kind.TERM, target=Kind.ACCESS_SHAPE),
        check=_check_broadcast,
        result=lambda a, target: a.with_dims(target[0].append(target[1])),
        index_map=lambda a, target: broadcast(a.dims, target[0].append(target[1])),
        evaluate=lambda _, a, target: np.broadcast_to(a, target[0] + target[1]),
        doc="Axes of size 1 are repeated to the size given; all others stay. Rank and split are kept.",
        examples=example(
            "(access-broadcast (access (access-tensor x) 1) (access-shape (shape $m) (shape $k $n)))",
            x="m 1 n",
        ),
    )
)
