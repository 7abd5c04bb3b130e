"""Computes the array indices that a loop reads as affine functions of loop axes, by which Conv and pools are matched.

An operand is followed through movement, terms first and then nodes, down to an existing array. An index along one of
its axes is a loop axis, several of them in row-major order, or a sliding axis: a sum of multiples of axes, for windows
and padding. Axes of the loop are split where a reshape splits them.
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
    """An index along an axis of `size` elements; with `padded`, an index outside reads the fill.

    spread  the divisor of the index; indices in between read the fill
    """

    index: Index
    size: int
    padded: bool
    spread: int = 1


@dataclass
class Loop:
    """A loop over the elements of some dims, each split into axes, the outermost first.

    slides  axis -> the index, in other axes, that it replaces
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
        """Returns the index of an element along each of the dims."""
        return [index_map.flattened([_of(axis) for axis in own], [axis.size for axis in own]) for own in self.parts]

    def place(self, axis: Axis) -> Index:
        """Returns the index of an element along an axis."""
        return _of(axis)

    def cut(self, axis: Axis, size: int) -> None:
        """Splits an axis, with an inner part of `size`."""
        pair = [self.axis(axis.size // size), self.axis(size)]
        self.parts = [[part for own in parts for part in (pair if own == axis else [own])] for parts in self.parts]

    def resolved(self, axis: Axis) -> tuple[Index, int, int]:
        """Returns a sliding axis as an index in loop axes, times its spread, and the range of indices outside of the
        fill.

        Raises Unreadable.
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
                raise Unreadable  # windows of a padded or spread axis in between
            found = found + place * factor
            if inner.padded and known.spread == 1:
                low, high = max(low, first + known.index.constant), min(high, end + known.index.constant)
        return found, low, high

    def slid(self, atom: Atom) -> Axis:
        assert isinstance(atom, Axis), "places are affine"
        return atom


T = TypeVar("T")


class Unreadable(Exception):
    """The indices are not affine."""


class _Split(Exception):
    """An axis of the loop must be split, and everything read again."""

    def __init__(self, axis: Axis, size: int) -> None:
        self.axis, self.size = axis, size


@dataclass(frozen=True, slots=True)
class Reading:
    """An array, and the index of an element along each of its axes."""

    value: Value
    places: tuple[Index, ...]

    @property
    def axes(self) -> list[Axis]:
        """The loop axes along the array's axes in row-major order. Raises Unreadable if one occurs twice."""
        found = [axis for place, size in zip(self.places, self.value.dims, strict=True) for axis in _radix(place, size)]
        if len({*found}) != len(found):
            raise Unreadable
        return found

    def windowed(self, loop: Loop, inside: Collection[Axis], rows: Collection[Axis]) -> Reading:
        """Returns the reading with sliding axes for the axes that index windows in `rows` and positions `inside` them.

        If a row axis is innermost these are not windows: channels share an axis with it.
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
    """Reads in a loop, whose axes are split until that succeeds. Raises Unreadable."""
    for _ in range(32):
        loop.slides.clear()
        try:
            return make()
        except _Split as cut:
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
    """Returns where an element of a term is stored.

    value_of  returns the arrays of terms that compute
    fill      the allowed fill of padding
    first     maps from the loop to the term, each with the dims of its operand
    """
    found = list(places)
    for each, dims in first:
        if (below := _step(loop, each, found, dims)) is None:
            raise Unreadable
        found = below
    term, found = below_movement(loop, term, found, fill)
    return below_views(loop, graph, value_of(term), found)


def below_movement(
    loop: Loop, term: Term, places: Sequence[Index], fill: Fill | None = None
) -> tuple[Term, list[Index]]:
    """Follows movement to the term that computes the elements, and returns the indices in it."""
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
    """Follows views of a value to its base, and returns the indices in it."""
    found = list(places)
    while (node := graph.producers.get(value.name)) is not None and (known := _map_of(graph, value)) is not None:
        if (below := _step(loop, known, found, node.inputs[0].dims)) is None:
            break
        value, found = node.inputs[0], below
    return Reading(value, tuple(found))


def _map_of(graph: Graph, value: Value) -> IndexMap | None:
    """Returns the map of a node that only views its first input differently, or None."""
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
    """Returns the indices in the operand of a map; None if they are not affine. Raises _Split."""
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
                _request_split(loop, atom)
                return None
    found = []
    for index, size, is_padded, apart in zip(indices, dims, padded, spread, strict=True):
        if not is_padded and _radix_or_none(index, size) is not None:
            found.append(index)
            continue
        axis_ = loop.axis(size)
        loop.slides[axis_] = Sliding(index, size, is_padded, apart)
        found.append(_of(axis_))
    # A reshape drops an axis of one element, and with it whether the index is outside.
    held = {atom for index in found for atom, _ in index.terms}
    held |= {atom for axis in held if axis in loop.slides for atom, _ in loop.slides[loop.slid(axis)].index.terms}
    lost = {atom for place in places for atom, _ in place.terms if atom in loop.slides} - held
    return None if any(loop.slides[loop.slid(atom)].padded for atom in lost) else found


def _guards_whole(guard: object, index: Index, size: int) -> bool:
    """True if a guard only requires an index within its axis, or an integer index."""
    if isinstance(guard, Multiple):
        return index == guard.index // guard.divisor
    if not isinstance(guard, Within):
        return False
    apart = index - guard.index
    return not apart.terms and (guard.low + apart.constant, guard.high + apart.constant) == (0, size)


def _request_split(loop: Loop, atom: Divided) -> None:
    """Raises _Split if this is a quotient or remainder of an axis of the loop that can be split there."""
    terms = atom.expression.terms
    while isinstance(terms[0][0], Divided):
        atom = terms[0][0]
        terms = atom.expression.terms
    (axis, factor), alone = terms[0], len(terms) == 1 and not atom.expression.constant
    if not alone or factor != 1 or not isinstance(axis, Axis) or axis in loop.slides or axis.size % atom.divisor:
        return
    raise _Split(axis, atom.divisor)


def _radix(place: Index, size: int) -> list[Axis]:
    """Returns the axes whose row-major position an index is. Raises Unreadable."""
    found = _radix_or_none(place, size)
    if found is None:
        raise Unreadable
    return found


def _radix_or_none(place: Index, size: int) -> list[Axis] | None:
    axes = runs(place)
    return axes if axes is not None and prod(axis.size for axis in axes) == size else None


def runs(place: Index, step: int = 1) -> list[Axis] | None:
    """Returns axes, outermost first, such that an index is `step` times their row-major position; None if there are
    none.
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
