"""Transposed convolutions: windows of stride 1 over an input with zeros between its elements, without the zeros.

`between root a b m i j gap begin n d h k total`: root is the product of a and b with m shared axes, and of the h
places along axis i, each with k elements along axis j, d apart, of an input with gaps; `total` products are there for
one of the program's.
`scattered root product i gap d out first h`: root is what that product's windows add up to along axis i, the product's
last axis being the elements of the window: `out` places, of which root is those from `first` on, zero outside of them.
`scattering` is the same for several axes: the last axes of the product are the elements of their windows.

Axes are converted in ascending order, so that each combination is reached once.
"""

from __future__ import annotations

import math

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.tables import table
from glenside.ir.types import Dims
from rewrites.convolution.forms import RELATIONS as FORM
from rewrites.convolution.zeros_between import RELATIONS as ZEROS
from rewrites.declare import rule
from rewrites.expressions import dot, reshaped, vec

FAMILY, ANALYSES = "transposed", "transposed-analyses"
MOST_PHASES = 64
_OWN = """
(relation unfolding (Access i64 i64))
(relation between (Access Access Access i64 i64 i64 i64 i64 i64 i64 i64 i64 i64))
(relation phase-range (Access i64 i64 i64 i64 i64))
(relation phase-product (Access i64 i64 i64 i64 Access))
(function stacked (Access i64 i64 i64 i64 i64) Access :merge old)
(relation interleaved (Access i64 i64 Access))
(relation want-thinned (Access i64 i64 i64 i64))
(function thinned (Access i64 i64 i64 i64) Access :merge old)
(relation rows-apart (Access Access Access i64 i64 i64 i64 i64 i64 i64))
(relation spread-rows (Access Access i64 i64 i64))
(relation step-of (Access Access String i64 i64))
(function gap-axes (Access String) i64 :merge (| old new))
(relation stepping (Access Access String i64 String))
(relation scattered (Access Access i64 i64 i64 i64 i64 i64))
(relation scattering (Access Access Ints Ints Ints Ints Ints Ints))
(relation spreading (Access Access Access i64))
(relation made-in-tiles (Access Access))
(relation cropping (Access Access Ints Ints Ints))
"""
RELATIONS = "\n".join(dict.fromkeys(f"{ZEROS}\n{FORM}{_OWN}".splitlines()))
BETWEEN = "(between root a b m i j gap begin n d h k total)"

ROWS_APART = "(rows-apart root a b m i gap begin n h total)"


@table(words=str)
def stepped(words: str, step: str, axis: int, size: int) -> tuple[str]:
    """The words of a form with one step more."""
    return (f"{words} {step}:{axis}:{size}".strip(),)


