"""How far a fixed-point program may be from the reals: a bound, from the terms alone.

Numbers are multiples of u = 2^-f. A tensor that is given is rounded to the nearest, by u / 2; a truncation is off by
less than u; sums add errors, and a product of a and b has |a| err(b) + |b| err(a) + err(a) err(b). Bounds of magnitudes
come along. What overflows the ring is not looked at, nor is the chance of a wrong truncation (2^(bits - field) for
SEMI2K).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

from glenside.ir.operator import Category, Keeps
from glenside.ir.operators import parse_compute
from glenside.ir.operators.compute import name_of
from glenside.ir.operators.products import access_product
from glenside.ir.rational import exact, exact_numbers
from glenside.ir.term import Term, postorder
from glenside.ir.types import Tensor

_TENSOR_ERROR = 0.5


@dataclass(frozen=True, slots=True)
class Bound:
    """No element is larger than `magnitude`, none is further from the real one than `error` units of 2^-f.

    Both are infinite where some operators have no bound: `unknown` names those.
    """

    magnitude: float
    error: float
    unknown: tuple[str, ...] = ()


def error_bound(root: Term, bits: int, magnitude: Callable[[Tensor], float], offline: Collection[Term] = ()) -> Bound:
    """The bound of a term of layers.

    bits       f, fractional bits
    magnitude  the largest absolute value that a tensor may have
    offline    terms that are computed in floats beforehand, and rounded once, when they are given
    """
    done: dict[Term, tuple[Bound, ...]] = {}
    for term in postorder(root):
        operands = [done[child] for child in term.children]
        unknown = tuple(dict.fromkeys(name for bounds in operands for b in bounds for name in b.unknown))
        if term.operator is access_product:
            done[term] = tuple(b for bounds in operands for b in bounds)
            continue
        bound = None if unknown else _bound(term, operands, bits, magnitude)
        if bound is None:
            bound = Bound(math.inf, math.inf, unknown or (name_of(term),))
        elif term in offline:
            bound = Bound(bound.magnitude, _TENSOR_ERROR)
        done[term] = (bound,)
    return max(done[root], key=lambda b: b.error)


def _bound(
    term: Term, operands: Sequence[tuple[Bound, ...]], bits: int, magnitude: Callable[[Tensor], float]
) -> Bound | None:
    """What is known of an operator: rules of its own, else what its record says that it keeps. None for nothing."""
    name, arguments = term.operator.name, [b for bounds in operands for b in bounds]
    if name in _LEAVES:
        return _LEAVES[name](term, magnitude)
    if name == "truncate":
        return Bound(arguments[0].magnitude, arguments[0].error + 1)
    if name == "linear-map":
        return _linear_map(term, arguments[0])
    if name == "access-overlap-add":
        return _times(arguments[0], _overlaps(term))
    if name == "compute" and (bound := _computed(term, arguments, bits)) is not None:
        return bound
    if arguments and Keeps.DISTANCE in term.operator.kept(*term.arguments()):
        return _largest(arguments)
    return None


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


def _computed(term: Term, operands: Sequence[Bound], bits: int) -> Bound | None:
    """Products and sums; `operands` are two for a product, and one for all that stands in items."""
    kind, item = str(term.attributes[0]), term.children[0].access.item
    compute, _ = parse_compute(kind)
    if compute.category is Category.CONTRACTION and len(operands) == 2:
        a, b = operands
        length = item.drop(1).product()
        error = a.magnitude * b.error + b.magnitude * a.error + a.error * b.error * 2.0**-bits
        return Bound(length * a.magnitude * b.magnitude, length * error)
    if not compute.linear or kind == "reduce-mean":  # a mean is cut, as a product
        return None
    if compute.category is Category.FOLD and len(operands) == item[0]:
        return Bound(sum(b.magnitude for b in operands), sum(b.error for b in operands))
    if compute.category in (Category.FOLD, Category.REDUCTION):
        count = item[0] if compute.category is Category.FOLD else item.product()
        return _times(_largest(operands), count)
    return None


def _largest(bounds: Sequence[Bound]) -> Bound:
    return Bound(max(b.magnitude for b in bounds), max(b.error for b in bounds))


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
