"""Where the elements of an operand lie, as affine places along axes of a loop: what Conv and pools are found by.

An operand is followed through whatever only moves elements, terms first and then nodes, down to an array that is there.
A place along one of its axes is a loop's axis, several of them in row-major order, or it slides: it is a sum of
multiples of axes, in windows and under padding. Axes of the loop are cut where a reshape cuts them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import TypeVar

from glenside.exporters.onnx.graph import Graph
from glenside.exporters.writer import Value
from glenside.ir import index_map
from glenside.ir.index_map import Atom, Axis, Divided, Fill, Index, IndexMap, Multiple, Within
from glenside.ir.term import Term
from glenside.ir.types import Dims


@dataclass(frozen=True, slots=True)
class Sliding:
    """A place along an axis of `size` elements; with `padded`, one outside of them is of the fill.

    spread  the place is the index divided by it; what is between is of the fill
    """

    index: Index
    size: int
    padded: bool
    spread: int = 1


@dataclass
class Loop:
    """Axes over the elements of some dims, each in parts, the outermost first.

    slides  axis -> the place, in other axes, that it stands for
    """

    parts: list[list[Axis]]
    numbers: Iterator[int] = field(default_factory=count)
    slides: dict[Axis, Sliding] = field(default_factory=dict)

    @classmethod
    def over(cls, dims: Sequence[int]) -> Loop:
        loop = cls([])
        loop.parts = [[loop.axis(size)] if size != 1 else [] for size in dims]
        return loop

    def axis(self, size: int) -> Axis:
        return Axis(next(self.numbers), size)

    def places(self) -> list[Index]:
        """Where along each of the dims an element is."""
        return [index_map.flattened([_of(axis) for axis in own], [axis.size for axis in own]) for own in self.parts]

    def place(self, axis: Axis) -> Index:
        """Where along an axis an element is."""
        return _of(axis)

    def cut(self, axis: Axis, size: int) -> None:
        """The inner part of an axis is of that size."""
        pair = [self.axis(axis.size // size), self.axis(size)]
        self.parts = [[part for own in parts for part in (pair if own == axis else [own])] for parts in self.parts]

    def resolved(self, axis: Axis) -> tuple[Index, int, int]:
        """The place that a sliding axis stands for, times its spread, in axes of the dims, and the first place and the
        end of those that are not of the fill. Raises Unreadable.
        """
        known = self.slides[axis]
        found, low, high = Index() + known.index.constant, 0, known.size
        for atom, factor in known.index.terms:
            if atom not in self.slides:
                found = found + Index(((atom, factor),))
                continue
            inner, (place, first, end) = self.slides[self.slid(atom)], self.resolved(self.slid(atom))
            alone, whole = factor == 1 and len(known.index.terms) == 1, (first, end) == (0, inner.size)
            if inner.spread != 1 or (inner.padded and not alone) or (known.spread != 1 and not whole):
                raise Unreadable  # windows of what is padded, or spread, in between
            found = found + place * factor
            if inner.padded and known.spread == 1:
                low, high = max(low, first + known.index.constant), min(high, end + known.index.constant)
        return found, low, high

    def slid(self, atom: Atom) -> Axis:
        assert isinstance(atom, Axis), "places are affine"
        return atom


T = TypeVar("T")


class Unreadable(Exception):
    """Places that are no affine function."""


class _Cut(Exception):
    """An axis of the loop is to be cut, and everything read again."""

    def __init__(self, axis: Axis, size: int) -> None:
        self.axis, self.size = axis, size


@dataclass(frozen=True, slots=True)
class Reading:
    """An array, and where along each of its axes an element is."""

    value: Value
    places: tuple[Index, ...]

    @property
    def axes(self) -> list[Axis]:
        """The loop's axes along those of the array in row-major order. Raises Unreadable where one comes twice."""
        found = [axis for place, size in zip(self.places, self.value.dims, strict=True) for axis in _radix(place, size)]
        if len({*found}) != len(found):
            raise Unreadable
        return found

    def windowed(self, loop: Loop, inside: Collection[Axis], rows: Collection[Axis]) -> Reading:
        """The same where axes that count places in windows `inside` and windows, of which none overlap, slide.

        Where a row is innermost these are no windows: channels lie before it, in one axis with it.
        """
        places = list(self.places)
        for i, place in enumerate(places):
            own = {atom for atom, _ in place.terms}
            innermost = min(place.terms, key=lambda term: abs(term[1]), default=(None, 0))[0]
            if own & {*inside} and own & {*rows} and innermost not in rows:
                axis = loop.axis(self.value.dims[i])
                loop.slides[axis] = Sliding(place, axis.size, padded=False)
                places[i] = _of(axis)
        return Reading(self.value, tuple(places))


def read(loop: Loop, make: Callable[[], T]) -> T:
    """What is read in a loop, whose axes are cut until that is possible. Raises Unreadable."""
    for _ in range(32):
        loop.slides.clear()
        try:
            return make()
        except _Cut as cut:
            loop.cut(cut.axis, cut.size)
    raise Unreadable


