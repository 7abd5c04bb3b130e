"""Error bounds of fixed-point programs, from their terms alone.

Numbers are multiples of u = 2^-f. A given tensor is rounded to nearest, with an error of u / 2; a truncation has an
error below u; sums add errors, and a product of a and b has |a| err(b) + |b| err(a) + err(a) err(b). Magnitudes are
bounded too. Overflow of the ring is checked in `ring`; the probability of a wrong truncation (2^(bits - field) for
SEMI2K) is not included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from glenside.ir.dtypes import FLOATS
from glenside.ir.operand import Array
from glenside.ir.operator import Category, Keeps
from glenside.ir.operators import parse_compute
from glenside.ir.operators.compute import name_of
from glenside.ir.operators.products import access_product
from glenside.ir.program import Program
from glenside.ir.rational import exact, exact_numbers
from glenside.ir.term import Term, postorder
from glenside.ir.types import Tensor, ceil_div
from glenside.semantics.interpreter import evaluate
from glenside.semantics.native import FixedPoint

_TENSOR_ERROR = 0.5


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of all elements: absolute value at most `magnitude`, error at most `error` units of 2^-f.

    Both are infinite if some operators have no bound: `unknown` names them.
    """

    magnitude: float
    error: float
    unknown: tuple[str, ...] = ()


def error_bound(root: Term, bits: int, magnitude: Callable[[Tensor], float], offline: Collection[Term] = ()) -> Bound:
    """Returns the error bound of a term of layers.

    bits       f, fractional bits
    magnitude  tensor -> its largest absolute value
    offline    terms that are computed in floats before sharing, and rounded once
    """
    done: dict[Term, tuple[Bound, ...]] = {}
    for term in postorder(root):
        operands = tuple(bound for child in term.children for bound in done[child])
        unknown = tuple(dict.fromkeys(name for bound in operands for name in bound.unknown))
        if term.operator is access_product:
            done[term] = operands
            continue
        bound = None if unknown else bound_of(term, operands, bits, magnitude)
        if bound is None:
            bound = Bound(math.inf, math.inf, unknown or (name_of(term),))
        elif term in offline:
            bound = Bound(bound.magnitude, _TENSOR_ERROR)
        done[term] = (bound,)
    return max(done[root], key=lambda b: b.error)


class _Reals(FixedPoint):
    """Float arithmetic without rounding to multiples of 2^-f."""

    def truncate(self, a: Array) -> Array:
        return a

    def _nearest(self, a: Array) -> Array:
        return np.asarray(a, np.float64)


def seen_error(
    root: Term, bits: int, magnitude: Callable[[Tensor], float], offline: Collection[Term], seed: int
) -> float:
    """Returns the largest error of a term in fixed point on random tensors; parameters as for `error_bound`."""
    random = np.random.default_rng(seed)
    values = {
        name: random.uniform(-(most := magnitude(tensor)), most, tensor.dims)
        if tensor.dtype in FLOATS
        else np.zeros(tensor.dims, tensor.dtype)
        for name, tensor in Program(root).tensors.items()
    }
    reals, rounded = _Reals(bits), FixedPoint(bits)
    known = [term for term in postorder(root) if term in offline]
    weights = dict(zip(known, evaluate(known, values, reals), strict=True))
    (want,) = evaluate([root], values, reals, given=weights)
    given = {term: rounded.encode("", array, "float64") for term, array in weights.items()}
    (got,) = evaluate([root], values, rounded, given=given)
    return float(np.max(np.abs(want - got), initial=0))


def bound_of(term: Term, operands: Sequence[Bound], bits: int, magnitude: Callable[[Tensor], float]) -> Bound | None:
    """Returns the bound of an operator by its own rule, else by the invariants of its record; None without either."""
    name = term.operator.name
    if name in _LEAVES:
        return _LEAVES[name](term, magnitude)
    if name == "truncate":
        return Bound(operands[0].magnitude, operands[0].error + 1)
    if name == "linear-map":
        return _linear_map(term, operands[0])
    if name == "access-overlap-add":
        strides: Any = term.attributes[1]  # an element is in at most ceil(size / stride) windows per axis
        return _times(operands[0], math.prod(map(ceil_div, term.children[0].access.item, strides)))
    if name == "compute" and (bound := _computed(term, operands, bits)) is not None:
        return bound
    if operands and Keeps.DISTANCE in term.operator.kept(*term.arguments()):
        return _largest(operands)
    return None


def _times(bound: Bound, count: float) -> Bound:
    return Bound(bound.magnitude * count, bound.error * count)


def _linear_map(term: Term, operand: Bound) -> Bound:
    """Integer coefficients are additions; a row of fractions is an integer sum times 1/q, truncated once."""
    _, axis, _, coefficients = term.arguments()
    values, count = exact_numbers(coefficients) or (), term.children[0].access.dims[axis]
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
    """Returns the bound of a product or sum; `operands`: two for a product, else one for all elements of items."""
    kind, item = str(term.attributes[0]), term.children[0].access.item
    compute, _ = parse_compute(kind)
    if compute.category is Category.CONTRACTION and len(operands) == 2:
        a, b = operands
        length = item.drop(1).product()
        error = a.magnitude * b.error + b.magnitude * a.error + a.error * b.error * 2.0**-bits
        return Bound(length * a.magnitude * b.magnitude, length * error)
    if kind == "elementwise-mul" and len(operands) == 2:
        a, b = operands
        error = a.magnitude * b.error + b.magnitude * a.error + a.error * b.error * 2.0**-bits
        return Bound(a.magnitude * b.magnitude, error + 1)
    if not compute.linear or kind == "reduce-mean":  # a mean is truncated, like a product
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
    """Returns the bound of numbers in the program, which are public: integers are exact."""
    known = [v for v in values if v is not None]
    whole = all(v.denominator == 1 for v in known)
    return Bound(float(max((abs(v) for v in known), default=0)), 0.0 if whole else _TENSOR_ERROR)


_LEAVES: dict[str, Callable[[Any, Callable[[Tensor], float]], Bound]] = {
    "access-tensor": lambda t, magnitude: Bound(magnitude(t.attributes[0]), _TENSOR_ERROR),
    "access-literal": lambda t, _: _of_numbers(exact(t.attributes[0])),
    "full": lambda t, _: _of_numbers(exact(t.attributes[1])),
    "numbers": lambda t, _: _of_numbers(*(exact_numbers(t.attributes[1]) or ())),
    "eye": lambda t, _: Bound(1.0, 0.0),
    "iota": lambda t, _: Bound(float(t.access.size), 0.0),
}
