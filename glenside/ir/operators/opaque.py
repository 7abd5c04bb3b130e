"""Defines black boxes: functions of unknown meaning between known parts of a program."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operator import Kind, OperatorKind, fields, operator, require
from glenside.ir.operators.requirements import require_dtype, require_sizes
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType, Dims


def _check(key: str, type: tuple[Dims, Dims], dtype: str, *operands: Any) -> None:
    require(bool(key) and key.isprintable(), "opaque", "a key that can be printed on one line", repr(key))
    require_sizes("opaque", "sizes", (*type[0], *type[1]))
    require_dtype("opaque", dtype)
    for operand in operands:
        require(isinstance(operand, AccessType), "opaque", "operands that are access patterns", operand)


opaque = operator(
    name="opaque",
    kind=OperatorKind.COMPUTE,
    fields=fields(key=Kind.TEXT, type=Kind.ACCESS_SHAPE, dtype=Kind.DTYPE, operands=Kind.TERMS),
    check=_check,
    result=lambda key, type, dtype, *operands: type[0].access(type[1], dtype),
    evaluate=lambda f, key, type, dtype, *operands: f.opaque(key, operands, (*type[0], *type[1]), dtype),
    doc="An unknown function of the operands, identified by its key, with a result of the given type. A check replaces "
    "it by the same pseudo-random function everywhere; it cannot be run. The first word of the key is its name.",
    symbolic=False,  # no rule builds black boxes
    opaque=True,
    adjoint="its meaning is unknown",
)


def _check_pointwise(
    key: str, a: AccessType, dtype: str, parts: Dims, axes: Dims, name: str = "opaque-pointwise"
) -> None:
    require(bool(key) and key.isprintable(), name, "a key that can be printed on one line", repr(key))
    require_dtype(name, dtype)
    require(not parts or parts.product() == a.size, name, f"parts of {a.size} elements, or none", parts)
    known = {*range(len(parts))}
    require(sorted({*axes} & known) == sorted(axes), name, f"axes of {len(parts)} parts, each once", axes)


def _places(shape: Sequence[int], parts: Dims, axes: Dims) -> Array | None:
    """Numbers each element by its index along the axes; None without axes."""
    if not axes:
        return None
    numbers = np.arange(math.prod(parts[axis] for axis in axes)).reshape([parts[axis] for axis in axes])
    along = numbers.transpose(sorted(range(len(axes)), key=axes.__getitem__))
    whole = along.reshape([n if axis in axes else 1 for axis, n in enumerate(parts)])
    return np.broadcast_to(whole, parts).reshape(tuple(shape))


opaque_pointwise = operator(
    name="opaque-pointwise",
    kind=OperatorKind.COMPUTE,
    fields=fields(key=Kind.TEXT, a=Kind.TERM, dtype=Kind.DTYPE, parts=Kind.INTS, axes=Kind.INTS),
    check=_check_pointwise,
    result=lambda key, a, dtype, parts, axes: a.with_dtype(dtype),
    evaluate=lambda f, key, a, dtype, parts, axes: f.opaque_pointwise(key, a, dtype, _places(a.shape, parts, axes)),
    doc="An unknown function of single elements, identified by its key. With axes it also depends on the element's "
    "index along those axes, of the elements in row-major order, cut into the parts.",
    operations=lambda key, a, dtype, parts, axes: a.size,
    opaque=True,
    adjoint="its meaning is unknown",
)


def _of_items(f: Any, key: str, a: Array, dtype: str, parts: Dims, axes: Dims) -> Array:
    order = [*(axis for axis in range(len(parts)) if axis not in axes), *axes]
    items = a.reshape(tuple(parts)).transpose(order) if parts else a.reshape(-1)
    if not a.size:
        return np.asarray(f.opaque(key, [a], a.shape, dtype))
    count = math.prod(parts[axis] for axis in axes)
    made = np.stack([f.opaque(key, [item], (count,), dtype) for item in items.reshape(-1, count)])
    back = made.reshape(items.shape)
    back = back.transpose(sorted(range(len(order)), key=order.__getitem__)) if parts else back
    return np.asarray(back.reshape(a.shape))


opaque_items = operator(
    name="opaque-items",
    kind=OperatorKind.COMPUTE,
    fields=fields(key=Kind.TEXT, a=Kind.TERM, dtype=Kind.DTYPE, parts=Kind.INTS, axes=Kind.INTS),
    check=partial(_check_pointwise, name="opaque-items"),
    result=lambda key, a, dtype, parts, axes: a.with_dtype(dtype),
    evaluate=_of_items,
    doc="An unknown function of whole items to items of the same size, identified by its key. All elements in "
    "row-major order are cut into the parts; an item spans the given axes in that order. Without parts, an item is one "
    "element.",
    operations=lambda key, a, dtype, parts, axes: a.size,
    opaque=True,
    adjoint="its meaning is unknown",
)


def name_of(key: str) -> str:
    """Returns the name of a black box for messages."""
    return key.split(maxsplit=1)[0] if key.split() else key


def black_boxes(root: Term) -> Mapping[str, int]:
    """Returns name without output -> the number of black boxes of a term; outputs of one box are counted once."""
    found = {
        (re.sub(r"#\d+$", "", name_of(key)), key.partition(" ")[2], term.children)
        for term in postorder(root)
        if term.operator.opaque
        for key in [str(term.attributes[0])]
    }
    return dict(sorted(Counter(name for name, _, _ in found).items()))


def require_meaning(purpose: str, *roots: Term) -> None:
    """Raises BadInput if one of the terms is, or depends on, a black box."""
    boxes = dict.fromkeys(name_of(str(t.attributes[0])) for t in postorder(*roots) if t.operator.opaque)
    if boxes:
        first, more = next(iter(boxes)), f" and {len(boxes) - 1} more" if len(boxes) > 1 else ""
        raise BadInput(f"{purpose} requires operators of known meaning, got the black box {first}{more}")
