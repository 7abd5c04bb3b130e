"""Gives pairs of a step of an integer program and a wrong one, which differs where integers wrap, are cut off, or are
extreme: one pair for each kind of fault.
"""

from __future__ import annotations

from stepped_programs import Pair, Place, Step, by, full, plus, real, times
from wrong_steps import MOVED, THRESHOLDS, holds, larger, mirrored, place

from glenside.builder.indexing import gather_elements, scatter_elements
from glenside.builder.layout import flip
from glenside.builder.pointwise import cast, combine, compare, compute, relu, select
from glenside.builder.reductions import reduce_axes
from glenside.ir.dtypes import limits
from glenside.ir.term import Term


def ends(p: Place) -> tuple[int, int]:
    return limits(p.x.access.dtype)


def cut(x: Term, low: int, high: int) -> Term:
    return compute(f"(clip {low} {high})", x)


def divided(x: Term, number: int) -> Term:
    return by("elementwise-div", x, number)


def summed(a: Term, b: Term) -> Term:
    return combine("elementwise-add", a, b)


def narrowed(dtype: str) -> Step:
    """Wraps, or saturates."""

    def step(p: Place) -> Pair:
        (low, high), (least, most) = ends(p), limits(dtype)
        saturated = cut(p.x, max(low, least), min(high, most))
        return cast(cast(p.x, dtype), "int32"), cast(cast(saturated, dtype), "int32")

    return step


def requantized(x: Term, half: int = 32) -> Term:
    """Requantizes sums to 8 bits: divides by 64, rounds, saturates."""
    return cast(cut(divided(plus(x, half), 64), -128, 127), "int8")


INTEGERS: dict[str, Step] = {
    "cut or down": lambda p: (divided(p.x, 3), divided(by("subtract", p.x, 1), 3)),
    "half or up": lambda p: (divided(p.x, 2), divided(plus(p.x, 1), 2)),
    "sign of a rest": lambda p: (by("(mod floor)", p.x, 5), by("(mod truncate)", p.x, 5)),
    "doubled and back": lambda p: (divided(times(p.x, 2), 2), p.x),
    "one more is larger": lambda p: (larger(plus(p.x, 1), p.x), plus(p.x, 1)),
    "the most": lambda p: (cut(p.x, ends(p)[0], ends(p)[1] - 1), p.x),
    "the least": lambda p: (cut(p.x, ends(p)[0] + 1, ends(p)[1]), p.x),
    "abs of the least": lambda p: (relu(compute("abs", p.x)), compute("abs", p.x)),
    "opposite of the least": lambda p: (
        compute("negative", combine("minimum", compute("negative", p.x), compute("negative", p.y))),
        larger(p.x, p.y),
    ),
    "halves of a mean": lambda p: (divided(summed(p.x, p.y), 2), summed(divided(p.x, 2), divided(p.y, 2))),
    "widened late": lambda p: (
        cast(summed(p.x, p.y), "int64"),
        summed(cast(p.x, "int64"), cast(p.y, "int64")),
    ),
    "less by a difference": lambda p: (
        compare("lt", p.x, p.y),
        compare("lt", combine("subtract", p.x, p.y), full(p.x, 0)),
    ),
    "lt or le": lambda p: (compare("lt", p.x, p.y), compare("le", p.x, p.y)),
    "gt or ge near the most": lambda p: (holds("gt", p.x, ends(p)[1] - 3), holds("ge", p.x, ends(p)[1] - 3)),
    "the most alone": lambda p: (select(holds("eq", p.x, ends(p)[1]), full(p.x, 0), p.x), p.x),
    "one number": lambda p: (select(holds("eq", p.x, 77), full(p.x, 0), p.x), p.x),
    "or for xor": lambda p: (combine("bitwise-or", p.x, p.y), combine("bitwise-xor", p.x, p.y)),
    "or for a sum": lambda p: (combine("bitwise-or", p.x, p.y), summed(p.x, p.y)),
    "last bits": lambda p: (by("bitwise-and", p.x, 7), by("(mod truncate)", p.x, 8)),
    "a bit more": lambda p: (by("bitwise-and", p.x, 7), by("bitwise-and", p.x, 15)),
    "half of a shift": lambda p: (divided(plus(p.x, 4), 8), divided(p.x, 8)),
    "saturated 8 bits": narrowed("int8"),
    "saturated unsigned": narrowed("uint8"),
    "saturated 16 bits": narrowed("int16"),
    "wrapped before floats": lambda p: (real(times(p.x, 3)), times(real(p.x), 3)),
    "sign": lambda p: (compute("sign", p.x), cast(holds("gt", p.x, 0), p.x.access.dtype)),
    "last of equals": lambda p: (place(p), place(p, last=True)),
    "turned position": lambda p: (place(p, "argmin", compute("negative", p.x)), place(p)),
    "sum for maximum": lambda p: (
        reduce_axes("reduce-max", p.x, [p.axis]),
        reduce_axes("reduce-sum", p.x, [p.axis]),
    ),
    "maximum but for the last": THRESHOLDS["maximum but for the last"],
    "slice off by one": MOVED["slice off by one"],
    "product of magnitudes": lambda p: (
        reduce_axes("reduce-prod", p.x, [p.axis]),
        reduce_axes("reduce-prod", compute("abs", p.x), [p.axis]),
    ),
    "pool of 0": THRESHOLDS["pool of 0"],
    "cut before a sum": lambda p: (cut(plus(p.x, 7), 0, 100), plus(cut(p.x, 0, 100), 7)),
    "half of a requantization": lambda p: (requantized(p.convolved()), requantized(p.convolved(), 0)),
    "wrapped requantization": lambda p: (
        requantized(p.convolved()),
        cast(divided(plus(p.convolved(), 32), 64), "int8"),
    ),
    "bias after saturation": lambda p: (
        requantized(plus(p.convolved(), 64)),
        plus(requantized(p.convolved()), 1),
    ),
    "mirrored weights": lambda p: (
        requantized(p.convolved()),
        requantized(p.convolved(mirrored(p.weights, 2))),
    ),
    "sums of 16 bits": lambda p: (
        p.convolved(),
        cast(cast(p.convolved(), "int16"), p.convolved().access.dtype),
    ),
    "elements from the end": lambda p: (
        gather_elements(p.x, p.elements, p.axis),
        gather_elements(flip(p.x, p.axis), p.elements, p.axis),
    ),
    "largest for last": lambda p: (
        scatter_elements(p.x, p.elements, p.y, p.axis),
        scatter_elements(p.x, p.elements, p.y, p.axis, "max"),
    ),
}
