"""Concatenates and pads in place: operands are stored within the buffer of the result from the start.

In an index map whose pieces are whole operands moved by constants, these constants are the offsets of the operands in
the result. The nest of an operand fills it there. The nest of the map only fills the padding, and copies operands that
are stored elsewhere already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from glenside.codegen.loop_ir.affine_analysis import coefficient
from glenside.codegen.loop_ir.intrinsics import MAX_INTERLEAVE
from glenside.codegen.loop_ir.ir import Layout, Statement, Store
from glenside.codegen.loop_ir.nest_builder import Filling, Memory, View, around, under
from glenside.codegen.loop_ir.scalar_expr import number
from glenside.codegen.lowering.fill_rules import filler
from glenside.codegen.lowering.inline_reductions import join_of
from glenside.codegen.lowering.materialize import LEAVES
from glenside.ir.index_map import Axis, Fill, Index, IndexMap, Within, axes_of, flattened, reshaped
from glenside.ir.term import Term
from glenside.ir.types import Dims

Border = tuple[tuple[int, ...], tuple[int, ...], Fill]
"""A box of padding in a buffer: begin, end, fill."""


@dataclass
class Hosting:
    """The terms stored within the buffer of a concatenated or padded term.

    views    term -> its view of the buffer
    copies   terms that must be copied, with their views
    borders  boxes of padding
    inside   concatenated or padded terms within the buffer
    """

    views: dict[Term, View] = field(default_factory=dict)
    copies: list[tuple[Term, View]] = field(default_factory=list)
    borders: list[Border] = field(default_factory=list)
    inside: set[Term] = field(default_factory=set)


def layouts_of(views: Mapping[Term, View], hosted: Iterable[Hosting]) -> tuple[Layout, ...]:
    """Returns the layouts of terms, and of the copies of terms."""
    copies = [part for own in hosted for part in own.copies]
    found = [view.layout(term) for term, view in views.items()]
    return (*found, *(replace(view.layout(term), copy=True) for term, view in copies))


def parts_of(term: Term) -> list[tuple[Term, tuple[int, ...]]] | None:
    """Returns the whole operands that a term concatenates or pads, with their offsets; None if it is no such term."""
    found = term.index_map if term.operator.moves else None
    if found is None or (len(found.pieces) == 1) != (found.fill is not None):
        return None
    parts = []
    for piece in found.pieces:
        child, offsets = term.children[piece.operand], []
        for place, (axis, index) in enumerate(zip(axes_of(found.dims), piece.indices, strict=False)):
            moved = (axis - index) if found.dims[place] != 1 else index * -1
            if moved.terms or not 0 <= moved.constant <= found.dims[place] - child.access.dims[place]:
                return None
            offsets.append(moved.constant)
        if len(piece.indices) != len(found.dims) or not all(isinstance(g, Within) for g in piece.guards):
            return None
        parts.append((child, tuple(offsets)))
    covered = sum(child.access.size for child, _ in parts)
    return parts if found.fill is not None or covered == found.dims.product() else None


def is_reshaped(term: Term) -> bool:
    """True if a term has the elements of its only operand in the same order."""
    found = term.index_map if term.operator.moves and len(term.children) == 1 else None
    if found is None or found.fill is not None or len(found.pieces) != 1 or found.pieces[0].guards:
        return False
    (child,) = term.children
    return child.access.size == term.access.size and _same_order(found, child.access.dims)


def _same_order(found: IndexMap, operand: Dims) -> bool:
    return flattened(found.pieces[0].indices, operand) == flattened(axes_of(found.dims), found.dims)


def permuted_concatenation(term: Term) -> tuple[Term, tuple[int, ...]] | None:
    """Returns the concatenation whose elements a term permutes, and the order of its axes in the term; else None.

    Example: phases concatenated along an axis of their own, then interleaved along time, behind the channels.
    """
    path = [term]
    while parts_of(path[-1]) is None:
        own = path[-1]
        if not own.operator.moves or len(own.children) != 1 or own.children[0].access.size != own.access.size:
            return None
        path.append(own.children[0])
    dims = path[-1].access.dims
    at: Sequence[Index] = axes_of(dims)
    for own in reversed(path[:-1]):
        moved = _above(own, at)
        if moved is None:
            return None
        at = moved
    place = flattened(at, term.access.dims)
    steps = [coefficient(place, Axis(i, n)) if n != 1 else term.access.size for i, n in enumerate(dims)]
    order = tuple(sorted(range(len(dims)), key=lambda axis: -steps[axis]))
    lies = flattened([axes_of(dims)[axis] for axis in order], [dims[axis] for axis in order])
    return (path[-1], order) if place == lies else None


def are_interleaved(term: Term, order: Sequence[int], lanes: int) -> bool:
    """True if a term concatenates a few float32 sums whose elements are interleaved when its axes are in `order`.

    Each sum must fill at least two vectors of `lanes` elements.
    """
    dims, parts = term.access.dims, _whole_parts(term)
    moved = [axis for axis in order if dims[axis] != 1]
    if len(parts) < 2 or len(moved) < 2:
        return False
    along, phase = moved[-2:]
    if not 1 < dims[phase] == len(parts) <= MAX_INTERLEAVE or dims[along] < 2 * lanes or term.access.dtype != "float32":
        return False
    return all(part.access.dims[phase] == 1 and join_of(_of_order(part)) is not None for part in parts)


def _whole_parts(term: Term) -> list[Term]:
    """Returns the operands of nested concatenations."""
    inner = term
    while is_reshaped(inner) and inner.children[0].access.dims == term.access.dims:
        (inner,) = inner.children
    parts = parts_of(inner)
    return [term] if parts is None else [part for child, _ in parts for part in _whole_parts(child)]


def _of_order(term: Term) -> Term:
    while is_reshaped(term):
        (term,) = term.children
    return term


def _above(term: Term, at: Sequence[Index]) -> Sequence[Index] | None:
    """Maps the index of an element of the only operand to its index in a term; None if the term skips elements."""
    (child,) = term.children
    found = term.index_map
    if found == reshaped(child.access.dims, term.access.dims):
        return under(term.access.dims, child.access.dims, at)
    if found is None or found.fill is not None or len(found.pieces) != 1 or found.pieces[0].guards:
        return None
    where = {Axis(i, n): i for i, n in enumerate(found.dims)}
    moved = [Index()] * len(where)
    for index, here in zip(found.pieces[0].indices, at, strict=True):
        if index.constant or len(index.terms) > 1:
            return None
        for axis, factor in index.terms:
            if factor != 1 or not isinstance(axis, Axis):
                return None
            moved[where[axis]] = here
    return moved


def hosting(term: Term, memory: Memory, taken: Sequence[Term]) -> Hosting:
    """Returns the terms stored in the buffer of a concatenated or padded term; those of `taken` have other memory."""
    found = Hosting()
    _put(term, View.whole(memory), set(taken), found)
    return found


def _put(term: Term, view: View, taken: set[Term], found: Hosting) -> None:
    while is_reshaped(term) and term.children[0].access.dims == view.dims:
        (term,) = term.children
    inner = _of_order(term)
    parts = parts_of(term)
    if parts is not None and view.dims == term.access.dims and term not in taken:
        taken.add(term)
        found.inside.add(term)
        map_ = term.index_map
        assert map_ is not None, "parts are those of a map"
        for child, offsets in parts:
            moved = tuple(a + b for a, b in zip(view.offsets, offsets, strict=True))
            _put(child, View(view.memory, child.access.dims, moved), taken, found)
        if map_.fill is not None:
            found.borders += _border(view, parts[0][0].access.dims, parts[0][1], map_.fill)
    elif inner.operator.name in LEAVES or inner in taken or inner.operator.moves or filler(inner) is not None:
        found.copies.append((term, view))
    else:
        taken.add(inner)
        found.views[inner] = view


def _border(view: View, dims: Dims, offsets: Sequence[int], fill: Fill) -> list[Border]:
    """Returns the boxes around a part of a view: below and above it along one axis, inside it along the axes before."""
    low, high = [list(view.offsets), [a + n for a, n in zip(view.offsets, view.dims, strict=True)]]
    found = []
    for axis, (offset, size) in enumerate(zip(offsets, dims, strict=True)):
        begin, end = low[axis] + offset, low[axis] + offset + size
        if begin > low[axis]:
            found.append((tuple(low), (*high[:axis], begin, *high[axis + 1 :]), fill))
        if end < high[axis]:
            found.append(((*low[:axis], end, *low[axis + 1 :]), tuple(high), fill))
        low[axis], high[axis] = begin, end
    return found


def bordered(borders: Sequence[Border], nest: Filling) -> list[Statement]:
    """Fills the boxes of padding of a buffer."""
    made: list[Statement] = []
    for begin, end, fill in borders:
        value = number(None if fill is Fill.LOWEST else 0, nest.dtype)
        dims = [high - low for low, high in zip(begin, end, strict=True)]
        axes, at = nest.counters([dims[axis] for axis in nest.view.memory.axis_order])
        moved = dict(zip(nest.view.memory.axis_order, at, strict=True))
        place = nest.view.memory.place([moved[axis] + begin[axis] for axis in range(len(begin))])
        made += around(axes, [Store(nest.buffer, place, value)])
    return made
