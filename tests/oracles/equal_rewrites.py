"""Makes programs that are equal to a given one but computed differently at one place: a check must call them equal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from glenside.builder import Builder
from glenside.ir.errors import GlensideError
from glenside.ir.operators.compute import compute
from glenside.ir.operators.products import access_product
from glenside.ir.term import Term, build, postorder, rebuild
from glenside.ir.types import AccessType

Way = Callable[[Term, random.Random], Term | None]
_COMMUTE = ("elementwise-add", "elementwise-mul", "minimum", "maximum", "dot-product")
_TURNED = {"minimum": "maximum", "maximum": "minimum", "reduce-min": "reduce-max", "reduce-max": "reduce-min"}


def _full(t: Term, value: str) -> Term:
    dims = t.access.dims
    return build("access", build("full", dims, value, t.access.dtype), t.access.split)


def transposed(t: Term, pick: random.Random) -> Term | None:
    """Transposes, and transposes back."""
    order = pick.sample(range(t.access.rank), t.access.rank)
    back = [order.index(axis) for axis in range(t.access.rank)]
    return build("access-transpose", build("access-transpose", t, order), back)


def scaled(t: Term, pick: random.Random) -> Term | None:
    """Multiplies by 3 and divides, which rounds."""
    if t.access.dtype != "float32":
        return None
    three = _full(t, "3")
    return Builder.combine("elementwise-div", Builder.combine("elementwise-mul", t, three), three)


def shifted(t: Term, pick: random.Random) -> Term | None:
    """Adds a number and subtracts it; integers wrap twice."""
    if t.access.dtype == "bool":
        return None
    off = _full(t, pick.choice(("1", "7", "100")))
    return Builder.combine("subtract", Builder.combine("elementwise-add", t, off), off)


def parted(t: Term, pick: random.Random) -> Term | None:
    """Slices along an axis, and concatenates."""
    wide = [axis for axis, size in enumerate(t.access.dims) if size > 1]
    if not wide:
        return None
    axis = pick.choice(wide)
    size = t.access.dims[axis]
    at = pick.randint(1, size - 1)
    low, high = (build("access-slice", t, axis, lo, hi) for lo, hi in ((0, at), (at, size)))
    return build("access-concatenate", low, high, axis)


def padded(t: Term, pick: random.Random) -> Term | None:
    """Pads, and slices the padding off."""
    if not t.access.rank:
        return None
    axis = pick.randrange(t.access.rank)
    before, size = pick.randint(0, 2), t.access.dims[axis]
    wider = build("access-pad", t, pick.choice(("zero-padding", "min-padding")), axis, before, 1)
    return build("access-slice", wider, axis, before, before + size)


def exchanged(t: Term, pick: random.Random) -> Term | None:
    """Exchanges the operands of a commutative operator."""
    if t.operator is not compute or t.attributes[0] not in _COMMUTE:
        return None
    (product,) = t.children
    if product.operator is not access_product or product.children[0].type != product.children[1].type:
        return None
    a, b = product.children
    return build("compute", t.attributes[0], build("access-product", b, a, *product.attributes))


def negated(t: Term, pick: random.Random) -> Term | None:
    """Replaces min(a) by -max(-a), for reals."""
    if t.operator is not compute or t.attributes[0] not in _TURNED or t.access.dtype != "float32":
        return None
    turned = build("compute", _TURNED[str(t.attributes[0])], build("compute", "negative", t.children[0]))
    return build("compute", "negative", turned)


def chosen(t: Term, pick: random.Random) -> Term | None:
    """Replaces a number by the larger of it and itself."""
    return Builder.combine(pick.choice(("maximum", "minimum")), t, t)


WAYS: tuple[Way, ...] = (transposed, scaled, shifted, parted, padded, exchanged, negated, chosen)


def equals(term: Term, pick: random.Random) -> Iterator[tuple[str, Term]]:
    """Yields names of rewrites, and the term with one, two or three of its terms rewritten."""
    while True:
        whole, names = term, []
        for _ in range(pick.randint(1, 3)):
            node = pick.choice([t for t in postorder(whole) if isinstance(t.type, AccessType) and t.access.size])
            way = pick.choice(WAYS)
            try:
                other = way(node, pick)
                other = None if other is None else build("access", other, node.access.split)
                if other is None or other.type != node.type:
                    continue
            except (GlensideError, ValueError):
                continue
            whole = rebuild(whole, lambda t, children, at=node, new=other: new if t is at else None)
            names.append(way.__name__)
        if whole is not term:
            yield " ".join(names), whole
