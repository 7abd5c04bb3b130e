"""Windows that serve several outputs at once.

`slides a i j t d c`: axis i of a's shape steps over windows that lie along axis j of its item, in steps of t, and the
elements of a window are d apart: a[.. y .., .. u ..] = z[.., y t + u d, ..] for some z; c is the largest number that
divides both. Axes count over all of a.
`view root a`: root has the elements of a, in their order, under other dims; `same-axis root a i i2`: axis i of a is its
axis i2. `lies dims i size before`: axis i of the dims has that size, and so many elements are before it.
`kept-axes root a i j i2 j2`: axes i and j of a, along which it slides, are axes i2 and j2 of root, a form of a.
`picks root a i j c`: root has every d-th element of each window of a, along the same axes; c is as above.
`wider a i j q`: a with windows that each hold those of q neighbours, elements c apart, and 1/q as many of them.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.schema import relation
from glenside.egraph.sorts import ACCESS, INT
from rewrites.declare import rule
from rewrites.expressions import DOT, ceil_div, dot, padded, reshaped

FAMILY = "windows"
slides = relation("slides", access=ACCESS, i=INT, j=INT, stride=INT, apart=INT, common=INT)
searched = relation("searched", product=ACCESS)  # products for which mappings are looked for
want_regroup = relation("want-regroup", product=ACCESS, i=INT, j=INT, q=INT)
regrouped = relation("regrouped", product=ACCESS, i=INT, j=INT, q=INT, larger=ACCESS)
_SLIDES = "(relation slides (Access i64 i64 i64 i64 i64))"
_VIEW = """(relation view (Access Access))
(relation kept-axes (Access Access i64 i64 i64 i64))
(relation picks (Access Access i64 i64 i64))
(relation same-axis (Access Access i64 i64))
(relation lies (Ints i64 i64 i64))"""
_AXES = ["(relation axis-number (i64))", *(f"(axis-number {i})" for i in range(12))]
_WANT_WIDER = "(relation want-wider (Access i64 i64 i64))"
_WIDER = "(function wider (Access i64 i64 i64) Access :merge old)"  # one is enough: any of them serves
_SEARCHED = "(relation searched (Access))"  # products for which mappings are looked for
_WANT_REGROUP = "(relation want-regroup (Access i64 i64 i64))"
_REGROUP = "(relation regroup (Access Access i64 i64 i64 i64 i64 i64 Access i64))"  # root b n i e q t d w j
_REGROUPED = "(relation regrouped (Access i64 i64 i64 Access))"
RELATIONS = "\n".join([_SLIDES, _VIEW, *_AXES, _WANT_WIDER, _WIDER, _WANT_REGROUP, _SEARCHED, _REGROUP, _REGROUPED])

_IMAGE = {"x": "n 5 9"}
_WINDOWS = "(access-windows (access (access-tensor x) 1) (shape 2 3) (shape 1 2))"  # (n 4 4)(2 3)
_DILATED = (
    "(access (access-reshape (access-windows"
    " (access-windows (access (access-tensor x) 1) (shape 2 5) (shape 1 1)) (shape 1 1) (shape 1 2))"
    " (access-shape (shape $n 4 5 2 3) (shape))) 3)"
)  # (n 4 5)(2 3), elements 2 apart
_MOVED = (
    "(access-transpose (access-slice (access-pad (access (access-reshape"
    f" (access {_WINDOWS} 0) (access-shape (shape) (shape $n 1 4 4 2 3))) 4) zero-padding 4 0 1) 4 0 2)"
    " (list 0 1 3 2 5 4))"
)  # (n 1 4 4)(3 2): the windows under every form that keeps their axes
_MAPPED = f'(linear-map {_WINDOWS} 3 3 "1 0 -2 1 0 -3")'  # (n 4 4)(3 3)
_ONE_BY_ONE = "(access-windows (access (access-tensor x) 1) (shape 5 1) (shape 1 2))"  # (n 1 5)(5 1)


def _wants(i: int, j: int, q: int) -> str:
    return f"(want-wider $root {i} {j} {q})"


_LYING = (
    Clause(
        "(view root a) (= d (dims a)) (= p (prefixes d)) (axis-number i) (< i (vec-length d))",
        "(lies d i (vec-get d i) (vec-get p i))",
    ),
    Clause(
        "(view root a) (= d (dims root)) (= p (prefixes d)) (axis-number i) (< i (vec-length d))",
        "(lies d i (vec-get d i) (vec-get p i))",
    ),
    Clause(
        "(view root a) (= d (dims a)) (= e (dims root)) (lies d i size before) (lies e i2 size before)",
        "(same-axis root a i i2)",
    ),
)
WIDENING = (
    Example(_WINDOWS, _IMAGE, wants=_wants(2, 4, 3)),
    Example(_WINDOWS, _IMAGE, wants=_wants(1, 3, 2)),
    Example(_DILATED, _IMAGE, wants=_wants(2, 4, 2)),
    Example(_DILATED, _IMAGE, wants=_wants(1, 3, 4)),
    Example(_MOVED, _IMAGE, wants=_wants(2, 4, 3)),
    Example(_ONE_BY_ONE, _IMAGE, wants=_wants(2, 4, 2)),
    Example(_MAPPED, _IMAGE, wants=_wants(2, 4, 3)),
)


@rule("analyses", *WIDENING, relations=RELATIONS)
def sliding_axes_are_known() -> tuple[Clause, ...]:
    """Which axis of a shape steps over windows along which axis of the item, through every form that keeps both.

    An analysis: it adds no e-node. Sound because it only reads what is there: windows of windows that hold one element
    pick every d-th element; a form that keeps the order of elements keeps an axis whose size, and whose product of
    sizes before it, are the same on both sides.
    """
    slides, moved = "(slides a i j t d c)", "(slides root i2 j2 t d c) (kept-axes root a i j i2 j2)"
    same = "(slides root i j t d c) (kept-axes root a i j i j)"
    return (
        Clause(
            "(= root (access-windows x k t)) (= s (split x)) (= d (dims root)) (axis-number e) (< e (vec-length k))"
            " (= i (+ s e)) (> (vec-get d i) 1)",
            "(slides root i (+ i (vec-length k)) (vec-get t e) 1 1)",
        ),
        Clause(
            "(slides a i j t 1 1) (= root (access-windows a k u)) (= s (split a)) (>= j s) (= e (- j s))"
            " (= 1 (vec-get k e)) (= d (vec-get u e)) (= da (dims a)) (= dr (dims root))"
            " (= (vec-get da j) (+ 1 (* d (- (vec-get dr j) 1)))) (= c (gcd t d))",
            "(slides root i j t d c) (picks root a i j c)",
        ),
        Clause("(= root (access-reshape a s i))", "(view root a)"),
        Clause("(= root (access-squeeze a x))", "(view root a)"),
        Clause("(= root (access-insert-axis a x))", "(view root a)"),
        Clause("(= root (access-flatten a))", "(view root a)"),
        *_LYING,
        Clause(
            f"{slides} (same-axis root a i i2) (same-axis root a j j2) (< i2 j2)",
            moved,
        ),
        Clause(f"{slides} (= root (access a s))", same),
        Clause(
            f"{slides} (= root (access-transpose a p)) (axis-number i2) (axis-number j2) (= i (vec-get p i2))"
            " (= j (vec-get p j2))",
            moved,
        ),
        Clause(f"{slides} (= root (access-pad a kind x before after)) (!= x i) (!= x j)", same),
        Clause(f"{slides} (= root (access-slice a x lo hi)) (!= x i) (!= x j)", same),
        Clause(f"{slides} (= root (linear-map a x rows m)) (!= x i) (!= x j)", same),
    )


INSIDE = "(slides a i j t d c) (>= i n) (= sa (split a)) (< i sa) (>= j sa)"
PICKED = ("(picks root a i j c)", "(= root (access-windows a k u)) (= s (split a))")
KEPT = "(kept-axes root a i j i2 j2)"
_VIEWED = "(same-axis root a i i2) (same-axis root a j j2) (= dr (dims root)) (= s2 (split root)) (= sa (split a))"
_KEPT_DIMS = "(vec-set (vec-set dr i2 (vec-get dw i)) j2 (vec-get dw j))"
# Each form that keeps both axes: how it stands over a, and what it is over w, which is a with other windows.
FORMS = (
    (f"{_VIEWED} (!= 0 (+ sa s2))", reshaped("w", _KEPT_DIMS, "s2")),
    (f"{_VIEWED} (= 0 (+ sa s2))", f"(access-reshape w (vec-empty) {_KEPT_DIMS})"),
    ("(= root (access a s))", "(access w s)"),
    ("(= root (access-transpose a p)) (= i (vec-get p i2)) (= j (vec-get p j2))", "(access-transpose w p)"),
    ("(= root (access-pad a kind x before after)) (!= x i) (!= x j)", "(access-pad w kind x before after)"),
    ("(= root (access-slice a x lo hi)) (!= x i) (!= x j)", "(access-slice w x lo hi)"),
    ("(= root (linear-map a x rows m)) (!= x i) (!= x j)", "(linear-map w x rows m)"),
)


@rule("analyses", *(e for e in WIDENING if "reshape" in e.text or "linear-map" in e.text), relations=RELATIONS)
def wider_windows_are_demanded() -> tuple[Clause, ...]:
    """Wider windows of a form that keeps both axes need wider windows of what is under it.

    An analysis: it adds no e-node. Sound because a demand only says where a rule applies.
    """
    return (
        Clause(f"(want-regroup root i j q) {DOT} {INSIDE}", "(want-wider a i j q)"),
        Clause(f"(want-wider root i2 j2 q) {KEPT}", "(want-wider a i j q)"),
        Clause(f"(want-wider root i j q) {PICKED[0]}", "(want-wider a i j q)"),
    )


def _widened() -> tuple[Clause, ...]:
    """What both rules do that need wider windows."""
    need = "(+ (* (- windows-left 1) (* q t)) span)"
    return (
        Clause(
            "(want-wider root i j q) (= root (access-windows x k u)) (slides root i j t 1 1) (= j (+ i (vec-length k)))"
            f" (= s (split x)) (= e (- i s)) (= da (dims root)) (= windows-left {ceil_div('(vec-get da i)', 'q')})"
            " (= dx (dims x)) (= size (vec-get dx i)) (= span (+ (vec-get k e) (* (- q 1) t)))"
            f" (= more (max 0 (- {need} size)))",
            f"(set (wider root i j q) (access-windows {padded('x', 'i', 'more')}"
            " (vec-set k e span) (vec-set u e (* q t))))",
        ),
        Clause(
            f"(want-wider root i j q) {' '.join(PICKED)} (= w (wider a i j q))",
            "(set (wider root i j q) (access-windows w k (vec-set u (- j s) c)))",
        ),
        *(
            Clause(
                f"(want-wider root i2 j2 q) {KEPT} (= w (wider a i j q)) {where}"
                + (" (= dw (dims w))" if "dw" in made else ""),
                f"(set (wider root i2 j2 q) {made})",
            )
            for where, made in FORMS
        ),
    )


@rule("form-analyses", *WIDENING, relations=RELATIONS)
def windows_are_widened() -> tuple[Clause, ...]:
    """wider(windows(z, k, t), q) = windows(pad(z), k + (q - 1) t, q t), and so on under forms that keep both axes.

    It makes e-nodes for demands alone, and they equal nothing that was there: a rule puts them in place of the windows.
    Sound because a window that begins with that of output y holds those of y, y + 1, .. y + q - 1, each t further on;
    windows beyond the end see zeros.
    """
    return _widened()


_CONV = f"(compute dot-product (access-cartesian-product {_WINDOWS} (access (access-tensor w) 1)))"
_DILATED_CONV = f"(compute dot-product (access-cartesian-product {_DILATED} (access (access-tensor w) 1)))"
_DEPTHWISE = (
    "(compute dot-product (access-product (access-windows (access (access-tensor x) 1) (shape 2 3) (shape 1 2))"
    " (access (access-tensor w) 1) 1))"
)


WEIGHTS_FIRST = (
    Example(
        f"(compute dot-product (access-product (access (access-tensor w) 1) {_WINDOWS} 0))", {**_IMAGE, "w": "o 2 3"}
    ),
    Example(
        f"(compute dot-product (access-product (access (access-tensor w) 2) {_WINDOWS} 1))", {**_IMAGE, "w": "n o 2 3"}
    ),
)


def turned(which: str, said: str) -> Clause:
    """dot(a x b) = transpose(dot(b x a)), where b is windows: of `which` products, and what is said of `turned`."""
    return Clause(
        f"{which} {DOT} (slides b i j t d c) (= sb (split b)) (>= i n) (< i sb) (>= j sb) (= sa (split a))"
        " (= r (vec-range (- (+ sa sb) n))) (= shared (take r n)) (= rest (drop r n))"
        " (= own-b (take rest (- sb n))) (= own-a (drop rest (- sb n))) (= back (vec-append shared own-a own-b))",
        f"(let turned {dot('b', 'a', 'n')}) (union root (access-transpose turned back)) {said}",
    )


@rule(FAMILY, *WEIGHTS_FIRST, relations=RELATIONS)
def windows_come_first() -> tuple[Clause, ...]:
    """dot(a x b) = transpose(dot(b x a)), where b is windows and a is none.

    What follows looks for windows on the left. Sound because multiplication of numbers is commutative and the transpose
    puts the axes back in order.
    """
    return (turned("(source root)", "(searched turned)"),)


def _regroup(i: int, j: int, q: int) -> str:
    return f"(want-regroup $root {i} {j} {q})"


@rule(
    FAMILY,
    *WIDENING,
    Example(_CONV, {**_IMAGE, "w": "o 2 3"}, wants=_regroup(2, 4, 3)),
    Example(_CONV, {**_IMAGE, "w": "o 2 3"}, wants=_regroup(1, 3, 4)),
    Example(_DILATED_CONV, {**_IMAGE, "w": "o 2 3"}, wants=_regroup(2, 4, 3)),
    Example(_DEPTHWISE, {"x": "n 5 9", "w": "n 2 3"}, wants=_regroup(1, 3, 2)),
    relations=RELATIONS,
)
def windows_are_regrouped() -> tuple[Clause, ...]:
    """dot(a x b) = interleave(dot(wider(a, q) x toeplitz(b, q))).

    One larger window serves q outputs at once: fewer rows stream, through more of the array. toeplitz puts q copies of
    the weights into a window of that size, copy r at offset r t, zeros elsewhere: windows over padded weights, the last
    copy first, hence the flip. Sound because copy r meets the elements of the window of output y + r, and zeros
    elsewhere, and because the outputs of windows beyond the end are cut off.
    """
    return (
        *_widened(),
        Clause(
            f"(want-regroup root i j q) {DOT} {INSIDE} (= w (wider a i j q))",
            "(regroup root b n i (- j sa) q (/ t c) (/ d c) w j)",
        ),
        Clause(
            "(regroup root b n i e q t d w j) (= dw (dims w)) (= db (dims b)) (= sb (split b)) (= dr (dims root))"
            " (= span (vec-get dw j)) (= place (+ sb e)) (= end (- (vec-length db) 1)) (= rank (vec-length dr))"
            " (= to-end (vec-push (vec-remove (vec-range (+ end 1)) place) place))"
            " (= with-copies (insert (vec-range end) end sb)) (= back (insert with-copies (+ end 1) (+ place 1)))"
            " (= merged (insert (vec-range rank) rank (+ i 1)))"
            " (= reach (+ 1 (* d (- (vec-get db place) 1)))) (= h (vec-get dr i)) (= served (* q (vec-get dw i)))",
            "(let spread (access-dilate (access (access-transpose b to-end) end) end (- d 1)))"
            ' (let copies (access-flip (access-windows (access-pad spread "zero-padding" end (* (- q 1) t)'
            " (- span reach)) (vec-of span) (vec-of t)) end))"
            " (let weights (access (access-transpose copies back) (+ sb 1)))"
            f" (let larger {dot('w', 'weights', 'n')})"
            f" (let whole {reshaped('(access-transpose larger merged)', '(vec-set dr i served)', 'rank')})"
            " (union root (access-slice whole i 0 h)) (regrouped root i j q larger)",
        ),
    )
