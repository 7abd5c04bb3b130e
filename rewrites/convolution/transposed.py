"""Computes windows of stride 1 over an input with zeros between its elements without reading the zeros.

Throughout, root is a product of a and b with m shared axes. Axis i of a has h positions. These are positions of an
input with gaps, described by `gap`, `begin` and `n` (see `gaps`); or positions of windows over such an input, each with
k elements at distance d along axis j. Each product of the program has `total` of these products.

A phase (see `phases`) is the product for positions p, p + gap, .. Columns are the product of the elements of the input
and b backwards; their last axis holds the elements of a window of root. The windows, added up, fill `out` positions;
root is the h from `start` on. Axes are converted in ascending order, so that each combination is reached once.
"""

from __future__ import annotations

from typing import Any

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.convolution import windows_over_gaps
from glenside.rewrites.convolution.gaps import gaps, undilated, want_undilated
from glenside.rewrites.convolution.position_tables import phase, positions_last, scatter
from glenside.rewrites.convolution.recipes import recipe
from glenside.rewrites.declare import ROOT, Clauses, Example, Facts, V, analysis, let, rule, set_, union, when
from glenside.rewrites.facts import ACCESS, INT, INTS, TEXT, dims, function, relation, split, table
from glenside.rewrites.movement.sliding_windows import slides
from glenside.rewrites.terms import Variable, dot, is_dot, reshaped, variables, vec, vec_range

FAMILY, ANALYSES = "transposed", "transposed-analyses"
MOST_PHASES = 64
_PRODUCT: dict[str, Any] = {"product": ACCESS, "a": ACCESS, "b": ACCESS, "m": INT}
_GAPS: dict[str, Any] = {"gap": INT, "begin": INT, "n": INT}
_AXES: dict[str, Any] = {"axes": INTS, "steps": INTS, "apart": INTS, "outs": INTS, "starts": INTS, "sizes": INTS}
# A product on the way to a form: its axes below `open` are converted.
unfolding = relation("unfolding", product=ACCESS, open=INT, total=INT)
between = relation("between", **_PRODUCT, i=INT, j=INT, **_GAPS, d=INT, h=INT, k=INT, total=INT)
rows_apart = relation("rows-apart", **_PRODUCT, i=INT, **_GAPS, h=INT, total=INT)
gap_axes = function("gap-axes", INT, "|", product=ACCESS, kind=TEXT)  # the axes that a kind must convert, as bits
step_of = relation("step-of", outer=ACCESS, inner=ACCESS, kind=TEXT, i=INT, gap=INT)
stepping = relation("stepping", outer=ACCESS, inner=ACCESS, kind=TEXT, axes=INT, words=TEXT)
# Phases from `low` to `high` - 1.
phase_range = relation("phase-range", product=ACCESS, i=INT, gap=INT, begin=INT, low=INT, high=INT)
spread_rows = relation("spread-rows", product=ACCESS, spread=ACCESS, i=INT, start=INT, h=INT)
# The windows of a product `inner` add up to root along axis i, or along several, which are its last ones.
scattered = relation("scattered", product=ACCESS, inner=ACCESS, i=INT, gap=INT, d=INT, out=INT, start=INT, h=INT)
scattering = relation("scattering", product=ACCESS, inner=ACCESS, **_AXES)
spreading = relation("spreading", product=ACCESS, inner=ACCESS, x=ACCESS, done=INT)
cropping = relation("cropping", product=ACCESS, x=ACCESS, axes=INTS, starts=INTS, sizes=INTS)
made_in_tiles = relation("made-in-tiles", inner=ACCESS, made=ACCESS)


@table(words=str)
def stepped(words: str, step: str, axis: int, size: int) -> tuple[str]:
    """Returns the words of a form with one more step."""
    return (f"{words} {step}:{axis}:{size}".strip(),)


def _spread(x: str, axis: int, zeros: int, before: int, after: int) -> str:
    """Returns x with zeros between the elements of an axis and at its ends."""
    return f"(access-pad (access-dilate {x} {axis} {zeros}) zero-padding {axis} {before} {after})"


def _windows(x: str, sizes: str, split: int = 1) -> str:
    """Returns windows of stride 1 that hold all channels."""
    strides = " ".join("1" for _ in sizes.split())
    return f"(access-squeeze {ex.windows(f'(access {x} {split})', sizes, strides)} {split})"


