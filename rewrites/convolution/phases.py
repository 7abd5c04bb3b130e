"""Phases of transposed convolutions: for each remainder of positions modulo the gap, a product over the bare input.

The phases are stacked, and interleaved to the result.
"""

from __future__ import annotations

from typing import Any

from glenside.ir.types import Dims
from glenside.rewrites import operators as op
from glenside.rewrites.convolution import transposed
from glenside.rewrites.convolution.position_tables import phase
from glenside.rewrites.convolution.transposed import BETWEEN, halves, made_in_tiles, one_phase, step_of, unfolding
from glenside.rewrites.convolution.windows_over_gaps import section, subwindow, want_section, want_subwindow
from glenside.rewrites.declare import ROOT, Clauses, Example, V, analysis, let, rule, set_, union, when
from glenside.rewrites.facts import ACCESS, INT, access_at, dims, dtype, function, on_demand, relation, split, table
from glenside.rewrites.terms import Variable, dot, reshaped, variables

_GAPS: dict[str, Any] = {"gap": INT, "begin": INT, "n": INT}
_TAPS: dict[str, Any] = {"taps": INT, "apart": INT}
# The product of a phase; a stack of several of them; and all of them interleaved.
phase_product = relation("phase-product", product=ACCESS, i=INT, gap=INT, begin=INT, p=INT, inner=ACCESS)
# Its rows; those at the ends read zeros around the elements: taps of `first`, first + 1, ..
phase_rows = relation(
    "phase-rows", product=ACCESS, a=ACCESS, b=ACCESS, m=INT, i=INT, j=INT, **_GAPS, first=INT, count=INT, **_TAPS
)
stacked = function("stacked", ACCESS, "old", product=ACCESS, i=INT, gap=INT, begin=INT, low=INT, high=INT)
interleaved = relation("interleaved", product=ACCESS, i=INT, h=INT, whole=ACCESS)
# Elements tap, tap + every, .. of an axis of weights, `taps` in total.
want_strided_taps, strided_taps = on_demand("strided-taps", b=ACCESS, axis=INT, tap=INT, taps=INT, every=INT)


@table(window=Dims, strides=Dims)
def every_nth(dims: Dims, axis: int, step: int) -> tuple[Dims, Dims]:
    """Returns windows of the axes from `axis` on that hold every `step`-th element of it."""
    after = len(dims) - axis - 1
    return Dims((1, *dims[axis + 1 :])), Dims((step, *(1,) * after))


@table(at=int)
def edge_of_rows(first: int, count: int, taps: int, apart: int, n: int) -> tuple[int] | None:
    """Returns the number of rows before the first that reads only elements, or else before the first that no longer
    does.
    """
    low, high = max(0, -first), min(count, n - (taps - 1) * apart - first)
    if low >= high or (low, high) == (0, count):
        return None
    return (low or high,)


# The product whose phases these are, the position p, and the results of the table `phase`.
a, b, m, i, j, gap, begin, n, d, h, k, total = BETWEEN.arguments[1:]
p, after, low, half, high = variables("p after low half high")
first, count, taps, apart, tap, every = variables("first count taps apart tap every")
inner = Variable("inner", ACCESS)
_THINNED = Example(
    "(access (access-tensor x) 1)",
    {"x": "m 7 3"},
    [want_strided_taps(access_at("root"), 1, *taps) for taps in ((1, 3, 2), (2, 1, 4))],
)


@analysis(transposed.ANALYSES, _THINNED)
def weights_are_thinned(axis: V, span: V, part: V, db: V, sb: V, window: V, strides: V) -> Clauses:
    """strided_taps(b, axis, tap, taps, every): elements tap, tap + every, .. of an axis.

    It makes e-nodes only on demand. Sound because windows of one element, `every` apart, hold exactly these elements.
    """
    wanted = (want_strided_taps(b, axis, tap, taps, every), span == 1 + (taps - 1) * every)
    sectioned = (part == section(b, axis, tap, span), db == dims(part), sb == split(b))
    result = strided_taps(b, axis, tap, taps, every)
    picked = op.windows(op.access(part, axis), window, strides)
    return (
        when(wanted).then(want_section(b, axis, tap, span)),
        when(wanted, sectioned, span == taps).then(set_(result, part)),
        when(wanted, sectioned, span != taps, every_nth.facts(db, axis, every, window=window, strides=strides)).then(
            set_(result, reshaped(picked, db.set(axis, taps), sb))
        ),
    )


