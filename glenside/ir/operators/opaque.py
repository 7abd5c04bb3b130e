"""Black boxes: functions that nobody here knows, between parts of a program that are known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from glenside.ir.errors import BadInput
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
    doc="A function of the operands that only its key tells, with that result: a check puts the same "
    "pseudo-random function in its place everywhere, and it cannot be run. The first word of the key is its name.",
    symbolic=False,  # rules build no black boxes
    opaque=True,
)


def _check_pointwise(key: str, a: AccessType, dtype: str) -> None:
    require(bool(key) and key.isprintable(), "opaque-pointwise", "a key that can be printed on one line", repr(key))
    require_dtype("opaque-pointwise", dtype)


opaque_pointwise = operator(
    name="opaque-pointwise",
    kind=OperatorKind.COMPUTE,
    fields=fields(key=Kind.TEXT, a=Kind.TERM, dtype=Kind.DTYPE),
    check=_check_pointwise,
    result=lambda key, a, dtype: a.with_dtype(dtype),
    evaluate=lambda f, key, a, dtype: f.opaque_pointwise(key, a, dtype),
    doc="A function of each element by itself that only its key tells, as `opaque` is one of whole operands.",
    operations=lambda key, a, dtype: a.size,
    opaque=True,
)


def name_of(key: str) -> str:
    """What a black box is called in messages."""
    return key.split(maxsplit=1)[0] if key.split() else key


def black_boxes(root: Term) -> Mapping[str, int]:
    """Name without its output -> how many black boxes of a term have it; outputs of one box are counted once."""
    found = {
        (re.sub(r"#\d+$", "", name_of(key)), key.partition(" ")[2], term.children)
        for term in postorder(root)
        if term.operator.opaque
        for key in [str(term.attributes[0])]
    }
    return dict(sorted(Counter(name for name, _, _ in found).items()))


def require_meaning(purpose: str, *roots: Term) -> None:
    """Raise BadInput when one of the terms is, or depends on, a black box."""
    boxes = dict.fromkeys(name_of(str(t.attributes[0])) for t in postorder(*roots) if t.operator.opaque)
    if boxes:
        first, more = next(iter(boxes)), f" and {len(boxes) - 1} more" if len(boxes) > 1 else ""
        raise BadInput(f"{purpose} requires operators whose meaning is known, got the black box {first}{more}")
