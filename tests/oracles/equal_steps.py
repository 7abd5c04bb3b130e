"""Gives two ways to write one step of a program: equal for all reals, or for all wrapping integers of a dtype."""

from __future__ import annotations

from stepped_programs import Place, Step, by, full, levels, plus, times

from glenside.builder.indexing import top
from glenside.builder.layout import flip, pad, slice_axis
from glenside.builder.pointwise import add, cast, combine, compare, compute, multiply, relu, select, subtract
from glenside.builder.products import convolution
from glenside.builder.reductions import position, reduce_axes
from glenside.builder.windows import max_pool
from glenside.ir.term import Term


def negative(x: Term) -> Term:
    return compute("negative", x)


def by_channels(p: Place) -> Term:
    """Splits a convolution into the first channel and the others."""

    def part(low: int, high: int) -> Term:
        return convolution(slice_axis(p.x, 1, low, high), slice_axis(p.weights, 1, low, high), 1, 1, 1, 1).result

    return add(part(0, 1), part(1, p.dims[1]))


def padded(x: Term) -> Term:
    return pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])


MOVED: dict[str, Step] = {
    "mean": lambda p: (
        reduce_axes("reduce-mean", p.x, [p.axis]),
        times(reduce_axes("reduce-sum", p.x, [p.axis]), f"1/{p.size}"),
    ),
    "sum of sums": lambda p: (
        reduce_axes("reduce-sum", p.x, [2, 3]),
        reduce_axes("reduce-sum", reduce_axes("reduce-sum", p.x, [3]), [2]),
    ),
    "mirrored convolution": lambda p: (
        flip(p.convolved(), 3),
        convolution(flip(p.x, 3), flip(p.weights, 3), 1, 1, 1, 1).result,
    ),
    "channels apart": lambda p: (p.convolved(), by_channels(p)),
    "scaled weights": lambda p: (p.convolved(times(p.weights, "1/3")), times(p.convolved(), "1/3")),
}
"""Pairs without operations that depend on order."""
DECIDED: dict[str, Step] = {
    "relu of abs": lambda p: (relu(p.x), times(add(p.x, compute("abs", p.x)), "1/2")),
    "abs of relus": lambda p: (compute("abs", p.x), add(relu(p.x), relu(negative(p.x)))),
    "maximum": lambda p: (combine("maximum", p.x, p.y), add(p.y, relu(subtract(p.x, p.y)))),
    "minimum": lambda p: (combine("minimum", p.x, p.y), subtract(add(p.x, p.y), combine("maximum", p.x, p.y))),
    "clip of relus": lambda p: (compute("(clip 0 6)", p.x), subtract(relu(p.x), relu(plus(p.x, -6)))),
    "shifted clip": lambda p: (plus(compute("(clip -1 1)", p.x), 3), compute("(clip 2 4)", plus(p.x, 3))),
    "scaled clip": lambda p: (times(compute("(clip 0 6)", p.x), "1/3"), compute("(clip 0 2)", times(p.x, "1/3"))),
    "leaky": lambda p: (compute("(leaky-relu 1/8)", p.x), combine("maximum", p.x, times(p.x, "1/8"))),
    "scaled sign": lambda p: (compute("sign", p.x), compute("sign", times(p.x, "1/3"))),
    "selected": lambda p: (select(compare("lt", p.x, p.y), p.x, p.y), combine("minimum", p.x, p.y)),
    "not less": lambda p: (compare("ge", p.x, p.y), compute("logical-not", compare("lt", p.x, p.y))),
    "less by a difference": lambda p: (
        compare("lt", p.x, p.y),
        compare("lt", subtract(p.x, p.y), full(p.x, 0)),
    ),
    "scaled order": lambda p: (compare("lt", p.x, p.y), compare("lt", times(p.x, "1/7"), times(p.y, "1/7"))),
    "scaled equality": lambda p: (compare("eq", times(p.x, "1/3"), times(p.y, "1/3")), compare("eq", p.x, p.y)),
    "scaled position": lambda p: (position("argmax", p.x, p.axis), position("argmax", times(p.x, "2/7"), p.axis)),
    "turned position": lambda p: (position("argmax", p.x, p.axis), position("argmin", negative(p.x), p.axis)),
    "shifted position": lambda p: (position("argmax", p.x, p.axis), position("argmax", plus(p.x, "1/3"), p.axis)),
    "turned floor": lambda p: (compute("floor", p.x), negative(compute("ceil", negative(p.x)))),
    "turned round": lambda p: (compute("round", p.x), negative(compute("round", negative(p.x)))),
    "shifted floor": lambda p: (compute("floor", plus(p.x, 3)), plus(compute("floor", p.x), 3)),
    "shifted round": lambda p: (compute("round", plus(p.x, 2)), plus(compute("round", p.x), 2)),
    "thirds rounded": lambda p: (compute("round", p.x), compute("round", times(times(p.x, "1/3"), 3))),
    "sevenths floored": lambda p: (compute("floor", p.x), compute("floor", times(times(p.x, "1/7"), 7))),
    "thirds cut": lambda p: (cast(p.x, "int32"), cast(times(times(p.x, "1/3"), 3), "int32")),
    "thirds wrapped": lambda p: (cast(p.x, "int8"), cast(times(times(p.x, "1/3"), 3), "int8")),
    "levels of thirds": lambda p: (
        levels(p.x, "int8", "1/3", 0),
        times(compute("(clip -128 127)", compute("round", times(p.x, 3))), "1/3"),
    ),
    "zero point": lambda p: (levels(p.x, "int8", "1/4", 0), levels(p.x, "uint8", "1/4", 128)),
    "mirrored maximum": lambda p: (
        reduce_axes("reduce-max", p.x, [p.axis]),
        reduce_axes("reduce-max", flip(p.x, p.axis), [p.axis]),
    ),
    "maximum of maxima": lambda p: (
        reduce_axes("reduce-max", p.x, [2, 3]),
        reduce_axes("reduce-max", reduce_axes("reduce-max", p.x, [2]), [2]),
    ),
    "pool of pools": lambda p: (
        max_pool(max_pool(p.x, 2, strides=1), 2, strides=1),
        max_pool(p.x, 3, strides=1),
    ),
    "relu of channels apart": lambda p: (relu(p.convolved()), relu(by_channels(p))),
    "relu of scaled weights": lambda p: (
        relu(p.convolved(times(p.weights, "1/3"))),
        times(relu(p.convolved()), "1/3"),
    ),
    "relu and pool": lambda p: (
        relu(max_pool(p.x, 3, strides=1, padding=1)),
        max_pool(padded(relu(p.x)), 3, strides=1),
    ),
    "rounded convolution": lambda p: (
        compute("round", p.convolved()),
        compute("round", times(convolution(times(p.x, "1/7"), times(p.weights, "7/3"), 1, 1, 1, 1).result, 3)),
    ),
    "rest": lambda p: (
        by("(mod floor)", p.x, 3),
        subtract(p.x, times(compute("floor", by("elementwise-div", p.x, 3)), 3)),
    ),
    "first of the top": lambda p: (top(p.x, 1, p.axis)[0], reduce_axes("reduce-max", p.x, [p.axis], keep=True)),
    "root of a square": lambda p: (
        compute("sqrt", multiply(p.x, p.x)),
        compute("sqrt", multiply(compute("abs", p.x), compute("abs", p.x))),
    ),
}
"""Pairs with operations that depend on order."""
INTEGERS: dict[str, Step] = {
    "there and back": lambda p: (p.x, by("subtract", plus(p.x, 100), 100)),
    "three times": lambda p: (
        times(p.x, 3),
        combine("elementwise-add", p.x, combine("elementwise-add", p.x, p.x)),
    ),
    "xor twice": lambda p: (combine("bitwise-xor", combine("bitwise-xor", p.x, p.y), p.y), p.x),
    "sum by bits": lambda p: (
        combine("elementwise-add", combine("bitwise-or", p.x, p.y), combine("bitwise-and", p.x, p.y)),
        combine("elementwise-add", p.x, p.y),
    ),
    "selected": lambda p: (combine("maximum", p.x, p.y), select(compare("ge", p.x, p.y), p.x, p.y)),
    "last bits": lambda p: (by("bitwise-and", p.x, 7), by("(mod floor)", p.x, 8)),
    "mirrored sum": lambda p: (
        reduce_axes("reduce-sum", p.x, [2, 3]),
        reduce_axes("reduce-sum", flip(p.x, 2), [2, 3]),
    ),
    "wider and back": lambda p: (cast(cast(p.x, "int64"), p.x.access.dtype), p.x),
    "narrow product": lambda p: (cast(times(cast(p.x, "int32"), 3), "int8"), times(cast(p.x, "int8"), 3)),
    "divided twice": lambda p: (
        by("elementwise-div", by("elementwise-div", p.x, 2), 3),
        by("elementwise-div", p.x, 6),
    ),
}