def _product(a: str, x: str, w: str, **parameters: int) -> Example:
    """Returns an example: the product of a, computed from x, and w."""
    return Example(ex.dot(a, ex.W, 0), {"x": x, "w": w}, parameters=parameters)


def line(gap: int, k: int, before: int, after: int, x: str = "n c 4") -> Example:
    """Returns an example with windows of k elements over a line with gaps."""
    return _product(_windows(_spread(_T, 2, gap - 1, before, after), f"$c {k}"), x, f"o c {k}")


def _dilated(x: str, apart: int, counts: int, k: int) -> str:
    """Returns windows of k elements of a line, that far apart, picked from windows of 5."""
    picked = ex.windows(ex.windows(f"(access {x} 1)", "$c 5", "1 1"), "1 1", f"1 {apart}")
    return f"(access (access-reshape (access {picked} 0) (access-shape (shape) (shape $n {counts} $c {k}))) 2)"


_T = "(access-tensor x)"
_PLANE = (
    "(access-slice (access-pad (access-pad (access-dilate (access-dilate (access-tensor x) 2 1) 3 2)"
    " zero-padding 2 2 2) zero-padding 3 1 0) 3 0 7)"
)  # (n c 9 7)
_DILATED = _product(_dilated(_spread(_T, 2, 1, 2, 2), 2, 7, 3), "n c 4", "o c 3")  # 13 elements
_NO_PHASE = _product(_dilated(_spread(_T, 2, 3, 0, 1), 4, 10, 2), "n c 4", "o c 2")  # a phase of zeros
_IN_PLANE = _product(_windows(_PLANE, "$c 3 2"), "n c 3 4", "o c 3 2")
_IN_GROUPS = _windows(f"(access-transpose {_spread(_T, 3, 1, 1, 1)} (list 1 0 2 3))", "$c 4", 2)
_GROUPED = Example(ex.dot(_IN_GROUPS, ex.access("w", 2), 1), {"x": "n 2 c 4", "w": "2 o c 4"})
_BLOCK = "(access-dilate (access-dilate (access-dilate (access-tensor x) 2 1) 3 2) 4 1)"
_CUBE = _product(_windows(_BLOCK, "$c 2 2 3"), "n c 3 2 3", "o c 2 2 3")
_ROWS = _product(f"(access (access-transpose {_PLANE} (list 0 2 3 1)) 3)", "n c 3 4", "o c")
_PADDED = "(access-pad (access-pad (access-tensor x) zero-padding 2 1 1) zero-padding 3 0 2)"
_ORDINARY = _product(_windows(_PADDED, "$c 3 2"), "n c 5 4", "o c 3 2", scatter=1)
WITH_GAPS = (line(2, 4, 3, 3), line(3, 2, 0, 2), _DILATED, _NO_PHASE, _IN_PLANE, _GROUPED)
EXAMPLES = (_ORDINARY, *WITH_GAPS)


# The product that all rules below match, and the product made from it.
a, b, m, i, j, gap, begin, n, d, h, k, total = variables("a b m i j gap begin n d h k total")
inner = Variable("inner", ACCESS)
_GAPPED = (gap, begin, n)
BETWEEN = between(ROOT, a, b, m, i, j, *_GAPPED, d, h, k, total)
_ROWS_APART = rows_apart(ROOT, a, b, m, i, *_GAPPED, h, total)
_SCATTER = (*_GAPPED, d, h, k)
first, count, start, out = variables("first count start out")


def one_phase(p: V, after: V, **results: V) -> Facts:
    """Matches the phase p of root and these results of its table."""
    one = (phase_range(ROOT, i, gap, begin, p, after), after == p + 1)
    return one, BETWEEN, phase.facts(gap, begin, d, k, h, p, **results)


def halves(low: V, half: V, high: V) -> Facts:
    """Splits several phases into those below `half` and the others."""
    return phase_range(ROOT, i, gap, begin, low, high), high - low > 1, half == (low + high) // 2


def _phases_are_demanded() -> Clauses:
    """Demands each phase, found by bisection, and its windows."""
    p, after, low, half, high, taps, apart = variables("p after low half high taps apart")
    return (
        when(BETWEEN, gap > 1, total * gap <= MOST_PHASES).then(phase_range(ROOT, i, gap, begin, 0, gap)),
        when(halves(low, half, high)).then(
            phase_range(ROOT, i, gap, begin, low, half), phase_range(ROOT, i, gap, begin, half, high)
        ),
        when(one_phase(p, after, first=first, count=count, taps=taps, apart=apart), taps > 0).then(
            windows_over_gaps.want_subwindow(a, i, j, *_GAPPED, first, count, taps, apart)
        ),
    )


