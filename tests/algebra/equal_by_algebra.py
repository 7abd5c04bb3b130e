"""Decides whether two terms are equal by what the search knows: normal forms, and rules in an e-graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, permutations
from typing import Any
from unittest import mock

import numpy as np

from glenside.algebra import normal_form as normal_forms
from glenside.algebra.indices import Index
from glenside.algebra.merging import is_contraction
from glenside.algebra.monomials import Monomial
from glenside.algebra.normal_form import normal_form
from glenside.algebra.row_operators import Affine, Selected, affine
from glenside.algebra.selections import selection
from glenside.builder.layout import split_at
from glenside.builder.pointwise import subtract
from glenside.egraph.encode import program_nodes
from glenside.egraph.saturation import Limits
from glenside.fuzzing import soundness
from glenside.ir.operator import Category
from glenside.ir.operators.compute import parse_compute
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder, rebuild
from glenside.rewrites import of_families
from glenside.semantics.interpreter import evaluate

FAMILIES = ("algebra", "through-computes", "through-products", "windows", "folding", "analyses", "constant-analyses")
"""The rules that move elements, whatever the target."""
_LIMITS = Limits(nodes=4_000, iterations=8, seconds=60.0)

Names = dict[Index, Index]


def equality(left: Term, right: Term) -> str:
    """Returns what finds that two terms are equal, one of `WAYS`; "" if nothing does."""
    pairs = list(zip(left.children, right.children, strict=True)) if is_tuple(left) else [(left, right)]
    found = [_of_pair(split_at(a, 0), split_at(b, 0)) for a, b in pairs]
    return "" if "" in found else max(found, key=WAYS.index)


WAYS = ("same program", "constants", "known matrices", "normal form", "normal forms of parts", "rules")


def is_tuple(term: Term) -> bool:
    """True for a program of several results."""
    return term.operator.name == "construct-tuple"


def _of_pair(left: Term, right: Term) -> str:
    if left is right:
        return "same program"
    left, right = map(_with_selections, (left, right))
    if left is right:
        return "known matrices"
    if not Program(left).tensors and not Program(right).tensors:
        return "constants" if np.array_equal(*evaluate([left, right], {})) else ""
    if have_equal_forms(left, right):
        return "normal form"
    if have_equal_parts(left, right):
        return "normal forms of parts"
    return "rules" if in_one_class(left, right) else ""


def _with_selections(term: Term) -> Term:
    """Returns a term with products with known matrices of zeros and ones as movement."""
    found = {each: selection(each) for each in postorder(term) if is_contraction(each)}
    moved = {each: one.term for each, one in found.items() if one is not None}
    return split_at(rebuild(term, lambda each, _: moved.get(each)), 0) if moved else term


def have_equal_parts(left: Term, right: Term) -> bool:
    """True if both have equal normal forms, or are cut where something is concatenated, and all parts have."""
    if left is right or have_equal_forms(left, right):
        return True
    for axis, size in enumerate(left.access.dims):
        cuts = sorted({cut for side in (left, right) for cut in _cuts(side, size)})
        if cuts:
            ends = [0, *cuts, size]
            parts = ([part(side, axis, lo, hi) for lo, hi in pairwise(ends)] for side in (left, right))
            if all(map(have_equal_parts, *parts)):
                return True
    return False


def _cuts(term: Term, size: int) -> set[int]:
    """Returns where concatenations below, and groups of products, end along an axis of a size."""
    cuts: set[int] = set()
    for each in postorder(term):
        axis: Any = each.attributes[0] if each.attributes else None
        if each.operator.name == "access-concatenate" and each.access.dims[axis] == size:
            cuts.add(each.children[0].access.dims[axis])
        if each.operator.name == "access-product" and axis == 1 and size % each.access.dims[0] == 0:
            cuts |= {*range(0, size, size // each.access.dims[0])} - {0}
    return cuts


def part(term: Term, axis: int, lo: int, hi: int) -> Term:
    """Returns the slice of a term, computed from slices of operands as far down as that goes."""
    if (lo, hi) == (0, term.access.dims[axis]):
        return term
    find = _PARTS.get(term.operator.name)
    found = None if find is None else find(term, axis, lo, hi)
    return build("access-slice", term, axis, lo, hi) if found is None else found


def _of_same_axis(term: Term, axis: int, lo: int, hi: int) -> Term:
    return build(term.operator.name, part(term.children[0], axis, lo, hi), *term.attributes)


def _of_concatenation(term: Term, axis: int, lo: int, hi: int) -> Term | None:
    first, second = term.children
    along: Any = term.attributes[0]
    if along != axis:
        return build(term.operator.name, *(part(child, axis, lo, hi) for child in term.children), along)
    at = first.access.dims[axis]
    return part(first, axis, lo, hi) if hi <= at else part(second, axis, lo - at, hi - at) if lo >= at else None


def _of_transpose(term: Term, axis: int, lo: int, hi: int) -> Term:
    order: Any = term.attributes[0]
    return build(term.operator.name, part(term.children[0], order[axis], lo, hi), order)


def _of_squeeze(term: Term, axis: int, lo: int, hi: int) -> Term:
    gone: Any = term.attributes[0]
    return build(term.operator.name, part(term.children[0], axis + (axis >= gone), lo, hi), gone)


def _of_pad(term: Term, axis: int, lo: int, hi: int) -> Term | None:
    return None if term.attributes[1] == axis else _of_same_axis(term, axis, lo, hi)


def _of_windows(term: Term, axis: int, lo: int, hi: int) -> Term | None:
    return _of_same_axis(term, axis, lo, hi) if axis < term.children[0].access.split else None


def _of_compute(term: Term, axis: int, lo: int, hi: int) -> Term | None:
    (x,), kind = term.children, str(term.attributes[0])
    if x.operator.name != "access-product":
        pointwise = parse_compute(kind)[0].category is Category.POINTWISE
        return build("compute", kind, part(x, axis, lo, hi)) if pointwise or axis < x.access.split else None
    a, b = x.children
    shared: Any = x.attributes[0]
    left, shape = a.access.split, x.access.split
    in_a, in_b = axis < left, axis < shared or axis >= left
    if axis >= shape:  # an axis of items: of both, if those are single elements or pairs of them
        if kind == "dot-product":
            return None
        pair = (part(each, each.access.split + axis - shape, lo, hi) for each in (a, b))
        return build("compute", kind, build("access-product", *pair, shared))
    a = part(a, axis, lo, hi) if in_a else a
    b = part(b, axis if axis < shared else axis - left + shared, lo, hi) if in_b else b
    return build("compute", kind, build("access-product", a, b, shared))


_PARTS: dict[str, Callable[[Term, int, int, int], Term | None]] = {
    "access": _of_same_axis,
    "access-concatenate": _of_concatenation,
    "access-transpose": _of_transpose,
    "access-squeeze": _of_squeeze,
    "access-pad": _of_pad,
    "access-windows": _of_windows,
    "compute": _of_compute,
}


def have_equal_forms(left: Term, right: Term) -> bool:
    """True if all monomials of the difference cancel."""
    with mock.patch.multiple(normal_forms, MAX_MONOMIALS=64, MAX_FACTORS=16):
        difference = normal_form(_sunk(subtract(left, right)), lambda _: True, cuts_all=True)
    if difference is None or any(isinstance(row, Selected) for one in difference.monomials for row in one.rows):
        return False
    rest = list(map(_Sum.of, difference.monomials))
    names = {index: index for index in difference.indices}
    while rest:
        one = rest.pop()
        alike = [other for other in rest if next(one.agreements(other, names), None) is not None]
        rest = [other for other in rest if other not in alike]
        if one.scale + sum(other.scale for other in alike):
            return False
    return True


Linear = frozenset[tuple[Index, int]]
"""A sum of indices, each times a number."""
Place = tuple[int, Linear]
"""A number plus a sum of indices."""


@dataclass(frozen=True)
class _Sum:
    """A monomial without row operators: the sum, over all indices that the result lacks, of a product of elements.

    elements     operands, with the place of the element along each axis
    constraints  sums of indices, and the first and last value at which the product is not 0
    """

    scale: Fraction
    elements: tuple[tuple[Term, tuple[Place, ...]], ...]
    constraints: frozenset[tuple[Linear, int, int]]

    @staticmethod
    def of(one: Monomial) -> _Sum:
        rows = {row.source: row for row in one.rows if isinstance(row, Affine)}

        def place(terms: Iterable[tuple[Index, int]]) -> Place:
            offset, found = 0, dict[Index, int]()
            for index, c in terms:
                more, inner = (0, {(index, 1)}) if index not in rows else place(rows[index].terms)
                offset += c * (more + (rows[index].offset if index in rows else 0))
                for each, factor in inner:
                    found[each] = found.get(each, 0) + c * factor
            return offset, frozenset((index, c) for index, c in found.items() if index.size > 1)

        constraints = set()
        for row in rows.values():
            if not row.is_total:
                offset, linear = place(row.terms)
                low, high = (end - row.offset - offset for end in row.chosen)
                if (
                    sum(min(c * (i.size - 1), 0) for i, c in linear) < low
                    or sum(c * (i.size - 1) for i, c in linear) > high
                ):
                    constraints.add((linear, low, high))
        scale, elements = one.scale, []
        for own in one.operands:
            if own.term.operator.name == "full" and not any(place(affine(axis))[1] for axis in own.axes):
                scale *= Fraction(str(own.term.attributes[1]))
            else:
                elements.append((own.term, tuple(place(affine(axis)) for axis in own.axes)))
        return _Sum(scale, tuple(elements), frozenset(constraints))

    def agreements(self, other: _Sum, names: Names, used: frozenset[int] = frozenset()) -> Iterator[Names]:
        """Yields the names of the indices of the other under which both are the same."""
        at = len(used)
        if len(self.elements) != len(other.elements):
            return
        if at == len(self.elements):
            if {(_named(linear, names), lo, hi) for linear, lo, hi in self.constraints} == other.constraints:
                yield names
            return
        term, places = self.elements[at]
        for k, (each, theirs) in enumerate(other.elements):
            if k not in used and len(places) == len(theirs) and _are_equal(term, each):
                for more in _places(places, theirs, names):
                    yield from self.agreements(other, more, used | {k})


def _named(linear: Linear, names: Names) -> Linear:
    return frozenset((names.get(index, index), c) for index, c in linear)


def _places(ours: Sequence[Place], theirs: Sequence[Place], names: Names) -> Iterator[Names]:
    """Yields the names under which places are the same."""
    if not ours:
        yield names
        return
    (offset, left), (other, right) = ours[0], theirs[0]
    known = {(names[index], c) for index, c in left if index in names}
    new = sorted((each for each in left if each[0] not in names), key=_size)
    rest = right - known
    if offset != other or not known <= right or len(new) != len(rest) or {i for i, _ in rest} & {*names.values()}:
        return
    for order in permutations(rest):
        if all(_size(a) == _size(b) for a, b in zip(new, order, strict=True)):
            more = {a: b for (a, _), (b, _) in zip(new, order, strict=True)}
            yield from _places(ours[1:], theirs[1:], names | more)


def _size(term: tuple[Index, int]) -> tuple[int, int]:
    return term[1], term[0].size


def _sunk(term: Term) -> Term:
    """Returns a term with slices computed from slices of operands."""

    def sunk(each: Term, children: Sequence[Term]) -> Term | None:
        attributes: Any = each.attributes
        return part(children[0], *attributes) if each.operator.name == "access-slice" else None

    return rebuild(term, sunk)


def _are_equal(one: Term, other: Term) -> bool:
    """True for the same function of equal terms."""
    if one is other:
        return True
    if one.type != other.type or (one.operator, one.attributes) != (other.operator, other.attributes):
        return False
    if one.operator.name != "compute" or other.children[0].operator.name == "access-product":
        return False
    split = one.children[0].access.split
    return split == other.children[0].access.split and have_equal_parts(
        *(split_at(each.children[0], 0) for each in (one, other))
    )


def in_one_class(left: Term, right: Term) -> bool:
    """True if the rules that move elements unite both."""
    rules = of_families(FAMILIES)
    both = Program(build("construct-tuple", left, right))
    snapshot, _ = soundness.saturated(both, rules, _LIMITS)
    *_, root = program_nodes(both.term)
    node = snapshot.nodes[snapshot.classes[snapshot.program[-1]][0]]
    assert root is both.term
    return len(set(node.children)) == 1
