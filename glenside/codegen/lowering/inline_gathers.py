"""Finds the terms that gathers read, and sums of a few gathered elements (linear resizes), which are not stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from glenside.codegen.loop_ir.affine_analysis import coefficient, is_direct
from glenside.codegen.loop_ir.nest_builder import Places
from glenside.codegen.lowering.fill_rules import category_of, is_unrolled
from glenside.ir.index_map import Axis
from glenside.ir.operator import Category
from glenside.ir.operators.compute import compute_of
from glenside.ir.term import Term

_MAX_ELEMENTS = 8
"""Maximum gathered elements of a sum, which is unrolled."""


@dataclass(frozen=True)
class InlineGathers:
    """The gathers of a program, whose elements are reads at computed indices.

    sources  gather -> the stored term that it reads, the axis along which it gathers, and the step of an index along it
    sums     sums of a few gathered elements
    within   the gathers in these sums, which are not stored
    """

    sources: Mapping[Term, tuple[Term, int, int]] = field(default_factory=dict)
    sums: frozenset[Term] = frozenset()
    within: frozenset[Term] = frozenset()


def inline_gathers(order: Sequence[Term]) -> InlineGathers:
    """Returns the gathers among terms, children first. A gather in a sum has one reader."""
    readers = Counter(child for term in order for child in term.children)
    sources = {term: _source(*_operand_and_axis(term)) for term in order if term.operator.name == "access-gather"}
    below = {term: frozenset(_gathers_below(term.children[0], readers)) for term in order if _is_short_sum(term)}
    sums = frozenset(term for term, gathers in below.items() if gathers)
    return InlineGathers(sources, sums, frozenset[Term]().union(*below.values()))


def source_indices(term: Term, base: Term, places: Places) -> Places:
    """Returns the indices in `base` of an element of a term that permutes it."""
    while term is not base:
        assert term.index_map is not None, "it moves elements"
        (piece,) = term.index_map.pieces
        term, places = term.children[piece.operand], piece.at(places).indices
    return places


def _is_short_sum(term: Term) -> bool:
    if term.operator.name != "compute":
        return False
    kind = compute_of(term)[0]
    return kind.name == "reduce-sum" and 1 <= term.children[0].access.item.product() <= _MAX_ELEMENTS


def _gathers_below(term: Term, readers: Mapping[Term, int]) -> Iterator[Term]:
    """Yields the gathers whose elements are moved and multiplied only, each read once."""
    if readers[term] != 1:
        return
    if term.operator.name == "access-gather":
        yield term
    elif (term.operator.moves and term.index_map is not None) or _is_formula(term):
        for child in term.children:
            yield from _gathers_below(child, readers)


def _is_formula(term: Term) -> bool:
    if term.operator.name != "compute":
        return False
    category = category_of(term)
    return category is Category.POINTWISE or (category is Category.FOLD and is_unrolled(term))


def _operand_and_axis(gather: Term) -> tuple[Term, int]:
    a, _, axis = gather.arguments()
    return a, axis


def _source(term: Term, axis: int) -> tuple[Term, int, int]:
    """Returns the term below movements along whose axis a step along this axis is a number of steps, and these two."""
    steps = 1
    while term.operator.moves and term.index_map is not None and len(term.index_map.pieces) == 1:
        (piece,) = term.index_map.pieces
        if piece.guards or term.index_map.fill is not None:
            break
        own = Axis(axis, term.access.dims[axis])
        factors = [coefficient(index, own) for index in piece.indices]
        along = [i for i, factor in enumerate(factors) if factor]
        if len(along) != 1 or not all(is_direct(index, own) for index in piece.indices):
            break
        term, axis, steps = term.children[piece.operand], along[0], steps * factors[along[0]]
    return term, axis, steps