@analysis(ANALYSES, *EXAMPLES, _ROWS)
def products_over_gaps_are_known(p: V, opened: V, c: V, sa: V, da: V, made: V, words: V) -> Clauses:
    """Finds the products of a form that step by 1 over windows of an input with gaps, and the facts that their other
    forms need.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
    """
    unfolded = (unfolding(ROOT, opened, total), is_dot(a, b, m))
    own_axis = (i >= opened, i >= m, sa == split(a), i < sa)
    sizes = (da == dims(a), h == da[i])
    return (
        when(recipe(ROOT, ""), ROOT == op.dot_product(p)).then(unfolding(ROOT, 0, 1)),
        when(
            *(unfolded, windows_over_gaps.zero_inserted(a, i, j, *_GAPPED), slides(a, i, j, 1, d, c)),
            *(own_axis, j >= sa, sizes, k == da[j], gap * k > 1),
        ).then(BETWEEN),
        when(unfolded, gaps(a, i, *_GAPPED), gap > 1, own_axis, sizes).then(
            _ROWS_APART, want_undilated(a, i, *_GAPPED)
        ),
        *(
            when(unfolding(ROOT, 0, 1), apart, gap > 1).then(set_(gap_axes(ROOT, kind), 1 << i))
            for kind in ("phases", "overlap-add", "dilate")
            for apart in (_ROWS_APART, BETWEEN)
        ),
        when(unfolding(ROOT, 0, 1), BETWEEN, gap == 1).then(set_(gap_axes(ROOT, "overlap-add"), 0)),
        when(BETWEEN, scatter.facts(*_SCATTER, first=first, count=count)).then(
            windows_over_gaps.want_subwindow(a, i, j, *_GAPPED, first, count, taps=1, apart=1)
        ),
        when(made_in_tiles(inner, made), recipe(inner, words)).then(recipe(made, words)),
        _phases_are_demanded(),
    )


# Sums of windows: the axes, and the results of the table `scatter` for each.
axes, steps, spread, outs, starts, sizes = variables("axes steps apart outs starts sizes")
_SUMS = (axes, steps, spread, outs, starts, sizes)


@analysis(ANALYSES, *EXAMPLES, _CUBE)
def windows_of_results_are_made(
    w: V, dw: V, db: V, sa: V, sb: V, place: V, rest: V, order: V, weights: V, middle: V
) -> Clauses:
    """dot(z x flip b): each element of z times b backwards, a window of the result of dot(windows(dilate z) x b).

    It makes e-nodes only for products of `between`, and they equal no existing class. Sound because a product of other
    operands is another product.
    """
    places = scatter.facts(*_SCATTER, first=first, count=count, out=out, start=start)
    all_axes = Variable("all")
    one = (i, gap, d, out, start, h)
    more = tuple(of_axes.push(of_one) for of_axes, of_one in zip(_SUMS, one, strict=True))
    return (
        when(
            *(BETWEEN, places, w == windows_over_gaps.subwindow(a, i, j, *_GAPPED, first, count, 1, 1)),
            *(dw == dims(w), db == dims(b), sb == split(b), sa == split(a), place == (sb + j) - sa),
            *(all_axes == vec_range(db.length), rest == all_axes.remove(place), order == rest.insert(sb, place)),
        ).then(
            let(weights, op.access(op.transpose(op.flip(b, place), order), sb + 1)),
            let(inner, dot(reshaped(w, dw.remove(j), sa), weights, m)),
            scattered(ROOT, inner, *one),
            unfolding(inner, i + 1, total),
        ),
        when(scattered(ROOT, inner, *one)).then(step_of(ROOT, inner, "overlap-add", i, gap)),
        when(scattered(ROOT, inner, *one)).then(scattering(ROOT, inner, *map(vec, one))),
        # Each axis once: if classes are merged, a product may be a form of itself.
        when(scattering(ROOT, middle, *_SUMS), scattered(middle, inner, *one), axes.highest() < i).then(
            scattering(ROOT, inner, *more)
        ),
    )


