"""Replaces windows over a tensor with gaps (see `gaps`) by windows over the bare tensor.

There are `count` windows, the first at `first`, each of `taps` elements that are `apart`: [.. y .., .. u ..] = bare[..,
first + y + u apart, ..], and zero outside of the tensor. If they have a stride above 1 over gaps of 1, consecutive ones
are that many elements apart.

Windows and sections are made on demand; nothing in the program is equal to them.
"""

from __future__ import annotations

from typing import Any

from glenside.ir.types import largest, smallest
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.convolution.gaps import FAMILY, GAPS, PLANE, gaps, undilated, want_undilated
from glenside.rewrites.declare import ROOT, Clauses, Example, Facts, V, analysis, set_, when
from glenside.rewrites.facts import ACCESS, INT, access_at, dims, on_demand, relation, split
from glenside.rewrites.movement.sliding_windows import forms, kept_axes, picking, picks, slides
from glenside.rewrites.terms import padded, variables

_WINDOWS: dict[str, Any] = {"first": INT, "count": INT, "taps": INT}
# Axis i steps over windows with gaps along axis j: by 1, or over gaps of 1.
zero_inserted = relation("zero-inserted", a=ACCESS, i=INT, j=INT, **GAPS)
want_subwindow, subwindow = on_demand("subwindow", a=ACCESS, i=INT, j=INT, **GAPS, **_WINDOWS, apart=INT)
# Intermediate: windows of `size` elements of x, and windows of the `span` elements that include those that are apart.
windows_of_gaps = relation("windows-of-gaps", a=ACCESS, i=INT, j=INT, **GAPS, **_WINDOWS, x=ACCESS, size=INT)
apart_in = relation("apart-in", picked=ACCESS, a=ACCESS, i=INT, j=INT, **GAPS, **_WINDOWS, apart=INT, span=INT)
# Elements first, first + 1, .. of x, and zeros outside of it: those from lo to hi - 1, with zeros before and after.
want_section, section = on_demand("section", x=ACCESS, axis=INT, first=INT, size=INT)
sectioned = relation("sectioned", x=ACCESS, axis=INT, first=INT, size=INT, lo=INT, hi=INT, before=INT, after=INT)

_OVER_PLANE = ex.windows(f"(access {PLANE} 1)", "2 5", "1 1")  # (n 7 7)(2 5)
_OVER_DILATED = ex.dilated(_OVER_PLANE, "1 2", "$n 7 7 2 3", 3)  # (n 7 7)(2 3)
_MOVED = ex.in_every_form(_OVER_PLANE, "$n 1 7 7 2 5")  # (n 1 7 7)(5 2)


def _over(text: str, *demands: tuple[int, ...]) -> Example:
    """Returns an example that demands windows over bare tensors: i, j, gap, begin, n, first, count, taps, apart."""
    return Example(text, {"x": "n 4 4"}, [want_subwindow(access_at("root"), *demand) for demand in demands])


_OVERS = (
    _over(_OVER_PLANE, (1, 3, 2, 1, 4, -1, 6, 1, 1), (2, 4, 3, -1, 4, 1, 2, 3, 1)),
    _over(_OVER_DILATED, (2, 4, 3, -1, 4, 0, 2, 2, 2), (1, 3, 2, 1, 4, 5, 2, 1, 1)),
    _over(_MOVED, (2, 4, 3, -1, 4, 0, 3, 2, 1), (2, 4, 3, -1, 4, -6, 3, 3, 1)),
)

a, x, gap, begin, n = variables("a x gap begin n")
# Windows of the elements that remain, wherever the axes are: (i, j) become (i2, j2) of a form.
i, j, i2, j2, first, count, taps, apart, lead = variables("i j i2 j2 first count taps apart lead")
_OF = (gap, begin, n, first, count)


def _sliding(x: V, window: V, strides: V, step: V) -> Facts:
    """Matches a root that steps along axis i over windows of x along axis j: by 1 where there are gaps.

    The windows must belong to the item of root, since x may have axes that step over others.
    """
    return (
        ROOT == op.windows(x, window, strides),
        gaps(x, i, gap, begin, n),
        slides(ROOT, i, j, step, 1, 1),
        (step - 1) * (gap - 1) == 0,
        *(j == i + window.length, lead == split(x), i >= lead),
    )


@analysis(FAMILY, *_OVERS)
def windows_over_gaps_are_known(x: V, window: V, strides: V, step: V, common: V) -> Clauses:
    """Finds the axes that step over windows of a tensor with gaps, through every form that keeps both axes.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
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

    It makes e-nodes only on demand, and they equal no existing class. Sound because windows along one axis are
    independent of operators on the other axes; elements that are apart are picked from windows that span them.
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
    """section(x, first, size) = pad(slice(x)); the pad or the slice is left out if it changes nothing.

    It makes e-nodes only on demand. Sound because elements outside of x are zero by definition.
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
