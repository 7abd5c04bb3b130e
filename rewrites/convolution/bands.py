"""Rows in bands: a product with windows in parts, one after the other, so that forms with large temporaries fit.

`band a i lo hi`: the elements from lo to hi - 1 of axis i of a, as slices of what its windows are windows of.
`in-bands c a b n i half size words`: the product c of a and b is to be computed in two parts, along axis i.
Two parts hold their results, and the whole beside them while they are joined: no less than twice the result.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.tables import table
from rewrites.convolution.forms import RELATIONS as FORMS
from rewrites.declare import rule
from rewrites.expressions import DOT, dot, reshaped
from rewrites.mapping.sliding_windows import INSIDE
from rewrites.mapping.sliding_windows import RELATIONS as WINDOWS

FAMILY, ANALYSES = "bands", "band-analyses"
_OUTER = "(function outer-axis (Access) i64 :merge (min old new))"
_WANT = "(relation want-band (Access i64 i64 i64))"
_BAND = "(function band (Access i64 i64 i64) Access :merge old)"  # one is enough: all of them are equal
_BANDS = "(relation in-bands (Access Access Access i64 i64 i64 i64 String))"
RELATIONS = "\n".join([FORMS, *WINDOWS.splitlines(), _OUTER, _WANT, _BAND, _BANDS])


@table(half=int, words=str)
def halved(words: str, size: int, most: int) -> tuple[int, str] | None:
    """How many rows the first of two parts has, and the words of both: "bands:2", "bands:4" .. up to `most`."""
    kind, _, count = words.partition(":")
    parts = 2 if not words else 2 * int(count) if kind == "bands" and count.isdecimal() else most + 1
    return ((size + 1) // 2, f"bands:{parts}") if parts <= most and size >= 2 else None


_W = "(access (access-tensor w) {0})"
_DOT = "(compute dot-product (access-product {0} {1} {2}))"
_WINDOWS = "(access-windows (access (access-tensor x) 1) (shape 2 3) (shape 1 2))"
_PLAIN = Example(_DOT.format(_WINDOWS, _W.format(1), 0), {"x": "n 5 9", "w": "o 2 3"}, parameters={"bands": 4})
_GROUPED = Example(_DOT.format(_WINDOWS, _W.format(1), 1), {"x": "n 5 9", "w": "n 2 3"}, parameters={"bands": 2})
_DILATED = Example(
    _DOT.format(
        "(access (access-reshape (access-windows (access-windows (access (access-tensor x) 1) (shape 2 5) (shape 1 1))"
        " (shape 1 1) (shape 1 2)) (access-shape (shape $n 4 5 2 3) (shape))) 3)",
        _W.format(1),
        0,
    ),
    {"x": "n 5 9", "w": "o 2 3"},
    parameters={"bands": 2},
)
_MOVED = Example(
    _DOT.format(
        f"(access-transpose (access-slice (access-pad {_WINDOWS} zero-padding 0 0 2) 0 1 3) (list 0 2 1 4 3))",
        _W.format(1),
        0,
    ),
    {"x": "n 5 9", "w": "o 3 2"},
    parameters={"bands": 2},
)


@rule(ANALYSES, _PLAIN, relations=RELATIONS)
def outermost_windows_are_known() -> tuple[Clause, ...]:
    """The first axis of the results of a product that steps over windows.

    An analysis: it adds no e-node. Sound because it only reads what is there.
    """
    return (Clause(f"(form root words) {DOT} {INSIDE}", "(set (outer-axis root) i)"),)


_SAME_AXIS = "(same-axis root a i i2) (= dr (dims root)) (> (vec-get dr i2) 1) (= s2 (split root))"
# Each form that keeps the axis: where it stands over a, and what it is over the band p of a.
_KEPT = (
    (_SAME_AXIS, reshaped("p", "(vec-set dr i2 (- hi lo))", "s2")),
    ("(= root (access a s)) (= i i2)", "(access p s)"),
    ("(= root (access-windows a k u)) (= i i2) (= sa (split a)) (< i sa)", "(access-windows p k u)"),
    ("(= root (access-transpose a order)) (= i (vec-get order i2))", "(access-transpose p order)"),
    (
        "(= root (access-pad a kind x before after)) (= i i2) (!= x i)",
        "(access-pad p kind x before after)",
    ),
    ("(= root (access-slice a x from to)) (= i i2) (!= x i)", "(access-slice p x from to)"),
)


@rule(FAMILY, _PLAIN, _GROUPED, _DILATED, _MOVED, relations=RELATIONS)
def rows_are_computed_in_bands() -> tuple[Clause, ...]:
    """dot(windows(x) x b) = concatenate(dot(windows(x[.. lower half ..]) x b), dot(windows(x[.. upper half ..]) x b)).

    Each part is a product of its own, and may have another form. Sound because a row of results needs no other row of
    windows, and the windows from lo to hi - 1 lie within the elements from lo t to (hi - 1) t + k - 1.
    """
    wanted = "(want-band root i2 lo hi)"
    return (
        Clause(
            f"(form root words) (= i (outer-axis root)) {DOT} (= size (vec-get (dims a) i))"
            " (= half (halved-half words size $bands)) (= more (halved-words words size $bands))",
            "(in-bands root a b n i half size more) (want-band a i 0 half) (want-band a i half size)",
        ),
        *(Clause(f"{wanted} {where}", "(want-band a i lo hi)") for where, _ in _KEPT),
        Clause(
            f"{wanted} (= root (access-windows x k u)) (= s (split x)) (>= i2 s) (= e (- i2 s)) (< e (vec-length k))"
            " (= t (vec-get u e)) (= from (* lo t)) (= to (+ (* (- hi 1) t) (vec-get k e)))",
            "(set (band root i2 lo hi) (access-windows (access-slice x i2 from to) k u))",
        ),
        *(
            Clause(f"{wanted} {where} (= p (band a i lo hi))", f"(set (band root i2 lo hi) {made})")
            for where, made in _KEPT
        ),
        Clause(
            "(in-bands root a b n i half size more) (= p (band a i 0 half)) (= q (band a i half size))",
            f"(let first {dot('p', 'b', 'n')}) (let second {dot('q', 'b', 'n')})"
            " (union root (access-concatenate first second i)) (form first more) (form second more)",
        ),
    )