@rule(FAMILY, _ROWS)
def rows_are_spread_afterwards(z: V, part: V, spread: V, cut: V) -> Clauses:
    """dot(dilate(z) x b) = dilate(dot(z x b)), where the rows of a are apart.

    The case of windows of one element. Sound because a row of zeros has products of zero.
    """
    rows = (*_GAPPED, 1, h, 1)
    apart = (_ROWS_APART, scatter.facts(*rows, first=first, count=count), z == undilated(a, i, *_GAPPED))
    return (
        when(apart).then(windows_over_gaps.want_section(z, i, first, count)),
        when(apart, part == windows_over_gaps.section(z, i, first, count), scatter.facts(*rows, start=start)).then(
            let(inner, dot(part, b, m)),
            let(spread, op.dilate(inner, i, gap - 1)),
            spread_rows(ROOT, spread, i, start, h),
            windows_over_gaps.want_section(spread, i, start, h),
            unfolding(inner, i + 1, total),
            step_of(ROOT, inner, "dilate", i, gap),
        ),
        when(spread_rows(ROOT, spread, i, start, h), cut == windows_over_gaps.section(spread, i, start, h)).then(
            union(ROOT, cut)
        ),
    )


@rule(FAMILY, *EXAMPLES, _CUBE)
def windows_are_added_up(
    x: V, done: V, dr: V, rank: V, order: V, back: V, whole: V, axis: V, first: V, size: V, cut: V
) -> Clauses:
    """dot(windows(dilate z) x b) = slice(overlap-add(dot(z x flip b))).

    Each element of z, times b backwards, is a window of the result, along all axes with gaps at once. Sound because an
    element of z meets element u of b at the position u before it, which is position k - 1 - u of a window that ends at
    it; elements outside of the result are cut off.
    """
    sums = (scattering(ROOT, inner, *_SUMS), dr == dims(ROOT), rank == dr.length)
    dilating = (spreading(ROOT, inner, x, done), sums, done < axes.length)
    uncut = (cropping(ROOT, x, axes, starts, sizes), axes.length > 0)
    added = op.access(op.overlap_add(op.access(x, rank), outs, steps), rank)
    return (
        when(sums, positions_last.facts(rank, rank, rank, axes, order=order)).then(
            spreading(ROOT, inner, op.transpose(inner, order), 0)
        ),
        when(dilating, spread[done] == 1).then(spreading(ROOT, inner, x, done + 1)),
        when(dilating, d == spread[done], d > 1).then(
            spreading(ROOT, inner, op.dilate(x, rank + done, d - 1), done + 1)
        ),
        when(
            *(sums, done == axes.length, spreading(ROOT, inner, x, done)),
            positions_last.facts(rank, rank, rank, axes, back=back),
        ).then(let(whole, op.transpose(added, back)), cropping(ROOT, whole, axes, starts, sizes)),
        when(uncut).then(windows_over_gaps.want_section(x, axes[0], starts[0], sizes[0])),
        when(
            *(uncut, axis == axes[0], first == starts[0], size == sizes[0]),
            cut == windows_over_gaps.section(x, axis, first, size),
        ).then(cropping(ROOT, cut, axes.remove(0), starts.remove(0), sizes.remove(0))),
        when(cropping(ROOT, x, axes, starts, sizes), axes.length == 0).then(union(ROOT, x)),
    )


@rule(FAMILY, *EXAMPLES, _CUBE)
def whole_recipes_are_known(outer: V, kind: V, axes: V, with_gaps: V, words: V, more: V) -> Clauses:
    """A form of a layer applies one kind of step to all axes with gaps, and possibly other kinds to other axes.

    Forms that convert only some axes with gaps are intermediate: they still multiply by zeros, and are not explored
    further. Windows along an axis without gaps may stay as they are, or another rule may convert them. It only adds
    facts, but is not an analysis, so that it runs when all axes are known. Sound because a demand adds no e-node.
    """
    step = step_of(outer, inner, kind, i, gap)
    longer = stepped.facts(words, kind, i, gap, words=more)
    return (
        when(unfolding(outer, 0, 1), step, recipe(outer, words), longer).then(
            stepping(outer, inner, kind, 1 << i, more)
        ),
        when(stepping(ROOT, outer, kind, axes, words), step, longer).then(
            stepping(ROOT, inner, kind, axes | (1 << i), more)
        ),
        when(
            stepping(ROOT, inner, kind, axes, words), with_gaps == gap_axes(ROOT, kind), with_gaps & axes == with_gaps
        ).then(recipe(inner, words)),
    )
