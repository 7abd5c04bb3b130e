"""Index-set splitting: cuts an elementwise block into pieces in which indices are affine and guards are constant.

In a concatenation along the contiguous axis, zero padding, or interleaved phases, quotients and bounds decide from
which operand an element comes, and from which index. A block is cut where these change; the pieces have no guards, so
they are vectorized or blocked. Where they change every few elements, the elements are unrolled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from glenside.codegen.loop_ir.affine_analysis import at, coefficient, indices_of, parts_in, substituted, with_places
from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.ir import Choose
from glenside.codegen.loop_ir.open_axes import axis_of
from glenside.ir.index_map import Axis, Divided, Guard, Index, Within
from glenside.ir.open_integer import common_divisor

_MOST = 16
"""The most pieces of a block: code is emitted for each."""
_SPLITS = 256
"""The most splits: by an open period they need not come to an end."""
_FEW = 8
"""The most steps of an axis that are unrolled."""
_SHORT = 16
"""Below this many contiguous elements, a piece of its own is too short."""
_WRITTEN = 32
"""The most stores of an unrolled step."""


def in_pieces(block: Block, axes: Iterator[int]) -> list[Block] | None:
    """Returns the pieces of a block without reductions, or None if there would be too many."""
    todo, done, splits = [block], list[Block](), 0
    while todo:
        own = todo.pop()
        question = next(_questions(own), None)
        if question is None:
            done.append(own)
            continue
        made, splits = _apart(own, question, axes), splits + 1
        if made is None or len(todo) + len(made) + len(done) > _MOST or splits > _SPLITS:
            return None
        todo += reversed(made)
    return done


def _questions(block: Block) -> Iterator[Divided | Within]:
    """Yields what varies within a block: quotients and remainders, innermost first, then guards."""
    stores = (block.place, block.value), *block.beside
    for place, value in stores:
        for index in (place, *indices_of(value)):
            yield from _divided(index)
        for guard in (_bounds(guard) for part in parts_in(value) if isinstance(part, Choose) for guard in part.guards):
            yield from _divided(guard.index)
    for _, value in stores:
        for part in parts_in(value):
            yield from map(_bounds, part.guards if isinstance(part, Choose) else ())


def _bounds(guard: Guard) -> Within:
    """Converts a guard to bounds on an index."""
    return guard if isinstance(guard, Within) else Within(guard.index % guard.divisor, 0, 1)


def _divided(index: Index) -> Iterator[Divided]:
    for atom, _ in index.terms:
        if isinstance(atom, Divided):
            yield from _divided(atom.expression)
            yield atom


def _apart(block: Block, question: Divided | Within, axes: Iterator[int]) -> list[Block] | None:
    """Splits a block so that a question is constant, or simpler, in each part; None if no split is known."""
    index = question.expression if isinstance(question, Divided) else question.index
    own = [(atom, factor) for atom, factor in index.terms if isinstance(atom, Axis)]
    if any(axis not in block.axes for axis, _ in own):  # of an enclosing band, whose index is only known at run time
        return None
    if isinstance(question, Divided):
        for axis, factor in own:
            period = question.divisor // common_divisor(factor, question.divisor)
            if axis.size > period:
                return _by_periods(block, axis, period, axes)
    axis, factor = min(own, key=lambda term: term[0].size)
    ends = _ends(question, axis, factor) if len(own) == 1 else None
    few = axis.size <= _FEW and axis.size * (1 + len(block.beside)) <= _WRITTEN
    if few and (ends is None or abs(coefficient(block.place, axis)) < _SHORT):
        return [_listed(block, axis)]
    return None if ends is None else _cut(block, axis, [0, *ends, axis.size], axes)


def _ends(question: Divided | Within, axis: Axis, factor: int) -> list[int]:
    """Returns the positions along the only axis of a question at which its answer changes."""
    if isinstance(question, Divided):
        index, divisor = question.expression, question.divisor
        answers = [(index.constant + factor * place) // divisor for place in range(axis.size)]
        return [place for place in range(1, axis.size) if answers[place] != answers[place - 1]]
    constant = question.index.constant
    ends = {
        -((constant - bound) // factor) if factor > 0 else (constant - bound) // -factor + 1
        for bound in (question.low, question.high)
    }
    return sorted(end for end in ends if 0 < end < axis.size)


def _by_periods(block: Block, axis: Axis, period: int, axes: Iterator[int]) -> list[Block]:
    """Strip-mines an axis by a period: a block of whole periods, and one of the remainder."""
    whole = axis.size // period
    high, low = Axis(next(axes), whole, axis.limit), axis_of(next(axes), period)
    found = [_with(block, axis, [high, low], at(high) * period + at(low))]
    rest = axis.size - whole * period
    if rest or (axis.limit and not low.limit):
        last = Axis(next(axes), rest, period * bool(axis.limit))
        found.append(_with(block, axis, [last], at(last) + whole * period))
    return found


def _cut(block: Block, axis: Axis, ends: Sequence[int], axes: Iterator[int]) -> list[Block]:
    """Cuts a block at positions along an axis."""
    parts = [(first, axis_of(next(axes), last - first)) for first, last in pairwise(ends)]
    return [_with(block, axis, [part], at(part) + first) for first, part in parts]


def _with(block: Block, axis: Axis, by: Sequence[Axis], place: Index) -> Block:
    """Returns a block with an axis replaced by axes `by`, at index `place` along it."""
    others = tuple(part for own in block.axes for part in (by if own == axis else [own]) if part.is_loop)
    return replace(with_places(block, partial(substituted, places={axis: place})), axes=others)


def _listed(block: Block, axis: Axis) -> Block:
    """Returns a block with an axis unrolled: each step stores all its elements."""
    at_each = [_with(block, axis, [], Index() + place) for place in range(axis.size)]
    stores = [store for own in at_each for store in ((own.place, own.value), *own.beside)]
    return replace(at_each[0], place=stores[0][0], value=stores[0][1], beside=tuple(stores[1:]))
