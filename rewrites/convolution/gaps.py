"""Finds gaps: the axes along which the elements of a tensor are separated by zeros, and the tensor without these zeros.

A tensor has gaps along an axis if its `n` elements there are those of a smaller tensor: the first at `begin`, which is
negative if elements were cut off, and consecutive ones `gap` apart; all others are zero. The bare tensor is that
smaller tensor, after the same operations on all other axes. Consecutive elements have a gap of 1, whatever operator
computes them.

Bare tensors are computed on demand; nothing in the program is equal to them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from glenside.ir.types import Dims, smallest
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, Facts, V, analysis, set_, when
from glenside.rewrites.facts import ACCESS, INT, access_at, dims, given, on_demand, relation, split, table
from glenside.rewrites.movement.sliding_windows import axis_number, same_axis, view
from glenside.rewrites.parameters import scatter
from glenside.rewrites.terms import Variable, reshaped, variables

FAMILY = "transposed-analyses"
GAPS: dict[str, Any] = {"gap": INT, "begin": INT, "n": INT}
gaps = relation("gaps", z=ACCESS, axis=INT, **GAPS)
want_undilated, undilated = on_demand("undilated", z=ACCESS, axis=INT, **GAPS)
_MOVING = (op.access, op.transpose, op.reshape, op.squeeze, op.insert_axis, op.flatten, op.pad, op.slice, op.dilate)
_MOVING_WORDS = frozenset(record.name for record in _MOVING)


@table(gap=int)
def gap_of(operator: str) -> tuple[int] | None:
    """Returns 1 for operators that do not move elements: their results are not a spread of another tensor."""
    return None if operator in _MOVING_WORDS else (1,)


@table(axes=Dims)
def added_axes(old: Dims, new: Dims) -> tuple[Dims]:
    """Returns the axes of a view that match no axis of the tensor that it views, by size and by the elements that
    follow.
    """
    known = {(size, old.take(i).product()) for i, size in enumerate(old)}
    return (Dims(i for i, size in enumerate(new) if (size, new.take(i).product()) not in known),)


_LINE = "(access-slice (access-pad (access-dilate (access-tensor x) 1 2) zero-padding 1 2 1) 1 1 12)"
PLANE = (
    "(access-pad (access-slice (access-pad (access-dilate (access-dilate (access-tensor x) 1 1) 2 2)"
    " zero-padding 1 1 0) 2 1 10) zero-padding 2 0 2)"
)  # (n 8 11)
_TURNED = ex.reshaped(f"(access (access-transpose {PLANE} (list 1 0 2)) 3)", "8 1 $n 11", "")


def _bare(text: str, x: str, *demands: tuple[int, ...], **parameters: int) -> Example:
    """Returns an example that demands bare tensors: axis, gap, begin, n."""
    return Example(text, {"x": x}, [want_undilated(access_at("root"), *demand) for demand in demands], parameters)


_CUT = "(access-pad (access-slice (access-tensor x) 1 1 5) zero-padding 1 2 0)"
_SPLIT = ex.reshaped("(access-concatenate (access-tensor x) (access-tensor x) 1)", "", "$m 2 5")
EXAMPLES = (
    _bare("(access-pad (access (access-tensor x) 1) zero-padding 1 2 1)", "m 5", (1, 1, 2, 5), scatter=1),
    _bare(_CUT, "m 5", (1, 1, 2, 4), scatter=1),
    _bare("(access-pad (access-tensor x) min-padding 1 2 1)", "m 5", (1, 1, 0, 8), scatter=1),
    _bare(f"(access-pad {_SPLIT} zero-padding 2 1 1)", "m 5", (1, 1, 0, 2), (2, 1, 1, 5), scatter=1),
    _bare("(access-pad (access-dilate (access-tensor x) 1 3) zero-padding 1 2 1)", "m 1", (1, 1, 2, 1), scatter=1),
    _bare(_LINE, "m 5", (1, 3, 1, 5)),
    _bare(PLANE, "n 4 4", (1, 2, 1, 4), (2, 3, -1, 4)),
    _bare(_TURNED, "n 4 4", (0, 2, 1, 4), (3, 3, -1, 4)),
)
# Axis x of a has gaps; axis y of root, which is made from a.
a, b, x, y, gap, begin, n = variables("a b x y gap begin n")
_END = begin + (1 + gap * (n - 1))


class _Move(NamedTuple):
    """A form of a that keeps its gaps: its facts, the distance that it moves the gaps, and the form applied to b, the
    bare a.
    """

    where: Facts
    shift: V | int
    of_b: V


def _moves() -> tuple[_Move, ...]:
    before, after, lo, hi, z, more, order, s, size, dr = variables("before after lo hi z more order s sizes dr")

    def elsewhere(t: V) -> tuple[V, ...]:
        return op.pad(t, "zero-padding", z, before, after), op.slice(t, z, lo, hi), op.dilate(t, z, more)

    zeros_outside = (size == dims(a), before * smallest(begin, 0) == 0, after * smallest(0, size[x] - _END) == 0)
    return (
        _Move((ROOT == op.pad(a, "zero-padding", x, before, after), y == x, zeros_outside), before, b),
        _Move((ROOT == op.slice(a, x, lo, hi), y == x), 0 - lo, b),
        *(
            _Move((ROOT == of_a, z != x, y == x), 0, of_b)
            for of_a, of_b in zip(elsewhere(a), elsewhere(b), strict=True)
        ),
        _Move(
            (ROOT == op.transpose(a, order), axis_number(y), y < order.length, x == order[y]), 0, op.transpose(b, order)
        ),
        _Move((same_axis(ROOT, a, x, y), dr == dims(ROOT), s == split(ROOT)), 0, reshaped(b, dr.set(y, n), s)),
        _Move((ROOT == op.access(a, s), y == x), 0, op.access(b, s)),
        _Move((ROOT == op.dilate(a, x, more), y == x, size == dims(a), more * (size[x] - 1) == 0), 0, b),
    )


def _spread(more: V) -> Facts:
    """Matches root as a with zeros put between its elements."""
    da = Variable("da")
    return ROOT == op.dilate(a, x, more), da == dims(a), n == da[x], n > 1, more > 0


def _ordinary() -> tuple[Facts, ...]:
    """Matches a root whose elements along axis x are consecutive, unless a move relates it to another tensor."""
    d, s, t, word, kind, z, before, after = variables("d s t word kind z before after")
    of, sizes, own, place = variables("of sizes own place")
    every = (d == dims(ROOT), axis_number(x), x < d.length)
    views = (view(ROOT, of), d == dims(ROOT), sizes == dims(of), own == added_axes.axes(sizes, d), axis_number(place))
    found: tuple[Facts, ...] = (
        (given(ROOT, word, d, s, t), gap_of.gap(word) == 1, *every),
        (ROOT == op.pad(of, kind, z, before, after), kind != "zero-padding", *every),
        (*views, place < own.length, x == own[place]),
    )
    return tuple((facts, scatter > 0, n == d[x], n > 0) for facts in found)


def _padded_again(before: V, after: V, size: V) -> Facts:
    """Matches root as a, of that size along x, with zeros in place of elements that were cut off."""
    cut = before * smallest(begin, 0) + after * smallest(0, size - _END)
    return gaps(a, x, gap, begin, n), _padding(before, after, size), scatter > 0, cut < 0


def _padding(before: V, after: V, size: V) -> Facts:
    """Matches root as a, of that size along x, with zeros around it."""
    sizes = Variable("sizes")
    return ROOT == op.pad(a, "zero-padding", x, before, after), sizes == dims(a), size == sizes[x], size > 0


@analysis(FAMILY, *EXAMPLES)
def gaps_are_known(more: V) -> Clauses:
    """Finds the axes along which a tensor was spread, the gap, and the position of its first element.

    If the target demands it ($scatter), consecutive elements count as gaps of 1: then ordinary convolutions, too, have
    a form as sums of windows, for any operand. Zeros around such elements are not counted as elements.

    An analysis: it adds no e-node. Sound because it only reads facts that hold. Elements that were cut off do not come
    back: zeros in their place are not gaps, so after such a pad all elements count as consecutive.
    """
    before, after, size = variables("before after size")
    return (
        when(_spread(more)).then(gaps(ROOT, x, gap=more + 1, begin=0, n=n)),
        *(when(where).then(gaps(ROOT, x, gap=1, begin=0, n=n)) for where in _ordinary()),
        when(_padded_again(before, after, size)).then(gaps(ROOT, x, gap=1, begin=before, n=size)),
        *(
            when(gaps(a, x, gap, begin, n), move.where).then(gaps(ROOT, y, gap, begin + move.shift, n))
            for move in _moves()
        ),
    )


@analysis(FAMILY, *EXAMPLES)
def gaps_are_taken_out(more: V, end: V) -> Clauses:
    """undilated(dilate(a, x)) = a, and undilated(recipe(z)) = recipe(undilated(z)) for operators on the other axes.

    It makes e-nodes only on demand, and they equal no existing class. Sound because moves, cuts and pads of the other
    axes treat all elements of this axis equally.
    """
    before, after, sizes = variables("before after sizes")
    below = (a, x, gap, begin, n)
    above = (ROOT, y, gap, end, n)
    moves = [((want_undilated(*above), gaps(*below), m.where, end == begin + m.shift), m.of_b) for m in _moves()]
    return (
        when(want_undilated(ROOT, x, gap, 0, n), _spread(more), gap == more + 1).then(
            set_(undilated(ROOT, x, gap, 0, n), a)
        ),
        when(want_undilated(ROOT, x, 1, 0, n), sizes == dims(ROOT), n == sizes[x]).then(
            set_(undilated(ROOT, x, 1, 0, n), ROOT)
        ),
        when(want_undilated(ROOT, x, 1, before, n), _padding(before, after, n)).then(
            set_(undilated(ROOT, x, 1, before, n), a)
        ),
        *(when(moved).then(want_undilated(*below)) for moved, _ in moves),
        *(when(moved, b == undilated(*below)).then(set_(undilated(*above), of_b)) for moved, of_b in moves),
    )