def _weights_of_phases() -> Clauses:
    """Makes the product of a phase: windows over the elements that it meets, and the weights that meet them."""
    sa, sb, place, weights, w = variables("sa sb place weights w")
    seen = (
        one_phase(p, after, taps=taps, count=count),
        phase.facts(gap, begin, d, k, h, p, first=first, apart=apart, tap=tap, every=every),
        *(taps > 0, sb == split(b), sa == split(a), place == (sb + j) - sa),
    )
    return (
        when(seen).then(want_strided_taps(b, place, tap, taps, every)),
        when(
            *(seen, weights == strided_taps(b, place, tap, taps, every)),
            w == subwindow(a, i, j, gap, begin, n, first, count, taps, apart),
        ).then(
            let(inner, dot(w, weights, m)),
            phase_product(ROOT, i, gap, begin, p, inner),
            unfolding(inner, i + 1, total * gap),
        ),
        when(
            phase_product(ROOT, i, gap, begin, p, inner),
            seen,
            total == 1,
            sa == i + 1,
            weights == strided_taps(b, place, tap, taps, every),
        ).then(phase_rows(inner, a, weights, m, i, j, gap, begin, n, first, count, taps, apart)),
    )


def _edges_apart() -> Clauses:
    """dot(windows(pad z) x b) = concatenate(dot(windows(pad(start of z)) x b), dot(windows(z) x b), ..).

    For phases along one axis only: most windows lie within the elements, and then need no copy with zeros around it.
    """
    at, rest, w = variables("at rest w")
    upper, left, right = Variable("upper", ACCESS), Variable("left", ACCESS), Variable("right", ACCESS)
    of = (a, i, j, gap, begin, n)
    rows = (
        phase_rows(ROOT, a, b, m, i, j, gap, begin, n, first, count, taps, apart),
        *(edge_of_rows.facts(first, count, taps, apart, n, at=at), rest == count - at),
    )
    return (
        when(rows).then(
            want_subwindow(*of, first, at, taps, apart), want_subwindow(*of, first + at, rest, taps, apart)
        ),
        when(
            *(rows, w == subwindow(*of, first, at, taps, apart)),
            upper == subwindow(*of, first + at, rest, taps, apart),
        ).then(
            let(left, dot(w, b, m)),
            let(right, dot(upper, b, m)),
            union(ROOT, op.concatenate(left, right, i)),
            made_in_tiles(ROOT, left),
            made_in_tiles(ROOT, right),
            phase_rows(right, a, b, m, i, j, gap, begin, n, first + at, rest, taps, apart),
        ),
    )


@rule(transposed.FAMILY, *transposed.WITH_GAPS)
def phases_are_interleaved(
    dr: V, rank: V, most: V, here: V, longest: V, part: V, dt: V, lower: V, upper: V, all_: V, whole: V, cut: V
) -> Clauses:
    """dot(windows(dilate z) x b) = interleave(dot(windows(z) x every gap-th element of b), for each phase).

    At positions p, p + gap, .. the same elements of b meet elements of z: these are products of stride 1 over z, one
    per phase; windows that reach beyond z become products of their own. Sound because all other elements of b meet a
    zero there, because the surplus of the longest phase is cut off, and because each row of windows is the same in any
    section of z.
    """
    product = phase_product(ROOT, i, gap, begin, p, inner)
    one = one_phase(p, after, taps=taps, count=count)
    sizes = (dr == dims(ROOT), rank == dr.length, most == (h + (gap - 1)) // gap)
    apart = Variable("apart-dims")
    behind = (here == i + 1, longest == dr.set(i, most), apart == longest.insert(here, 1))

    def stack(start: V | int, stop: V) -> V:
        return stacked(ROOT, i, gap, begin, start, stop)

    return (
        _weights_of_phases(),
        _edges_apart(),
        when(product).then(step_of(ROOT, inner, "phases", i, gap)),
        when(product, one, sizes).then(want_section(inner, i, 0, most)),
        when(product, one, sizes, part == section(inner, i, 0, most), behind).then(
            set_(stack(p, after), reshaped(part, apart, rank + 1))
        ),
        when(one, taps == 0, sizes, behind, dt == dtype(ROOT)).then(
            set_(stack(p, after), op.access(op.full(apart, "0", dt), rank + 1))
        ),
        when(halves(low, half, high), lower == stack(low, half), upper == stack(half, high)).then(
            set_(stack(low, high), op.concatenate(lower, upper, i + 1))
        ),
        when(BETWEEN, sizes, all_ == stack(0, gap)).then(
            let(whole, reshaped(all_, dr.set(i, most * gap), rank)),
            interleaved(ROOT, i, h, whole),
            want_section(whole, i, 0, h),
        ),
        when(interleaved(ROOT, i, h, whole), cut == section(whole, i, 0, h)).then(union(ROOT, cut)),
    )
