"""Phases of transposed convolutions: for each remainder of places by the gap, a product of stride 1 over the bare input.

Stacked next to each other, phases are interleaved to the result.
"""

from __future__ import annotations

from glenside.egraph.clause import ROOT, let, set_, union, when
from glenside.egraph.pattern import Variable, variables
from glenside.egraph.rule import Example
from glenside.egraph.schema import access_at, dims, dtype, function, relation, split
from glenside.egraph.sorts import ACCESS, INT
from glenside.egraph.tables import table
from glenside.ir.operators.leaves import full
from glenside.ir.operators.slices import access_concatenate
from glenside.ir.operators.views import access
from glenside.ir.operators.windowing import access_windows
from glenside.ir.types import Dims
from rewrites.convolution.transposed import (
    ANALYSES,
    BETWEEN,
    FAMILY,
    WITH_GAPS,
    halves,
    one_phase,
    phase,
    step_of,
    unfolding,
)
from rewrites.convolution.zeros_between import over, section, want_section
from rewrites.declare import Clauses, V, analysis, rule
from rewrites.terms import dot, reshaped

# The product of a phase, those of several next to each other as one, and all of them in turn.
phase_product = relation("phase-product", product=ACCESS, i=INT, gap=INT, begin=INT, p=INT, inner=ACCESS)
stacked = function("stacked", ACCESS, "old", product=ACCESS, i=INT, gap=INT, begin=INT, low=INT, high=INT)
interleaved = relation("interleaved", product=ACCESS, i=INT, h=INT, whole=ACCESS)
# Elements tap, tap + every, .. of an axis of weights, `taps` in all.
want_thinned = relation("want-thinned", b=ACCESS, axis=INT, tap=INT, taps=INT, every=INT)
thinned = function("thinned", ACCESS, "old", b=ACCESS, axis=INT, tap=INT, taps=INT, every=INT)


@table(window=Dims, strides=Dims)
def every_nth(dims: Dims, axis: int, step: int) -> tuple[Dims, Dims]:
    """Windows of the axes from `axis` on that hold one of every `step` elements of it."""
    after = len(dims) - axis - 1
    return Dims((1, *dims[axis + 1 :])), Dims((step, *(1,) * after))


# The product whose phases these are, the place p, and where the table `phase` has its elements and weights.
_a, _b, _m, _i, _j, _gap, _begin, _n, _d, _h, _k, _total = BETWEEN.arguments[1:]
_p, _after, _low, _half, _high = variables("p after low half high")
_first, _count, _taps, _apart, _tap, _every = variables("first count taps apart tap every")
_inner = Variable("inner", ACCESS)
_THINNED = Example(
    "(access (access-tensor x) 1)",
    {"x": "m 7 3"},
    [want_thinned(access_at("root"), 1, *taps) for taps in ((1, 3, 2), (2, 1, 4))],
)


@analysis(ANALYSES, _THINNED)
def weights_are_thinned(axis: V, span: V, part: V, db: V, sb: V, window: V, strides: V) -> Clauses:
    """thinned(b, axis, tap, taps, every): elements tap, tap + every, .. of an axis.

    It makes e-nodes for demands alone. Sound because windows of one element, `every` apart, hold just those.
    """
    wanted = (want_thinned(_b, axis, _tap, _taps, _every), span == 1 + (_taps - 1) * _every)
    sectioned = (part == section(_b, axis, _tap, span), db == dims(part), sb == split(_b))
    result = thinned(_b, axis, _tap, _taps, _every)
    picked = access_windows(access(part, axis), window, strides)
    return (
        when(wanted).then(want_section(_b, axis, _tap, span)),
        when(wanted, sectioned, span == _taps).then(set_(result, part)),
        when(
            *(wanted, sectioned, span != _taps),
            every_nth.facts(db, axis, _every, window=window, strides=strides),
        ).then(set_(result, reshaped(picked, db.set(axis, _taps), sb))),
    )


def _weights_of_phases() -> Clauses:
    """The product of a phase: windows over the elements that it meets, and the weights that meet them."""
    sa, sb, place, weights, w = variables("sa sb place weights w")
    seen = (
        one_phase(_p, _after, taps=_taps, count=_count),
        phase.facts(_gap, _begin, _d, _k, _h, _p, first=_first, apart=_apart, tap=_tap, every=_every),
        *(_taps > 0, sb == split(_b), sa == split(_a), place == (sb + _j) - sa),
    )
    return (
        when(seen).then(want_thinned(_b, place, _tap, _taps, _every)),
        when(
            *(seen, weights == thinned(_b, place, _tap, _taps, _every)),
            w == over(_a, _i, _j, _gap, _begin, _n, _first, _count, _taps, _apart),
        ).then(
            let(_inner, dot(w, weights, _m)),
            phase_product(ROOT, _i, _gap, _begin, _p, _inner),
            unfolding(_inner, _i + 1, _total * _gap),
        ),
    )


@rule(FAMILY, *WITH_GAPS)
def phases_are_interleaved(
    dr: V, rank: V, most: V, here: V, longest: V, part: V, dt: V, lower: V, upper: V, all_: V, whole: V, cut: V
) -> Clauses:
    """dot(windows(dilate z) x b) = interleave(dot(windows(z) x every gap-th element of b), for each phase).

    Of the places p, p + gap, .. the same elements of b meet elements of z: those are products of stride 1 over z, as
    many as there are phases. Sound because every other element of b meets a zero there, and because what the longest
    phase has more than the others is cut off.
    """
    product = phase_product(ROOT, _i, _gap, _begin, _p, _inner)
    one = one_phase(_p, _after, taps=_taps, count=_count)
    sizes = (dr == dims(ROOT), rank == dr.length, most == (_h + (_gap - 1)) // _gap)
    apart = Variable("apart-dims")
    behind = (here == _i + 1, longest == dr.set(_i, most), apart == longest.insert(here, 1))

    def stack(start: V | int, stop: V) -> V:
        return stacked(ROOT, _i, _gap, _begin, start, stop)

    return (
        _weights_of_phases(),
        when(product).then(step_of(ROOT, _inner, "phases", _i, _gap)),
        when(product, one, sizes).then(want_section(_inner, _i, 0, most)),
        when(product, one, sizes, part == section(_inner, _i, 0, most), behind).then(
            set_(stack(_p, _after), reshaped(part, apart, rank + 1))
        ),
        when(one, _taps == 0, sizes, behind, dt == dtype(ROOT)).then(
            set_(stack(_p, _after), access(full(apart, "0", dt), rank + 1))
        ),
        when(halves(_low, _half, _high), lower == stack(_low, _half), upper == stack(_half, _high)).then(
            set_(stack(_low, _high), access_concatenate(lower, upper, _i + 1))
        ),
        when(BETWEEN, sizes, all_ == stack(0, _gap)).then(
            let(whole, reshaped(all_, dr.set(_i, most * _gap), rank)),
            interleaved(ROOT, _i, _h, whole),
            want_section(whole, _i, 0, _h),
        ),
        when(interleaved(ROOT, _i, _h, whole), cut == section(whole, _i, 0, _h)).then(union(ROOT, cut)),
    )
