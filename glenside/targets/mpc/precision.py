"""How far a fixed-point program may be from the reals: a bound, from the terms alone.

Numbers are multiples of u = 2^-f. A tensor that is given is rounded to the nearest, by u / 2; a truncation is off by
less than u; sums add errors, and a product of a and b has |a| err(b) + |b| err(a) + err(a) err(b). Bounds of magnitudes
come along. What overflows the ring is not looked at, nor is the chance of a wrong truncation (2^(bits - field) for
SEMI2K).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from glenside.ir.operator import Category
from glenside.ir.operators import parse_compute
from glenside.ir.rational import exact, exact_numbers
from glenside.ir.term import Term, postorder
from glenside.ir.types import Tensor

_TENSOR_ERROR = 0.5


@dataclass(frozen=True, slots=True)
class Bound:
    """No element is larger than `magnitude`, none is further from the real one than `error` units of 2^-f."""

    magnitude: float
    error: float


def error_bound(
    root: Term, bits: int, magnitude: Callable[[Tensor], float], offline: Collection[Term] = ()
) -> Bound | None:
    """The bound of a term of layers; None where an operator has no rule here.

    bits       f, fractional bits
    magnitude  the largest absolute value that a tensor may have
    offline    terms that are computed in floats beforehand, and rounded once, when they are given
    """
    done: dict[Term, Any] = {}
    for term in postorder(root):
        bound = _bound(term, [done[c] for c in term.children], bits, magnitude)
        if bound is None:
            return None
        done[term] = Bound(bound.magnitude, _TENSOR_ERROR) if term in offline and isinstance(bound, Bound) else bound
    result: Bound | None = done[root] if isinstance(done[root], Bound) else None
    return result


def _bound(term: Term, operands: list[Any], bits: int, magnitude: Callable[[Tensor], float]) -> Any:
    name = term.operator.name
    if name in _LEAVES:
        return _LEAVES[name](term, magnitude)
    if name == "access-product":
        return tuple(operands)
    if name == "truncate":
        return Bound(operands[0].magnitude, operands[0].error + 1)
    if term.operator.index_map is not None:
        return Bound(max(b.magnitude for b in operands), max(b.error for b in operands))
    if name == "linear-map":
        return _linear_map(term, operands[0])
    if name == "access-overlap-add":
        return _times(operands[0], _overlaps(term))
    return _computed(term, operands[0], bits) if name == "compute" else None


def _times(bound: Bound, count: float) -> Bound:
    return Bound(bound.magnitude * count, bound.error * count)


def _overlaps(term: Term) -> int:
    """How many windows an element of an overlap-add lies in at most."""
    window = term.children[0].access.item
    strides = term.attributes[1]
    assert isinstance(strides, tuple)
    return math.prod(-(-k // t) for k, t in zip(window, strides, strict=True))


def _linear_map(term: Term, operand: Bound) -> Bound:
    """Whole coefficients only add; a row of fractions is one product with 1/q, truncated, of a whole sum."""
    _, rows, text = term.attributes
    values = exact_numbers(str(text)) or ()
    count = len(values) // int(str(rows)) if values else 0
    magnitude, error = 0.0, 0.0
    for start in range(0, len(values), max(count, 1)):
        row = values[start : start + count]
        denominator = math.lcm(*(v.denominator for v in row))
        total = float(sum(abs(v) for v in row))
        own = operand.error * total
        if denominator != 1:
            own += 1 + _TENSOR_ERROR * total * denominator * operand.magnitude
        magnitude, error = max(magnitude, operand.magnitude * total), max(error, own)
    return Bound(magnitude, error)


def _computed(term: Term, operand: Any, bits: int) -> Any:
    kind = str(term.attributes[0])
    pair = operand if isinstance(operand, tuple) else None
    if kind == "dot-product" and pair is not None:
        a, b = pair
        length = term.children[0].access.item.drop(1).product()
        error = a.magnitude * b.error + b.magnitude * a.error + a.error * b.error * 2.0**-bits
        return Bound(length * a.magnitude * b.magnitude, length * error)
    if kind in ("elementwise-add", "subtract") and pair is not None:
        return Bound(sum(b.magnitude for b in pair), sum(b.error for b in pair))
    if isinstance(operand, Bound):
        if kind == "reduce-sum":
            return _times(operand, term.children[0].access.item.product())
        if kind in ("relu", "negative", "abs") or parse_compute(kind)[0].category is Category.FOLD:
            count = term.children[0].access.item[0] if kind in ("elementwise-add", "subtract") else 1
            return _times(operand, count) if kind != "elementwise-mul" else None
    return None


def _of_numbers(*values: Fraction | None) -> Bound:
    """Numbers of the program itself are public; whole ones are exact."""
    known = [v for v in values if v is not None]
    whole = all(v.denominator == 1 for v in known)
    return Bound(float(max((abs(v) for v in known), default=0)), 0.0 if whole else _TENSOR_ERROR)


def _of_tensor(term: Term, magnitude: Callable[[Tensor], float]) -> Bound:
    tensor = term.attributes[0]
    assert isinstance(tensor, Tensor)
    return Bound(magnitude(tensor), _TENSOR_ERROR)


_LEAVES: dict[str, Callable[[Term, Callable[[Tensor], float]], Bound]] = {
    "access-tensor": _of_tensor,
    "access-literal": lambda t, _: _of_numbers(exact(str(t.attributes[0]))),
    "full": lambda t, _: _of_numbers(exact(str(t.attributes[1]))),
    "numbers": lambda t, _: _of_numbers(*(exact_numbers(str(t.attributes[1])) or ())),
    "eye": lambda t, _: Bound(1.0, 0.0),
    "iota": lambda t, _: Bound(float(t.access.size), 0.0),
}
