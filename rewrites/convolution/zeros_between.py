"""Zeros between elements: tensors that were spread along an axis, and windows of what they were before.

`gaps z axis gap begin n`: along the axis, z has n elements of a smaller tensor, the first at `begin`, which is below 0
where it was cut off, and `gap` from one to the next; all else is zero. `bare` is that smaller tensor, with all that was
done to the other axes of z.
`gapped a i j gap begin n`: axis i of a steps by 1 over windows along axis j (`slides`) of such a tensor.
`over a i j gap begin n first count taps apart`: as a, but over the bare tensor: `count` windows, the first at `first`,
each of `taps` elements that are `apart`: [.. y .., .. u ..] = bare[.., first + y + u apart, ..], zero outside of it.
`section x axis first size`: elements first, first + 1, .. of x, zero outside of it.

`bare`, `over` and `section` are made where they are demanded; nothing in the program is equal to them.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from rewrites.declare import rule
from rewrites.expressions import reshaped
from rewrites.mapping.sliding_windows import FORMS, KEPT, PICKED
from rewrites.mapping.sliding_windows import RELATIONS as WINDOWS

FAMILY = "transposed-analyses"
_OWN = """
(relation gaps (Access i64 i64 i64 i64))
(relation gapped (Access i64 i64 i64 i64 i64))
(relation want-bare (Access i64 i64 i64 i64))
(function bare (Access i64 i64 i64 i64) Access :merge old)
(relation want-over (Access i64 i64 i64 i64 i64 i64 i64 i64 i64))
(function over (Access i64 i64 i64 i64 i64 i64 i64 i64 i64) Access :merge old)
(relation windows-over (Access i64 i64 i64 i64 i64 i64 i64 i64 Access i64))
(relation apart-in (Access Access i64 i64 i64 i64 i64 i64 i64 i64 i64 i64))
(relation want-section (Access i64 i64 i64))
(relation sectioned (Access i64 i64 i64 i64 i64 i64 i64))
(function section (Access i64 i64 i64) Access :merge old)
"""
RELATIONS = WINDOWS + _OWN

_LINE = "(access-slice (access-pad (access-dilate (access-tensor x) 1 2) zero-padding 1 2 1) 1 1 12)"
_PLANE = (
    "(access-pad (access-slice (access-pad (access-dilate (access-dilate (access-tensor x) 1 1) 2 2)"
    " zero-padding 1 1 0) 2 1 10) zero-padding 2 0 2)"
)  # (n 8 11)
_TURNED = (
    f"(access-reshape (access (access-transpose {_PLANE} (list 1 0 2)) 3) (access-shape (shape 8 1 $n 11) (shape)))"
)
_WINDOWS = "(access-windows (access {0} 1) (shape 2 5) (shape 1 1))"
_DILATED = (
    "(access (access-reshape (access-windows {0} (shape 1 1) (shape 1 2)) (access-shape (shape $n 7 7 2 3) (shape))) 3)"
)
_OVER_PLANE = _WINDOWS.format(_PLANE)  # (n 7 7)(2 5)
_OVER_DILATED = _DILATED.format(_OVER_PLANE)  # (n 7 7)(2 3)
_MOVED = (
    "(access-transpose (access-slice (access-pad (access (access-reshape"
    f" (access {_OVER_PLANE} 0) (access-shape (shape) (shape $n 1 7 7 2 5))) 4) zero-padding 4 0 1) 4 0 2)"
    " (list 0 1 3 2 5 4))"
)  # (n 1 7 7)(5 2)
IMAGE = {"x": "n 4 4"}


def _wants(*demands: str) -> str:
    return " ".join(f"({demand})" for demand in demands)


_EXAMPLES = (
    Example(
        "(access-pad (access (access-tensor x) 1) zero-padding 1 2 1)",
        {"x": "m 5"},
        _wants("want-bare $root 1 1 2 5"),
        {"scatter": 1},
    ),
    Example(_LINE, {"x": "m 5"}, _wants("want-bare $root 1 3 1 5")),
    Example(_PLANE, IMAGE, _wants("want-bare $root 1 2 1 4", "want-bare $root 2 3 -1 4")),
    Example(_TURNED, IMAGE, _wants("want-bare $root 0 2 1 4", "want-bare $root 3 3 -1 4")),
)
_OVERS = (
    Example(
        _OVER_PLANE,
        IMAGE,
        _wants("want-over $root 1 3 2 1 4 -1 6 1 1", "want-over $root 2 4 3 -1 4 1 2 3 1"),
    ),
    Example(_OVER_DILATED, IMAGE, _wants("want-over $root 2 4 3 -1 4 0 2 2 2", "want-over $root 1 3 2 1 4 5 2 1 1")),
    Example(_MOVED, IMAGE, _wants("want-over $root 2 4 3 -1 4 0 3 2 1", "want-over $root 2 4 3 -1 4 -6 3 3 1")),
)

# Each form that keeps the gaps of an axis: where it stands over a, whose axis is x, how far it moves them, and what it
# is over b, which is a without them.
_MOVES = (
    (
        '(= root (access-pad a "zero-padding" x before after)) (= y x) (= sizes (dims a))'
        " (= 0 (* before (min begin 0))) (= 0 (* after (min 0 (- (vec-get sizes x) (+ begin (+ 1 (* gap (- n 1))))))))",
        "before",
        "b",
    ),
    ("(= root (access-slice a x lo hi)) (= y x)", "(- 0 lo)", "b"),
    (
        '(= root (access-pad a "zero-padding" z before after)) (!= z x) (= y x)',
        "0",
        '(access-pad b "zero-padding" z before after)',
    ),
    ("(= root (access-slice a z lo hi)) (!= z x) (= y x)", "0", "(access-slice b z lo hi)"),
    ("(= root (access-dilate a z more)) (!= z x) (= y x)", "0", "(access-dilate b z more)"),
    (
        "(= root (access-transpose a p)) (axis-number y) (< y (vec-length p)) (= x (vec-get p y))",
        "0",
        "(access-transpose b p)",
    ),
    (
        "(same-axis root a x y) (= dr (dims root)) (= s (split root))",
        "0",
        reshaped("b", "(vec-set dr y n)", "s"),
    ),
    ("(= root (access a s)) (= y x)", "0", "(access b s)"),
)
_SPREAD = "(= root (access-dilate a x more)) (= da (dims a)) (= n (vec-get da x)) (> n 1) (> more 0)"

_GIVEN = (
    "(= root (access-tensor name)) (< 0 $scatter) (= d (dims root)) (axis-number x) (< x (vec-length d))"
    " (= n (vec-get d x)) (> n 0)"
)


@rule(FAMILY, *_EXAMPLES, relations=RELATIONS)
def gaps_are_known() -> tuple[Clause, ...]:
    """Along which axes a tensor was spread, how far, and where its first element is now.

    Where the target asks for it ($scatter), what is given has gaps of 1, which are none: sums of windows are a form of
    ordinary convolutions too.

    An analysis: it adds no e-node. Sound because it only reads what is there. What was cut off does not come back:
    zeros put where elements were are no gaps, and such a pad has no fact.
    """
    return (
        Clause(_SPREAD, "(gaps root x (+ more 1) 0 n)"),
        Clause(_GIVEN, "(gaps root x 1 0 n)"),
        *(
            Clause(f"(gaps a x gap begin n) {where}", f"(gaps root y gap (+ begin {shift}) n)")
            for where, shift, _ in _MOVES
        ),
    )


@rule(FAMILY, *_EXAMPLES, relations=RELATIONS)
def gaps_are_taken_out() -> tuple[Clause, ...]:
    """bare(dilate(a, x)) = a, and bare(form(z)) = form(bare(z)) for what is done to the other axes.

    It makes e-nodes for demands alone, and they equal nothing that was there. Sound because what moves, cuts or pads
    the other axes does so alike for every element of this one.
    """
    return (
        Clause(
            f"(want-bare root x gap 0 n) {_SPREAD} (= gap (+ more 1))",
            "(set (bare root x gap 0 n) a)",
        ),
        Clause(f"(want-bare root x 1 0 n) {_GIVEN}", "(set (bare root x 1 0 n) root)"),
        *(
            Clause(
                f"(want-bare root y gap end n) (gaps a x gap begin n) {where} (= end (+ begin {shift}))",
                "(want-bare a x gap begin n)",
            )
            for where, shift, _ in _MOVES
        ),
        *(
            Clause(
                f"(want-bare root y gap end n) (gaps a x gap begin n) {where} (= end (+ begin {shift}))"
                " (= b (bare a x gap begin n))",
                f"(set (bare root y gap end n) {made})",
            )
            for where, shift, made in _MOVES
        ),
    )


@rule(FAMILY, *_OVERS, relations=RELATIONS)
def windows_over_gaps_are_known() -> tuple[Clause, ...]:
    """Which axes step over windows of a tensor with gaps, through every form that keeps both axes.

    An analysis: it adds no e-node. Sound because it only reads what is there.
    """
    return (
        Clause(
            "(= root (access-windows x k u)) (gaps x i gap begin n) (slides root i j 1 1 1) (= j (+ i (vec-length k)))",
            "(gapped root i j gap begin n)",
        ),
        Clause(f"(gapped a i j gap begin n) {KEPT}", "(gapped root i2 j2 gap begin n)"),
        Clause(f"(gapped a i j gap begin n) {PICKED[0]}", "(gapped root i j gap begin n)"),
    )


_KEY = "gap begin n first count"
_WANTED = f"(want-over root i2 j2 {_KEY} taps apart)"
_OVER = f"(windows-over root i j {_KEY} taps x size)"


@rule(FAMILY, *_OVERS, relations=RELATIONS)
def windows_leave_gaps_out() -> tuple[Clause, ...]:
    """over(windows(z)) = windows(section(bare z)), and so on under the forms that keep both axes.

    It makes e-nodes for demands alone, and they equal nothing that was there. Sound because windows along one axis and
    what is done to the others do not meet; elements that are apart are picked from windows that hold all between.
    """
    return (
        Clause(
            f"(want-over root i j {_KEY} taps 1) (= root (access-windows x k u)) (gaps x i gap begin n)"
            " (slides root i j 1 1 1) (= j (+ i (vec-length k))) (= size (+ (- count 1) taps))",
            f"(want-bare x i gap begin n) (windows-over root i j {_KEY} taps x size)",
        ),
        Clause(f"{_OVER} (= z (bare x i gap begin n))", "(want-section z i first size)"),
        Clause(
            f"{_OVER} (= z (bare x i gap begin n)) (= part (section z i first size)) (= root (access-windows x k u))"
            " (= s (split x))",
            f"(set (over root i j {_KEY} taps 1) (access-windows part (vec-set k (- i s) taps) u))",
        ),
        Clause(
            f"(want-over root i j {_KEY} taps apart) {PICKED[0]} (= span (+ 1 (* (- taps 1) apart)))",
            f"(want-over a i j {_KEY} span 1) (apart-in root a i j {_KEY} taps apart span)",
        ),
        Clause(
            f"(apart-in root a i j {_KEY} taps apart span) (= w (over a i j {_KEY} span 1)) {PICKED[1]}",
            f"(set (over root i j {_KEY} taps apart) (access-windows w k (vec-set u (- j s) apart)))",
        ),
        Clause(f"{_WANTED} {KEPT}", f"(want-over a i j {_KEY} taps apart)"),
        *(
            Clause(
                f"{_WANTED} {KEPT} (= w (over a i j {_KEY} taps apart)) {where}"
                + (" (= dw (dims w))" if "dw" in made else ""),
                f"(set (over root i2 j2 {_KEY} taps apart) {made})",
            )
            for where, made in FORMS
        ),
    )


def _sections() -> tuple[Example, ...]:
    cases = ((0, 5), (1, 3), (-2, 9), (-1, 3), (3, 4), (7, 2), (-4, 3))
    text = "(access (access-tensor x) 1)"
    return tuple(Example(text, {"x": "m 5"}, f"(want-section $root 1 {lo} {size})") for lo, size in cases)


@rule(FAMILY, *_sections(), relations=RELATIONS)
def sections_are_made() -> tuple[Clause, ...]:
    """section(x, first, size) = pad(slice(x)), of which it has only what it needs.

    It makes e-nodes for demands alone. Sound because what is outside of x is zero by definition.
    """
    facts = "(sectioned x axis first size lo hi before after) (= d (dims x)) (= n (vec-get d axis))"
    part = "(access-slice x axis lo hi)"

    def grown(what: str) -> str:
        return f'(access-pad {what} "zero-padding" axis before after)'

    cases = (("0", "0", "x"), (">", "0", part), ("0", ">", grown("x")), (">", ">", grown(part)))

    def guard(sign: str, amount: str) -> str:
        return f"(> {amount} 0)" if sign == ">" else f"(= 0 {amount})"

    return (
        Clause(
            "(want-section x axis first size) (= d (dims x)) (= n (vec-get d axis)) (= lo (min n (max 0 first)))"
            " (= hi (min n (max 0 (+ first size)))) (= before (min size (max 0 (- 0 first))))"
            " (= after (- size (+ before (- hi lo))))",
            "(sectioned x axis first size lo hi before after)",
        ),
        *(
            Clause(
                f"{facts} {guard(cut, '(- n (- hi lo))')} {guard(more, '(+ before after)')}",
                f"(set (section x axis first size) {made})",
            )
            for cut, more, made in cases
        ),
    )