def followed(
    loop: Loop,
    graph: Graph,
    term: Term,
    places: Sequence[Index],
    value_of: Callable[[Term], Value],
    fill: Fill = Fill.ZERO,
    first: Sequence[tuple[IndexMap, Dims]] = (),
) -> Reading:
    """An element of a term in the array that it lies in.

    value_of  gives the arrays of what does not only move
    fill      of the padding that there may be
    first     maps, each with the dims of its operand, of what is read of the term
    """
    found = list(places)
    for each, dims in first:
        if (below := _step(loop, each, found, dims)) is None:
            raise Unreadable
        found = below
    term, found = beneath(loop, term, found, fill)
    return below_views(loop, graph, value_of(term), found)


def beneath(loop: Loop, term: Term, places: Sequence[Index], fill: Fill | None = None) -> tuple[Term, list[Index]]:
    """The term that one only moves elements of, and where an element is there."""
    found = list(places)
    while term.operator.moves and len(term.children) == 1:
        known = term.index_map
        (child,) = term.children
        if known is None or known.fill not in (None, fill) or len(known.pieces) != 1:
            break
        if child.access.dtype != term.access.dtype:
            break
        if (below := _step(loop, known, found, child.access.dims)) is None:
            break
        term, found = child, below
    return term, found


def below_views(loop: Loop, graph: Graph, value: Value, places: Sequence[Index]) -> Reading:
    """An element of a value in what that is a view of."""
    found = list(places)
    while (node := graph.producers.get(value.name)) is not None and (known := _map_of(graph, value)) is not None:
        if (below := _step(loop, known, found, node.inputs[0].dims)) is None:
            break
        value, found = node.inputs[0], below
    return Reading(value, tuple(found))


def _map_of(graph: Graph, value: Value) -> IndexMap | None:
    """The map of a node that only gives another view of its first input."""
    node = graph.producers[value.name]
    if node.domain or node.op not in ("Reshape", "Transpose", "Expand"):
        return None
    x = node.inputs[0].dims
    if node.op == "Reshape":
        return index_map.reshaped(x, value.dims)
    if node.op == "Transpose":
        return index_map.transposed(x, node.attributes["perm"])
    return index_map.broadcast(x, value.dims) if len(x) == value.rank else None


def _step(loop: Loop, known: IndexMap, places: Sequence[Index], dims: Sequence[int]) -> list[Index] | None:
    """The places in the operand of a map, of these dims; None where they are not affine. Raises _Cut."""
    piece = known.pieces[0].at(places)
    padded, spread, indices = [False] * len(dims), [1] * len(dims), list(piece.indices)
    for guard in piece.guards:
        axis = next((i for i, n in enumerate(dims) if _guards_whole(guard, piece.indices[i], n)), None)
        if axis is None:
            return None
        padded[axis] = True
        if isinstance(guard, Multiple):
            indices[axis], spread[axis] = guard.index, guard.divisor
    for index in indices:
        for atom, _ in index.terms:
            if isinstance(atom, Divided):
                _ask_for_cut(loop, atom)
                return None
    found = []
    for index, size, is_padded, apart in zip(indices, dims, padded, spread, strict=True):
        if not is_padded and _radix_or_none(index, size) is not None:
            found.append(index)
            continue
        axis_ = loop.axis(size)
        loop.slides[axis_] = Sliding(index, size, is_padded, apart)
        found.append(_of(axis_))
    # A reshape forgets an axis of one element, and with it whether the place is outside.
    held = {atom for index in found for atom, _ in index.terms}
    held |= {atom for axis in held if axis in loop.slides for atom, _ in loop.slides[loop.slid(axis)].index.terms}
    lost = {atom for place in places for atom, _ in place.terms if atom in loop.slides} - held
    return None if any(loop.slides[loop.slid(atom)].padded for atom in lost) else found


def _guards_whole(guard: object, index: Index, size: int) -> bool:
    """Whether a guard asks for nothing but that a place is within its axis, or a whole number."""
    if isinstance(guard, Multiple):
        return index == guard.index // guard.divisor
    if not isinstance(guard, Within):
        return False
    apart = index - guard.index
    return not apart.terms and (guard.low + apart.constant, guard.high + apart.constant) == (0, size)


def _ask_for_cut(loop: Loop, atom: Divided) -> None:
    """Raises _Cut for an axis of the loop that a quotient or a remainder is of, where it can be cut there."""
    terms = atom.expression.terms
    while isinstance(terms[0][0], Divided):
        atom = terms[0][0]
        terms = atom.expression.terms
    (axis, factor), alone = terms[0], len(terms) == 1 and not atom.expression.constant
    if not alone or factor != 1 or not isinstance(axis, Axis) or axis in loop.slides or axis.size % atom.divisor:
        return
    raise _Cut(axis, atom.divisor)


def _radix(place: Index, size: int) -> list[Axis]:
    """The axes whose elements in row-major order a place counts. Raises Unreadable."""
    found = _radix_or_none(place, size)
    if found is None:
        raise Unreadable
    return found


def _radix_or_none(place: Index, size: int) -> list[Axis] | None:
    axes = runs(place)
    return axes if axes is not None and prod(axis.size for axis in axes) == size else None


def runs(place: Index, step: int = 1) -> list[Axis] | None:
    """The axes, outermost first, of which a place without a constant counts the elements in row-major order, times
    `step`; None where it does not.
    """
    axes: list[Axis] = []
    for atom, factor in sorted(place.terms, key=lambda term: term[1]):
        if not isinstance(atom, Axis) or factor != step:
            return None
        axes.insert(0, atom)
        step *= atom.size
    return None if place.constant else axes


def _of(axis: Axis) -> Index:
    return Index(((axis, 1),))
