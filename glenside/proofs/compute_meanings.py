"""Defines the compute types on symbolic access patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from glenside.ir.dtypes import FLOATS
from glenside.ir.operator import COMPUTES, OPERATORS, Category, Keeps
from glenside.ir.operators import compute_text, parse_compute
from glenside.ir.types import AccessType
from glenside.proofs.access_patterns import Access, Case, Index
from glenside.proofs.elements import Element, apply, number, reduction
from glenside.proofs.symbolic_integers import Integer, at_least, integer

_ORDERED = {"argmax", "argmin"}
"""The reductions that depend on the order of the elements."""
_ZERO_TO_ZERO = {"reduce-prod", "reduce-max", "reduce-min", "argmax", "argmin"}
"""The reductions that map an item of zeros, of at least one, to zero; reduce-sum and reduce-mean are sums."""
_NEUTRAL = {"reduce-sum", "reduce-prod"}
"""The reductions that have a value where there is no element."""
_FLOATS_ALONE = {"softmax", "log-softmax", "reduce-mean"}
_KNOWN = {"negative", "elementwise-add", "elementwise-mul", "elementwise-div", "subtract", "dot-product"}
_KNOWN |= {"reduce-sum", "reduce-mean"}
"""The compute types that are sums and products; of all others little is known but their names."""
_PARAMETERS = {"clip": "0 6", "leaky-relu": "1/2", "mod": "floor", "compare": "lt", "argsort": "ascending"}


def casted(element: Element, dtype: str, wanted: str) -> Element:
    """Returns an element in another dtype: a function of which it is known that zero is kept."""
    return element if dtype == wanted else apply(f"cast {dtype} {wanted}", [element], keeps_zero=True)


def dot(case: Case, a: Access) -> Access:
    """Returns the dot product of the parts along the first axis of the item."""
    return compute(case, "dot-product", a)


def compute(case: Case, kind: str, a: Access) -> Access:
    """Returns a compute type of each item."""
    record, _ = parse_compute(kind)
    if record.check is not None and record.name in _FLOATS_ALONE:
        case.need(a.dtype in FLOATS)
    elements = _OF_CATEGORY[record.category]
    result: AccessType = OPERATORS["compute"].result(kind, a.type)
    return Access(result, elements(case, kind, a, result.dtype))


def keeps_zero(kind: str) -> bool:
    """True if a function maps zeros to zero."""
    keeps = parse_compute(kind)[0].keeps
    return not callable(keeps) and Keeps.ZERO in keeps


def category_of(kind: str) -> str:
    """Returns the category of a compute type."""
    return parse_compute(kind)[0].category.value


def representatives(category: str | None, named: Iterable[str]) -> list[str]:
    """Returns one compute type for each meaning in a category (in all, for None), and those that a clause names."""
    found: dict[tuple[object, ...], str] = {}
    for c in COMPUTES.values():
        kind = compute_text(c.name, *_PARAMETERS.get(c.name, "").split())
        own = c.name if c.name in _KNOWN or c.name in named else ""
        sets = tuple(c.name in names for names in (_ORDERED, _ZERO_TO_ZERO, _NEUTRAL, _FLOATS_ALONE))
        if category in (None, c.category.value):
            found.setdefault((c.category, c.dtype, keeps_zero(kind), own, *sets), kind)
    return list(found.values())


def _pointwise(case: Case, kind: str, a: Access, dtype: str) -> Callable[[Index], Element]:
    if kind == "negative":
        return lambda i: a.at(i).scaled(Fraction(-1))
    return lambda i: apply(kind, [a.at(i)], keeps_zero(kind))


def _fold(case: Case, kind: str, a: Access, dtype: str) -> Callable[[Index], Element]:
    case.need(a.split < a.rank)
    s, first = a.split, a.item[0]
    case.require(at_least(first, 1))
    count = case.count(first)
    if count is None:
        ((v, n),) = case.bound([first])
        return lambda i: reduction(f"fold {kind}", [(v, n)], a.at((*i[:s], v, *i[s:])), ordered=True)
    return lambda i: _folded(kind, a.dtype, [a.at((*i[:s], integer(k), *i[s:])) for k in range(count)])


def _folded(kind: str, dtype: str, parts: Sequence[Element]) -> Element:
    first, *rest = parts
    if rest and kind not in _KNOWN:
        return apply(kind, parts)
    for part in rest:
        if kind == "elementwise-add":
            first = first + part
        elif kind == "subtract":
            first = first + part.scaled(Fraction(-1))
        elif kind == "elementwise-mul":
            first = first * part
        elif kind == "elementwise-div" and dtype in FLOATS:
            first = first * _reciprocal(part)
        else:  # a quotient of integers
            first = apply(kind, [first, part])
    return first


def _reciprocal(element: Element) -> Element:
    one = str(element) == str(number(Fraction(1)))
    return element if one else apply("reciprocal", [element])


def _contraction(case: Case, kind: str, a: Access, dtype: str) -> Callable[[Index], Element]:
    case.need(a.split < a.rank)
    factors = case.bound([a.item[0]])
    ranges = case.bound(a.item[1:])
    count = case.count(a.item[0])
    inside = tuple(v for v, _ in ranges)

    def part(i: Index, k: Integer) -> Element:
        return casted(a.at((*i, k, *inside)), a.dtype, dtype)

    def at(i: Index) -> Element:
        if count is None:
            return reduction("product", factors, part(i, factors[0][0])).over(ranges)
        found = number(Fraction(1))
        for k in range(count):
            found = found * part(i, integer(k))
        return found.over(ranges)

    return at


def _reduction(case: Case, kind: str, a: Access, dtype: str) -> Callable[[Index], Element]:
    ranges = case.bound(a.item)
    inside = tuple(v for v, _ in ranges)
    if kind not in _NEUTRAL:
        case.require(*(at_least(n, 1) for n in a.item))
    if kind == "reduce-sum":
        return lambda i: casted(a.at((*i, *inside)), a.dtype, dtype).over(ranges)
    if kind == "reduce-mean":
        share = _reciprocal(number(Fraction(1)).over(ranges))
        return lambda i: share * a.at((*i, *inside)).over(ranges)
    ordered, zero = kind in _ORDERED, kind in _ZERO_TO_ZERO
    return lambda i: reduction(kind, ranges, a.at((*i, *inside)), ordered=ordered, zero=zero)


def _normalization(case: Case, kind: str, a: Access, dtype: str) -> Callable[[Index], Element]:
    ranges, s = case.bound(a.item), a.split
    inside = tuple(v for v, _ in ranges)
    return lambda i: reduction(kind, ranges, a.at((*i[:s], *inside)), ordered=True, index=i[s:])


_OF_CATEGORY: dict[Category, Callable[[Case, str, Access, str], Callable[[Index], Element]]] = {
    Category.POINTWISE: _pointwise,
    Category.FOLD: _fold,
    Category.REDUCTION: _reduction,
    Category.NORMALIZATION: _normalization,
    Category.CONTRACTION: _contraction,
}
