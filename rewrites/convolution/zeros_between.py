"""Zeros between elements: tensors that were spread along an axis, and windows of what they were before.

A tensor has gaps along an axis where its `n` elements there are those of a smaller one, the first at `begin`, which is
below 0 where it was cut off, and `gap` from one to the next; all else is zero. Bare, it is that smaller tensor, with
all that was done to its other axes. Windows over gaps become windows over the bare tensor: `count` of them, the first
at `first`, each of `taps` elements that are `apart`: [.. y .., .. u ..] = bare[.., first + y + u apart, ..], zero
outside of it. Where they step by more than 1 over gaps of 1, that many elements are from one to the next.

`bare`, `over` and `section` are made where they are demanded; nothing in the program is equal to them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from glenside.ir.types import largest, smallest
from rewrites import examples as ex
from rewrites import operators as op
from rewrites.declare import ROOT, Clauses, Example, Facts, V, analysis, set_, when
from rewrites.facts import ACCESS, INT, access_at, dims, on_demand, relation, split
from rewrites.mapping.sliding_windows import axis_number, forms, kept_axes, picking, picks, same_axis, slides
from rewrites.parameters import scatter
from rewrites.terms import Variable, padded, reshaped, variables

FAMILY = "transposed-analyses"
_GAPS: dict[str, Any] = {"gap": INT, "begin": INT, "n": INT}
_WINDOWS: dict[str, Any] = {"first": INT, "count": INT, "taps": INT}
gaps = relation("gaps", z=ACCESS, axis=INT, **_GAPS)
# Axis i steps over windows with gaps along axis j: by 1, or over gaps of 1.
zero_inserted = relation("zero-inserted", a=ACCESS, i=INT, j=INT, **_GAPS)
want_undilated, undilated = on_demand("undilated", z=ACCESS, axis=INT, **_GAPS)
want_subwindow, subwindow = on_demand("subwindow", a=ACCESS, i=INT, j=INT, **_GAPS, **_WINDOWS, apart=INT)
# On the way there: windows of `size` elements of x; windows of all `span` elements between those that are apart.
windows_of_gaps = relation("windows-of-gaps", a=ACCESS, i=INT, j=INT, **_GAPS, **_WINDOWS, x=ACCESS, size=INT)
apart_in = relation("apart-in", picked=ACCESS, a=ACCESS, i=INT, j=INT, **_GAPS, **_WINDOWS, apart=INT, span=INT)
# Elements first, first + 1, .. of x, zero outside of it: those from lo to hi - 1, with zeros before and after.
want_section, section = on_demand("section", x=ACCESS, axis=INT, first=INT, size=INT)
sectioned = relation("sectioned", x=ACCESS, axis=INT, first=INT, size=INT, lo=INT, hi=INT, before=INT, after=INT)

_LINE = "(access-slice (access-pad (access-dilate (access-tensor x) 1 2) zero-padding 1 2 1) 1 1 12)"
_PLANE = (
    "(access-pad (access-slice (access-pad (access-dilate (access-dilate (access-tensor x) 1 1) 2 2)"
    " zero-padding 1 1 0) 2 1 10) zero-padding 2 0 2)"
)  # (n 8 11)
_TURNED = ex.reshaped(f"(access (access-transpose {_PLANE} (list 1 0 2)) 3)", "8 1 $n 11", "")
_OVER_PLANE = ex.windows(f"(access {_PLANE} 1)", "2 5", "1 1")  # (n 7 7)(2 5)
_OVER_DILATED = ex.dilated(_OVER_PLANE, "1 2", "$n 7 7 2 3", 3)  # (n 7 7)(2 3)
_MOVED = ex.in_every_form(_OVER_PLANE, "$n 1 7 7 2 5")  # (n 1 7 7)(5 2)


def _bare(text: str, x: str, *demands: tuple[int, ...], **parameters: int) -> Example:
    """Demands of bare tensors: axis, gap, begin, n."""
    return Example(text, {"x": x}, [want_undilated(access_at("root"), *demand) for demand in demands], parameters)


def _over(text: str, *demands: tuple[int, ...]) -> Example:
    """Demands of windows over bare tensors: i, j, gap, begin, n, first, count, taps, apart."""
    return Example(text, {"x": "n 4 4"}, [want_subwindow(access_at("root"), *demand) for demand in demands])


_EXAMPLES = (
    _bare("(access-pad (access (access-tensor x) 1) zero-padding 1 2 1)", "m 5", (1, 1, 2, 5), scatter=1),
    _bare(_LINE, "m 5", (1, 3, 1, 5)),
    _bare(_PLANE, "n 4 4", (1, 2, 1, 4), (2, 3, -1, 4)),
    _bare(_TURNED, "n 4 4", (0, 2, 1, 4), (3, 3, -1, 4)),
)
_OVERS = (
    _over(_OVER_PLANE, (1, 3, 2, 1, 4, -1, 6, 1, 1), (2, 4, 3, -1, 4, 1, 2, 3, 1)),
    _over(_OVER_DILATED, (2, 4, 3, -1, 4, 0, 2, 2, 2), (1, 3, 2, 1, 4, 5, 2, 1, 1)),
    _over(_MOVED, (2, 4, 3, -1, 4, 0, 3, 2, 1), (2, 4, 3, -1, 4, -6, 3, 3, 1)),
)

# Axis x of a has gaps, and axis y of root, which is done to a.
a, b, x, y, gap, begin, n = variables("a b x y gap begin n")
_END = begin + (1 + gap * (n - 1))


class _Move(NamedTuple):
    """A form of a that keeps its gaps: where root is it, how far it moves them, and what it is of b, the bare a."""

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
    )


def _spread(more: V) -> Facts:
    """root is a with zeros put between its elements."""
    da = Variable("da")
    return ROOT == op.dilate(a, x, more), da == dims(a), n == da[x], n > 1, more > 0


def _ordinary() -> Facts:
    """root is a tensor as it is given."""
    name, d = variables("name d")
    return (ROOT == op.tensor(name), scatter > 0, d == dims(ROOT), axis_number(x), x < d.length, n == d[x], n > 0)


@analysis(FAMILY, *_EXAMPLES)
def gaps_are_known(more: V) -> Clauses:
    """Along which axes a tensor was spread, how far, and where its first element is now.

    Where the target asks for it ($scatter), what is given has gaps of 1, which are none: sums of windows are a form of
    ordinary convolutions too.

    An analysis: it adds no e-node. Sound because it only reads what is there. What was cut off does not come back:
    zeros put where elements were are no gaps, and such a pad has no fact.
    """
    return (
        when(_spread(more)).then(gaps(ROOT, x, gap=more + 1, begin=0, n=n)),
        when(_ordinary()).then(gaps(ROOT, x, gap=1, begin=0, n=n)),
        *(
            when(gaps(a, x, gap, begin, n), move.where).then(gaps(ROOT, y, gap, begin + move.shift, n))
            for move in _moves()
        ),
    )


@analysis(FAMILY, *_EXAMPLES)
def gaps_are_taken_out(more: V, end: V) -> Clauses:
    """undilated(dilate(a, x)) = a, and undilated(recipe(z)) = recipe(undilated(z)) for what is done to the other axes.

    It makes e-nodes for demands alone, and they equal nothing that was there. Sound because what moves, cuts or pads
    the other axes does so alike for every element of this one.
    """
    below = (a, x, gap, begin, n)
    above = (ROOT, y, gap, end, n)
    moves = [((want_undilated(*above), gaps(*below), m.where, end == begin + m.shift), m.of_b) for m in _moves()]
    return (
        when(want_undilated(ROOT, x, gap, 0, n), _spread(more), gap == more + 1).then(
            set_(undilated(ROOT, x, gap, 0, n), a)
        ),
        when(want_undilated(ROOT, x, 1, 0, n), _ordinary()).then(set_(undilated(ROOT, x, 1, 0, n), ROOT)),
        *(when(moved).then(want_undilated(*below)) for moved, _ in moves),
        *(when(moved, b == undilated(*below)).then(set_(undilated(*above), of_b)) for moved, of_b in moves),
    )


# Windows of the elements that are left, wherever the axes are: (i, j), in (i2, j2) of a form.
i, j, i2, j2, first, count, taps, apart = variables("i j i2 j2 first count taps apart")
_OF = (gap, begin, n, first, count)


def _sliding(x: V, window: V, strides: V, step: V) -> Facts:
    """root steps along axis i over windows of x, along axis j: by 1 where there are gaps."""
    return (
        ROOT == op.windows(x, window, strides),
        gaps(x, i, gap, begin, n),
        slides(ROOT, i, j, step, 1, 1),
        (step - 1) * (gap - 1) == 0,
        j == i + window.length,
    )


@analysis(FAMILY, *_OVERS)
def windows_over_gaps_are_known(x: V, window: V, strides: V, step: V, common: V) -> Clauses:
    """Which axes step over windows of a tensor with gaps, through every form that keeps both axes.

    An analysis: it adds no e-node. Sound because it only reads what is there.
    """
    of_a = zero_inserted(a, i, j, gap, begin, n)
    return (
        when(_sliding(x, window, strides, step)).then(zero_inserted(ROOT, i, j, gap, begin, n)),
        when(of_a, kept_axes(ROOT, a, i, j, i2, j2)).then(zero_inserted(ROOT, i2, j2, gap, begin, n)),
        when(of_a, picks(ROOT, a, i, j, common)).then(zero_inserted(ROOT, i, j, gap, begin, n)),
    )


@analysis(FAMILY, *_OVERS)
def windows_leave_gaps_out(
    x: V, window: V, strides: V, step: V, z: V, part: V, w: V, s: V, size: V, span: V, c: V
) -> Clauses:
    """subwindow(windows(z)) = windows(section(bare z)), and so on under the forms that keep both axes.

    It makes e-nodes for demands alone, and they equal nothing that was there. Sound because windows along one axis and
    what is done to the others do not meet; elements that are apart are picked from windows that hold all between.
    """
    steps = (windows_of_gaps(ROOT, i, j, *_OF, taps, x, size), z == undilated(x, i, gap, begin, n))
    picked, picked_of_w = picking(a, w, j, apart)
    kept = (want_subwindow(ROOT, i2, j2, *_OF, taps, apart), kept_axes(ROOT, a, i, j, i2, j2))
    over_a = subwindow(a, i, j, *_OF, taps, apart)
    return (
        when(
            *(want_subwindow(ROOT, i, j, *_OF, taps, 1), _sliding(x, window, strides, step)),
            size == step * (count - 1) + taps,
        ).then(want_undilated(x, i, gap, begin, n), windows_of_gaps(ROOT, i, j, *_OF, taps, x, size)),
        when(steps).then(want_section(z, i, first, size)),
        when(steps, part == section(z, i, first, size), ROOT == op.windows(x, window, strides), s == split(x)).then(
            set_(subwindow(ROOT, i, j, *_OF, taps, 1), op.windows(part, window.set(i - s, taps), strides))
        ),
        when(
            want_subwindow(ROOT, i, j, *_OF, taps, apart), picks(ROOT, a, i, j, c), span == 1 + (taps - 1) * apart
        ).then(want_subwindow(a, i, j, *_OF, span, 1), apart_in(ROOT, a, i, j, *_OF, taps, apart, span)),
        when(apart_in(ROOT, a, i, j, *_OF, taps, apart, span), w == subwindow(a, i, j, *_OF, span, 1), picked).then(
            set_(subwindow(ROOT, i, j, *_OF, taps, apart), picked_of_w)
        ),
        when(kept).then(want_subwindow(a, i, j, *_OF, taps, apart)),
        *(
            when(kept, w == over_a, where).then(set_(subwindow(ROOT, i2, j2, *_OF, taps, apart), of_w))
            for where, of_w in forms(a, i, j, i2, j2, w)
        ),
    )


_CUTS = ((0, 5), (1, 3), (-2, 9), (-1, 3), (3, 4), (7, 2), (-4, 3))
_SECTIONS = tuple(
    Example(ex.X, {"x": "m 5"}, [want_section(access_at("root"), 1, first, size)]) for first, size in _CUTS
)


@analysis(FAMILY, *_SECTIONS)
def sections_are_made(x: V, axis: V, first: V, size: V, lo: V, hi: V, before: V, after: V, d: V, n: V) -> Clauses:
    """section(x, first, size) = pad(slice(x)), of which it has only what it needs.

    It makes e-nodes for demands alone. Sound because what is outside of x is zero by definition.
    """
    known = (sectioned(x, axis, first, size, lo, hi, before, after), d == dims(x), n == d[axis])
    cut, added, part = n - (hi - lo), before + after, op.slice(x, axis, lo, hi)
    cases = (
        (cut == 0, added == 0, x),
        (cut > 0, added == 0, part),
        (cut == 0, added > 0, padded(x, axis, after, before)),
        (cut > 0, added > 0, padded(part, axis, after, before)),
    )
    return (
        when(
            *(want_section(x, axis, first, size), d == dims(x), n == d[axis]),
            lo == smallest(n, largest(0, first)),
            hi == smallest(n, largest(0, first + size)),
            before == smallest(size, largest(0, 0 - first)),
            after == size - (before + (hi - lo)),
        ).then(sectioned(x, axis, first, size, lo, hi, before, after)),
        *(when(known, fact, other).then(set_(section(x, axis, first, size), form)) for fact, other, form in cases),
    )