@table(first=int, count=int, taps=int, apart=int, tap=int, every=int)
def phase(gap: int, begin: int, d: int, k: int, h: int, p: int) -> tuple[int, int, int, int, int, int]:
    """Of the places p, p + gap, ..: where the first is in the bare input, how many, the taps that meet elements there.

    Those are `taps` from `tap` on, `every` so many, which are `apart` in the bare input; none where there is nothing.
    """
    common = math.gcd(d, gap)
    every = gap // common
    tap = next((u for u in range(min(k, every)) if (p + u * d - begin) % gap == 0), None)
    count = -((p - h) // gap)
    if tap is None or count <= 0:
        return 0, 0, 0, 1, 0, 1
    return (p + tap * d - begin) // gap, count, -((tap - k) // every), d // common, tap, every


@table(window=Dims, strides=Dims)
def every_nth(dims: Dims, axis: int, step: int) -> tuple[Dims, Dims]:
    """Windows of the axes from `axis` on that hold one of every `step` elements of it."""
    after = len(dims) - axis - 1
    return Dims((1, *dims[axis + 1 :])), Dims((step, *(1,) * after))


@table(first=int, count=int, out=int, start=int)
def scatter(gap: int, begin: int, n: int, d: int, h: int, k: int) -> tuple[int, int, int, int] | None:
    """Which elements of the bare input are in the input, how many, what their windows add up to, and where h begins."""
    first = max(0, -(begin // gap))
    count = min(n, (h - 1 + (k - 1) * d - begin) // gap + 1) - first
    if count <= 0:
        return None
    return first, count, gap * (count - 1) + (k - 1) * d + 1, (k - 1) * d - begin - gap * first


@table(order=Dims, back=Dims, operand=Dims)
def positions_last(rank: int, rows: int, rank_a: int, axes: Dims) -> tuple[Dims, Dims, Dims]:
    """Of a result of `rank` axes, its first `rows` those of the operand a, which has `rank_a` axes.

    The order in which its axes, and more for the windows, are to be added up, what undoes that without the windows, and
    the same order for a.
    """
    front = [axis for axis in range(rank) if axis not in axes]
    order = (*front, *axes, *range(rank, rank + len(axes)))
    back = [(*front, *axes).index(axis) for axis in range(rank)]
    own = (*(axis for axis in front if axis < rows), *axes, *range(rows, rank_a))
    return Dims(order), Dims(back), Dims(own)


_LINE = "(access-pad (access-dilate (access-tensor x) 2 {gap}) zero-padding 2 {before} {after})"
_WINDOWS = "(access-squeeze (access-windows (access {0} 1) (shape {1}) (shape {2})) 1)"
_DOT = "(compute dot-product (access-product {0} (access (access-tensor w) {1}) {2}))"
_PLANE = (
    "(access-slice (access-pad (access-pad (access-dilate (access-dilate (access-tensor x) 2 1) 3 2)"
    " zero-padding 2 2 2) zero-padding 3 1 0) 3 0 7)"
)  # (n c 9 7)


def _line(gap: int, k: int, before: int, after: int) -> Example:
    z = _LINE.format(gap=gap - 1, before=before, after=after)
    return Example(
        _DOT.format(_WINDOWS.format(z, f"$c {k}", "1 1"), 1, 0), {"x": "n $c 4".replace("$", ""), "w": f"o c {k}"}
    )


_SPREAD = (
    "(access (access-reshape (access (access-windows (access-windows (access {0} 1) (shape $c 5) (shape 1 1))"
    " (shape 1 1) (shape 1 {1})) 0) (access-shape (shape) (shape $n {2} $c {3}))) 2)"
)
_DILATED = Example(  # 13 elements, windows of every other of 5
    _DOT.format(_SPREAD.format(_LINE.format(gap=1, before=2, after=2), 2, 7, 3), 1, 0), {"x": "n c 4", "w": "o c 3"}
)
_NO_PHASE = Example(  # a phase of zeros: taps 2 apart over gaps of 2
    _DOT.format(_SPREAD.format(_LINE.format(gap=3, before=0, after=1), 4, 10, 2), 1, 0), {"x": "n c 4", "w": "o c 2"}
)
_IN_PLANE = Example(_DOT.format(_WINDOWS.format(_PLANE, "$c 3 2", "1 1 1"), 1, 0), {"x": "n c 3 4", "w": "o c 3 2"})
_GROUPED = Example(
    "(compute dot-product (access-product (access-squeeze (access-windows (access (access-transpose (access-pad"
    " (access-dilate (access-tensor x) 3 1) zero-padding 3 1 1) (list 1 0 2 3)) 2) (shape $c 4) (shape 1 1)) 2)"
    " (access (access-tensor w) 2) 1))",
    {"x": "n 2 c 4", "w": "2 o c 4"},
)
_CUBE = Example(
    _DOT.format(
        _WINDOWS.format(
            "(access-dilate (access-dilate (access-dilate (access-tensor x) 2 1) 3 2) 4 1)", "$c 2 2 3", "1 1 1 1"
        ),
        1,
        0,
    ),
    {"x": "n c 3 2 3", "w": "o c 2 2 3"},
)


def every_place(size: int) -> tuple[Example, ...]:
    """A line of so many elements."""
    made = _line(2, 3, 2, 2)
    return (Example(made.text, {**made.shapes, "x": f"7 c {size}"}),)


_ROWS = Example(
    _DOT.format(f"(access (access-transpose {_PLANE} (list 0 2 3 1)) 3)", 1, 0), {"x": "n c 3 4", "w": "o c"}
)
_ORDINARY = Example(
    _DOT.format(
        _WINDOWS.format(
            "(access-pad (access-pad (access-tensor x) zero-padding 2 1 1) zero-padding 3 0 2)", "$c 3 2", "1 1 1"
        ),
        1,
        0,
    ),
    {"x": "n c 5 4", "w": "o c 3 2"},
    parameters={"scatter": 1},
)
_WITH_GAPS = (_line(2, 4, 3, 3), _line(3, 2, 0, 2), _DILATED, _NO_PHASE, _IN_PLANE, _GROUPED)
EXAMPLES = (_ORDINARY, *_WITH_GAPS)


@rule(ANALYSES, *EXAMPLES, _ROWS, relations=RELATIONS)
def products_over_gaps_are_known() -> tuple[Clause, ...]:
    """Which products of a form step by 1 over windows of an input with gaps, and what their other forms need.

    An analysis: it adds no e-node. Sound because it only reads what is there.
    """
    scattered = " ".join(f"(= {v} (scatter-{v} gap begin n d h k))" for v in ("first", "count"))
    phased = " ".join(f"(= {v} (phase-{v} gap begin d k h p))" for v in ("first", "count", "taps", "apart"))
    return (
        Clause('(form root "") (= root (compute "dot-product" p))', "(unfolding root 0 1)"),
        Clause(
            '(unfolding root open total) (= root (compute "dot-product" (access-product a b m)))'
            " (gapped a i j gap begin n) (slides a i j 1 d c) (>= i open) (>= i m) (= sa (split a)) (< i sa) (>= j sa)"
            " (= da (dims a)) (= h (vec-get da i)) (= k (vec-get da j)) (> (* gap k) 1)",
            BETWEEN,
        ),
        Clause(
            '(unfolding root open total) (= root (compute "dot-product" (access-product a b m)))'
            " (gaps a i gap begin n) (> gap 1) (>= i open) (>= i m) (= sa (split a)) (< i sa) (= da (dims a))"
            " (= h (vec-get da i))",
            f"{ROWS_APART} (want-bare a i gap begin n)",
        ),
        *(
            Clause(f"(unfolding root 0 1) {apart}", f'(set (gap-axes root "{kind}") (<< 1 i))')
            for kind in ("phases", "overlap-add", "dilate")
            for apart in (ROWS_APART, BETWEEN if kind == "overlap-add" else f"{BETWEEN} (> gap 1)")
        ),
        Clause(f"{BETWEEN} {scattered}", "(want-over a i j gap begin n first count 1 1)"),
        Clause("(made-in-tiles inner made) (form inner words)", "(form made words)"),
        Clause(f"{BETWEEN} (> gap 1) (<= (* total gap) {MOST_PHASES})", "(phase-range root i gap begin 0 gap)"),
        Clause(
            "(phase-range root i gap begin from to) (> (- to from) 1) (= half (/ (+ from to) 2))",
            "(phase-range root i gap begin from half) (phase-range root i gap begin half to)",
        ),
        Clause(
            f"(phase-range root i gap begin p q) (= q (+ p 1)) {BETWEEN} {phased} (> taps 0)",
            "(want-over a i j gap begin n first count taps apart)",
        ),
    )


@rule(
    ANALYSES,
    Example(
        "(access (access-tensor x) 1)", {"x": "m 7 3"}, "(want-thinned $root 1 1 3 2) (want-thinned $root 1 2 1 4)"
    ),
    relations=RELATIONS,
)
def weights_are_thinned() -> tuple[Clause, ...]:
    """thinned(b, axis, tap, taps, every): elements tap, tap + every, .. of an axis.

    It makes e-nodes for demands alone. Sound because windows of one element, `every` apart, hold just those.
    """
    span = "(= span (+ 1 (* (- taps 1) every)))"
    wanted = f"(want-thinned b axis tap taps every) {span}"
    part = "(= part (section b axis tap span)) (= db (dims part)) (= sb (split b))"
    picked = "(access-windows (access part axis) window strides)"
    return (
        Clause(wanted, "(want-section b axis tap span)"),
        Clause(f"{wanted} {part} (= span taps)", "(set (thinned b axis tap taps every) part)"),
        Clause(
            f"{wanted} {part} (!= span taps) (= window (every-nth-window db axis every))"
            " (= strides (every-nth-strides db axis every))",
            f"(set (thinned b axis tap taps every) {reshaped(picked, '(vec-set db axis taps)', 'sb')})",
        ),
    )


_PHASE = f"(phase-range root i gap begin p q) (= q (+ p 1)) {BETWEEN}" + "".join(
    f" (= {v} (phase-{v} gap begin d k h p))" for v in ("taps", "count")
)
_DIMS = "(= dr (dims root)) (= rank (vec-length dr)) (= most (/ (+ h (- gap 1)) gap))"


@rule(FAMILY, *_WITH_GAPS, relations=RELATIONS)
def phases_are_interleaved() -> tuple[Clause, ...]:
    """dot(windows(dilate z) x b) = interleave(dot(windows(z) x every gap-th element of b), for each phase).

    Of the places p, p + gap, .. the same elements of b meet elements of z: those are products of stride 1 over z, as
    many as there are phases. Sound because every other element of b meets a zero there, and because what the longest
    phase has more than the others is cut off.
    """
    seen = "".join(f" (= {v} (phase-{v} gap begin d k h p))" for v in ("first", "apart", "tap", "every"))
    windows = "(= w (over a i j gap begin n first count taps apart))"
    place = "(= sb (split b)) (= sa (split a)) (= place (- (+ sb j) sa))"
    product = "(phase-product root i gap begin p inner)"
    behind = "(= here (+ i 1)) (= longest (vec-set dr i most)) (= apart-dims (insert longest 1 here))"
    join = "(phase-range root i gap begin from to) (> (- to from) 1) (= half (/ (+ from to) 2))"
    return (
        Clause(f"{_PHASE}{seen} (> taps 0) {place}", "(want-thinned b place tap taps every)"),
        Clause(
            f"{_PHASE}{seen} (> taps 0) {place} (= weights (thinned b place tap taps every)) {windows}",
            f"(let inner {dot('w', 'weights', 'm')}) (phase-product root i gap begin p inner)"
            " (unfolding inner (+ i 1) (* total gap))",
        ),
        Clause(product, '(step-of root inner "phases" i gap)'),
        Clause(f"{product} {_PHASE} {_DIMS}", "(want-section inner i 0 most)"),
        Clause(
            f"{product} {_PHASE} {_DIMS} (= part (section inner i 0 most)) {behind}",
            f"(set (stacked root i gap begin p q) {reshaped('part', 'apart-dims', '(+ rank 1)')})",
        ),
        Clause(
            f"{_PHASE} (= 0 taps) {_DIMS} {behind} (= dt (dtype root))",
            '(set (stacked root i gap begin p q) (access (full apart-dims "0" dt) (+ rank 1)))',
        ),
        Clause(
            f"{join} (= low (stacked root i gap begin from half)) (= high (stacked root i gap begin half to))",
            "(set (stacked root i gap begin from to) (access-concatenate low high (+ i 1)))",
        ),
        Clause(
            f"{BETWEEN} {_DIMS} (= all (stacked root i gap begin 0 gap))",
            f"(let whole {reshaped('all', '(vec-set dr i (* most gap))', 'rank')})"
            " (interleaved root i h whole) (want-section whole i 0 h)",
        ),
        Clause("(interleaved root i h whole) (= found (section whole i 0 h))", "(union root found)"),
    )


@rule(ANALYSES, *EXAMPLES, _CUBE, relations=RELATIONS)
def windows_of_results_are_made() -> tuple[Clause, ...]:
    """dot(z x flip b): each element of z times b backwards, a window of the result of dot(windows(dilate z) x b).

    It makes e-nodes for what `between` knows alone, and they equal nothing that was there. Sound because a product of
    other operands is another product.
    """
    found = "".join(f" (= {v} (scatter-{v} gap begin n d h k))" for v in ("first", "count", "out", "start"))
    return (
        Clause(
            f"{BETWEEN}{found} (= w (over a i j gap begin n first count 1 1)) (= dw (dims w)) (= db (dims b))"
            " (= sb (split b)) (= sa (split a)) (= place (- (+ sb j) sa)) (= all (vec-range (vec-length db)))"
            " (= rest (vec-remove all place)) (= order (insert rest place sb))",
            "(let weights (access (access-transpose (access-flip b place) order) (+ sb 1)))"
            f" (let inner {dot(reshaped('w', '(vec-remove dw j)', 'sa'), 'weights', 'm')})"
            " (scattered root inner i gap d out start h) (unfolding inner (+ i 1) total)",
        ),
        Clause("(scattered root inner i gap d out start h)", '(step-of root inner "overlap-add" i gap)'),
        Clause(
            "(scattered root inner i gap d out start h)",
            f"(scattering root inner {vec('i')} {vec('gap')} {vec('d')} {vec('out')} {vec('start')} {vec('h')})",
        ),
        Clause(
            "(scattering root middle axes steps spread outs firsts sizes) (scattered middle inner i gap d out start h)",
            "(scattering root inner (vec-push axes i) (vec-push steps gap) (vec-push spread d) (vec-push outs out)"
            " (vec-push firsts start) (vec-push sizes h))",
        ),
    )


@rule(FAMILY, _ROWS, relations=RELATIONS)
def rows_are_spread_afterwards() -> tuple[Clause, ...]:
    """dot(dilate(z) x b) = dilate(dot(z x b)), where the rows of a are what is apart.

    What windows of one element come to. Sound because a row of zeros has products of zero.
    """
    apart = ROWS_APART
    found = "".join(f" (= {v} (scatter-{v} gap begin n 1 h 1))" for v in ("first", "count"))
    return (
        Clause(f"{apart}{found} (= z (bare a i gap begin n))", "(want-section z i first count)"),
        Clause(
            f"{apart}{found} (= z (bare a i gap begin n)) (= part (section z i first count))"
            " (= start (scatter-start gap begin n 1 h 1))",
            f"(let inner {dot('part', 'b', 'm')}) (let spread (access-dilate inner i (- gap 1)))"
            " (spread-rows root spread i start h) (want-section spread i start h) (unfolding inner (+ i 1) total)"
            ' (step-of root inner "dilate" i gap)',
        ),
        Clause("(spread-rows root spread i start h) (= cut (section spread i start h))", "(union root cut)"),
    )


@rule(FAMILY, *EXAMPLES, _CUBE, relations=RELATIONS)
def windows_are_added_up() -> tuple[Clause, ...]:
    """dot(windows(dilate z) x b) = slice(overlap-add(dot(z x flip b))).

    Each element of z, times b backwards, is a window of the result: of several axes at once, where they all have gaps.
    Sound because an element of z meets element u of b at the place that is u before it, which is place k - 1 - u of a
    window that ends at it; what lies outside of the result is cut off.
    """
    last, key = "(vec-get axes 0)", "rank rank rank axes"
    all_axes = "(scattering root inner axes steps spread outs firsts sizes) (= dr (dims root)) (= rank (vec-length dr))"
    spreading = f"(spreading root inner x e) {all_axes} (< e (vec-length axes))"
    return (
        Clause(
            f"{all_axes} (= order (positions-last-order {key}))",
            "(spreading root inner (access-transpose inner order) 0)",
        ),
        Clause(f"{spreading} (= 1 (vec-get spread e))", "(spreading root inner x (+ e 1))"),
        Clause(
            f"{spreading} (= d (vec-get spread e)) (> d 1)",
            "(spreading root inner (access-dilate x (+ rank e) (- d 1)) (+ e 1))",
        ),
        Clause(
            f"{all_axes} (= e (vec-length axes)) (spreading root inner x e) (= back (positions-last-back {key}))",
            "(let whole (access-transpose (access (access-overlap-add (access x rank) outs steps) rank) back))"
            " (cropping root whole axes firsts sizes)",
        ),
        Clause(
            "(cropping root x axes firsts sizes) (> (vec-length axes) 0)",
            f"(want-section x {last} (vec-get firsts 0) (vec-get sizes 0))",
        ),
        Clause(
            f"(cropping root x axes firsts sizes) (> (vec-length axes) 0) (= axis {last}) (= first (vec-get firsts 0))"
            " (= size (vec-get sizes 0)) (= cut (section x axis first size))",
            "(cropping root cut (vec-remove axes 0) (vec-remove firsts 0) (vec-remove sizes 0))",
        ),
        Clause("(cropping root x axes firsts sizes) (= 0 (vec-length axes))", "(union root x)"),
    )


@rule(FAMILY, *EXAMPLES, _CUBE, relations=RELATIONS)
def whole_forms_are_known() -> tuple[Clause, ...]:
    """A form of a layer is what one kind of step makes of it on every axis with gaps.

    Those of some axes only are on the way to it: they multiply by zeros still, and nobody need look at them further.
    Only facts, but no analysis, so that it sees all axes. Sound because a demand adds no e-node.
    """
    step = "(step-of outer inner kind i gap)"
    return (
        Clause(
            f"(unfolding outer 0 1) {step} (form outer words) (= more (stepped-words words kind i gap))",
            "(stepping outer inner kind (<< 1 i) more)",
        ),
        Clause(
            f"(stepping root outer kind axes words) {step} (= more (stepped-words words kind i gap))",
            "(stepping root inner kind (| axes (<< 1 i)) more)",
        ),
        Clause("(stepping root inner kind axes words) (= axes (gap-axes root kind))", "(form inner words)"),
    )
