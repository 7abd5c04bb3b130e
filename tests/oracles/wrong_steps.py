"""Gives pairs of a step of a program and a plausibly wrong one, one pair for each kind of fault.

Where sizes or dtypes make the two alike, or one of them impossible, numpy or a type says so.
"""

from __future__ import annotations

from stepped_programs import Place, Step, by, full, levels, plus, real, tensor, times

from glenside.builder.indexing import top
from glenside.builder.layout import (
    broadcast,
    concatenate,
    flip,
    gather,
    pad,
    repeat,
    reshape,
    slice_axis,
    strided,
    tile,
    transpose,
)
from glenside.builder.pointwise import (
    add,
    cast,
    combine,
    compare,
    compute,
    hard_sigmoid,
    multiply,
    relu,
    select,
    softmax,
    standardized,
)
from glenside.builder.reductions import position, reduce_axes, running
from glenside.builder.windows import average_pool, max_pool
from glenside.ir.term import Term


def put(p: Place, *bounds: tuple[int, int], of: Term | None = None) -> Term:
    """Concatenates parts along an axis."""
    return concatenate([slice_axis(p.x if of is None else of, p.axis, *b) for b in bounds], p.axis)


def framed(x: Term) -> Term:
    """Pads with zeros."""
    return pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])


def holds(relation: str, x: Term, value: int | str) -> Term:
    return compare(relation, x, full(x, value))


def both(a: Term, b: Term) -> Term:
    return combine("logical-and", a, b)


def larger(a: Term, b: Term) -> Term:
    return combine("maximum", a, b)


def mirrored(w: Term, *axes: int) -> Term:
    return mirrored(flip(w, axes[0]), *axes[1:]) if axes else w


def along(p: Place, axis: int, turned: bool = False) -> Term:
    """Returns a number for each index of one axis; with `turned`, of the wrong axis."""
    numbers = tensor("s", tuple(size if i == axis else 1 for i, size in enumerate(p.dims)))
    return broadcast(transpose(numbers, (0, 1, 3, 2)) if turned else numbers, p.dims)


def shuffled(p: Place) -> Term:
    """Exchanges two groups of channels."""
    n, c, h, w = p.dims
    return reshape(transpose(reshape(p.x, (n, 2, c // 2, h, w)), (0, 2, 1, 3, 4)), p.dims)


MOVED: dict[str, Step] = {
    "slice off by one": lambda p: (put(p, (0, p.size - 1)), put(p, (1, p.size))),
    "order of parts": lambda p: (put(p, (1, p.size), (0, 1)), put(p, (p.size - 1, p.size), (0, p.size - 1))),
    "not rolled": lambda p: (put(p, (1, p.size), (0, 1)), p.x),
    "reversed but for the last": lambda p: (
        flip(p.x, p.axis),
        put(p, (0, p.size - 2), (0, 2), of=flip(p.x, p.axis)),
    ),
    "not reversed": lambda p: (flip(p.x, p.axis), p.x),
    "equal axes": lambda p: (transpose(p.x, (0, 1, 3, 2)), p.x),
    "channels for rows": lambda p: (transpose(p.x, (0, 2, 1, 3)), p.x),
    "reshaped for transposed": lambda p: (
        reshape(p.x, tuple(transpose(p.x, (0, 1, 3, 2)).access.dims)),
        transpose(p.x, (0, 1, 3, 2)),
    ),
    "phase of strides": lambda p: (
        strided(p.x, (1, 1, 2, 2)),
        strided(slice_axis(pad(p.x, [(0, 0)] * 2 + [(0, 1), (0, 0)]), 2, 1, p.dims[2] + 1), (1, 1, 2, 2)),
    ),
    "side of padding": lambda p: (
        p.convolved(stride=2, padding=[(0, 1)] * 2),
        p.convolved(stride=2, padding=[(1, 0)] * 2),
    ),
    "padding moved": lambda p: (p.convolved(), p.convolved(padding=[(1, 1), (2, 0)])),
    "dilation": lambda p: (p.convolved(padding=2, dilation=2), p.convolved()),
    "mirrored weights": lambda p: (p.convolved(), p.convolved(mirrored(p.weights, 3))),
    "turned weights": lambda p: (p.convolved(), p.convolved(transpose(p.weights, (0, 1, 3, 2)))),
    "convolution for correlation": lambda p: (p.convolved(), p.convolved(mirrored(p.weights, 2, 3))),
    "what an average counts": lambda p: (
        average_pool(p.x, 3, strides=1, padding=1),
        average_pool(p.x, 3, strides=1, padding=1, count_padding=False),
    ),
    "another edge": lambda p: (
        concatenate([slice_axis(p.x, 3, 0, 1), p.x], 3),
        concatenate([slice_axis(p.x, 3, 1, 2), p.x], 3),
    ),
    "edge for reflection": lambda p: (
        put(p, (1, 2), (0, p.size), (p.size - 2, p.size - 1)),
        put(p, (0, 1), (0, p.size), (p.size - 1, p.size)),
    ),
    "tiled for repeated": lambda p: (repeat(p.x, (1, 1, 2, 2)), tile(p.x, (1, 1, 2, 2))),
    "channels not shuffled": lambda p: (shuffled(p), p.x),
    "exclusive sum": lambda p: (running(add, p.x, p.axis, "0"), running(add, p.x, p.axis, "0", exclusive=True)),
    "sum from the end": lambda p: (
        running(add, p.x, p.axis, "0"),
        flip(running(add, flip(p.x, p.axis), p.axis, "0"), p.axis),
    ),
    "mean of one fewer": lambda p: (
        reduce_axes("reduce-mean", p.x, [p.axis]),
        times(reduce_axes("reduce-sum", p.x, [p.axis]), f"1/{p.size - 1}"),
    ),
    "axis of a softmax": lambda p: (softmax(p.x, p.axis), softmax(p.x, (p.axis + 1) % 4)),
    "epsilon": lambda p: (standardized(p.x, 3, "1/64")[0], standardized(p.x, 3, "1/32")[0]),
    "axis of a sum": lambda p: (add(p.x, along(p, 2)), add(p.x, along(p, 2, turned=True))),
    "axis of a scale": lambda p: (multiply(p.x, along(p, 3)), multiply(p.x, along(p, 3, turned=True))),
    "axis of indices": lambda p: (gather(p.x, p.indices, 2), gather(p.x, p.indices, 3)),
    "indices from the end": lambda p: (gather(p.x, p.indices, p.axis), gather(flip(p.x, p.axis), p.indices, p.axis)),
    "indices off by one": lambda p: (
        gather(p.x, p.indices, p.axis),
        gather(put(p, (1, p.size), (0, 1)), p.indices, p.axis),
    ),
    "scaled twice": lambda p: (times(p.x, "3/4"), times(times(p.x, "3/4"), "3/4")),
}
"""Pairs without operations that depend on order."""


def rounded(p: Place, how: str, *steps: str, by: str = "1/4") -> Term:
    """Rounds to levels of a scale, each step before it is multiplied again: clips, functions, dtypes."""
    x = times(p.x, {"1/4": 4, "1/64": 64}[by])
    for step in (how, *steps):
        x = cast(x, step) if step in ("int8", "int16") else compute(step, x)
    return times(real(x), by)


def to_levels(p: Place, zero: int = 0, dtype: str = "int8", scale: str = "1/4") -> Term:
    return levels(p.x, dtype, scale, zero)


_BYTE = "(clip -128 127)"
QUANTIZED: dict[str, Step] = {
    "zero point": lambda p: (to_levels(p, 3), to_levels(p, 2)),
    "not saturated": lambda p: (to_levels(p), rounded(p, "round")),
    "symmetric": lambda p: (to_levels(p), rounded(p, "round", "(clip -127 127)")),
    "a level too many": lambda p: (to_levels(p, 128, "uint8"), rounded(p, "round", "(clip -128 128)")),
    "halves up": lambda p: (to_levels(p), times(compute(_BYTE, compute("floor", plus(times(p.x, 4), "1/2"))), "1/4")),
    "cut for rounded": lambda p: (to_levels(p), rounded(p, _BYTE, "int8")),
    "wrapped": lambda p: (to_levels(p), rounded(p, "round", "int8")),
    "wrapped 16 bits": lambda p: (
        rounded(p, "round", "(clip -32768 32767)", by="1/64"),
        rounded(p, "round", "int16", by="1/64"),
    ),
    "scale": lambda p: (to_levels(p), to_levels(p, scale="1/8")),
    "rounded once": lambda p: (levels(to_levels(p, scale="1/8"), "int8", "1/4", 0), to_levels(p)),
}


def clip(low: int | str, high: int | str, other_low: int | str, other_high: int | str) -> Step:
    return lambda p: (
        compute(f"(clip {low} {high})", p.x),
        compute(f"(clip {other_low} {other_high})", p.x),
    )


THRESHOLDS: dict[str, Step] = {
    "clip at 6": clip(0, 6, 0, "385/64"),
    "clip at 1": clip(-1, 1, -1, "65/64"),
    "clip at 0": clip(0, 6, "1/64", 6),
    "clip at 5/2": clip(-3, "5/2", -3, 3),
    "clip at 20": clip(0, 20, 0, 21),
    "clip at 100": clip(-100, 100, -100, 101),
    "clip at 1/2": clip("-1/2", "1/2", "-1/2", "33/64"),
    "relu for relu6": lambda p: (compute("(clip 0 6)", p.x), relu(p.x)),
    "slope": lambda p: (compute("(leaky-relu 1/8)", p.x), compute("(leaky-relu 9/64)", p.x)),
    "another slope": lambda p: (compute("(leaky-relu 1/8)", p.x), larger(p.x, times(p.x, "1/4"))),
    "slope above 1": lambda p: (compute("(leaky-relu 2)", p.x), larger(p.x, times(p.x, 2))),
    "relu of a shifted relu": lambda p: (relu(plus(relu(p.x), -1)), relu(plus(p.x, "-9/8"))),
    "relu of a sum": lambda p: (add(relu(p.x), relu(p.y)), relu(add(p.x, p.y))),
    "clip before a scale": lambda p: (compute("(clip 0 6)", times(p.x, 2)), times(compute("(clip 0 6)", p.x), 2)),
    "hard swish": lambda p: (
        multiply(p.x, compute("(clip 0 6)", plus(p.x, 3))),
        multiply(p.x, compute("(clip 0 6)", plus(p.x, "25/8"))),
    ),
    "hard sigmoid": lambda p: (hard_sigmoid(p.x), compute("(clip 0 1)", plus(times(p.x, "1/5"), "1/2"))),
    "clip twice": lambda p: (
        compute("(clip 0 6)", plus(compute("(clip 0 6)", p.x), 5)),
        compute("(clip 5 6)", plus(times(p.x, "1/2"), 5)),
    ),
    "far maximum": lambda p: (larger(plus(p.x, -20), p.y), p.y),
    "maximum and a little": lambda p: (larger(p.x, p.y), larger(p.x, plus(p.y, "-1/16"))),
    "average for maximum": lambda p: (average_pool(p.x, 2, strides=2), max_pool(p.x, 2, strides=2)),
    "side of a pool": lambda p: (
        max_pool(p.x, 3, strides=2, padding=[(0, 1)] * 2),
        max_pool(p.x, 3, strides=2, padding=[(1, 0)] * 2),
    ),
    "size of a pool": lambda p: (
        max_pool(p.x, 3, strides=1, padding=1),
        max_pool(pad(p.x, [(0, 0), (0, 0), (1, 0), (1, 0)], "min-padding"), 2, strides=1),
    ),
    "pool of 0": lambda p: (max_pool(p.x, 3, strides=1, padding=1), max_pool(framed(p.x), 3, strides=1)),
    "maximum but for the last": lambda p: (
        reduce_axes("reduce-max", p.x, [p.axis]),
        reduce_axes("reduce-max", put(p, (0, p.size - 1)), [p.axis]),
    ),
    "minimum but for the first": lambda p: (
        reduce_axes("reduce-min", p.x, [p.axis]),
        reduce_axes("reduce-min", put(p, (1, p.size)), [p.axis]),
    ),
    "axis of a maximum": lambda p: (reduce_axes("reduce-max", p.x, [3]), reduce_axes("reduce-max", p.x, [2])),
    "abs of a sum": lambda p: (
        compute("abs", reduce_axes("reduce-sum", p.x, [p.axis])),
        reduce_axes("reduce-sum", compute("abs", p.x), [p.axis]),
    ),
    "running maximum from 0": lambda p: (
        running(larger, p.x, p.axis, "-1000000"),
        running(larger, p.x, p.axis, "0"),
    ),
    "not abs": lambda p: (compute("abs", p.x), p.x),
    "root of a square": lambda p: (compute("sqrt", multiply(p.x, p.x)), p.x),
}
COMPARED: dict[str, Step] = {
    "lt or le": lambda p: (real(holds("lt", p.x, p.number)), real(holds("le", p.x, p.number))),
    "gt or ge": lambda p: (
        select(holds("gt", p.x, p.number), p.x, full(p.x, 7)),
        select(holds("ge", p.x, p.number), p.x, full(p.x, 7)),
    ),
    "a threshold and 1/32": lambda p: (
        select(holds("gt", p.x, p.number), p.x, full(p.x, 0)),
        select(compare("gt", p.x, plus(full(p.x, p.number), "1/32")), p.x, full(p.x, 0)),
    ),
    "end of a band": lambda p: (
        real(both(holds("gt", p.x, 1), holds("lt", p.x, 3))),
        real(both(holds("gt", p.x, 1), holds("le", p.x, 3))),
    ),
    "or for and": lambda p: (
        real(both(holds("gt", p.x, 1), holds("lt", p.x, 3))),
        real(combine("logical-or", holds("gt", p.x, 1), holds("lt", p.x, 3))),
    ),
    "one number": lambda p: (select(holds("eq", p.x, p.number), full(p.x, 9), p.x), p.x),
    "the smaller": lambda p: (
        select(compare("gt", p.x, p.y), p.x, p.y),
        select(compare("gt", p.x, p.y), p.y, p.x),
    ),
    "never equal": lambda p: (real(compare("eq", p.x, p.y)), full(p.x, 0)),
    "ge or gt of two": lambda p: (real(compare("ge", p.x, p.y)), real(compare("gt", p.x, p.y))),
    "mask of a softmax": lambda p: (
        softmax(select(holds("gt", p.y, 0), p.x, full(p.x, -4)), 3),
        softmax(select(holds("ge", p.y, 0), p.x, full(p.x, -4)), 3),
    ),
    "a gate": lambda p: (multiply(p.x, real(holds("gt", p.x, 4))), full(p.x, 0)),
    "two rare": lambda p: (
        multiply(real(both(holds("gt", p.x, 5), holds("lt", p.y, -5))), p.x),
        full(p.x, 0),
    ),
    "three rare": lambda p: (
        multiply(real(both(both(holds("gt", p.x, 3), holds("lt", p.y, -3)), holds("gt", flip(p.x, p.axis), 3))), p.x),
        full(p.x, 0),
    ),
    "sign of 0": lambda p: (compute("sign", p.x), select(holds("ge", p.x, 0), full(p.x, 1), full(p.x, -1))),
    "a fraction is true": lambda p: (cast(p.x, "bool"), cast(cast(p.x, "int32"), "bool")),
    "less than 0 is true": lambda p: (cast(p.x, "bool"), holds("gt", p.x, 0)),
}


def place(p: Place, kind: str = "argmax", x: Term | None = None, last: bool = False) -> Term:
    return position(kind, p.x if x is None else x, p.axis, last=last)


def two(p: Place, which: int = 0, largest: bool = True) -> Term:
    return top(p.x, 2, p.axis, largest=largest)[which]


POSITIONS: dict[str, Step] = {
    "last of equals": lambda p: (place(p), place(p, last=True)),
    "last of the least": lambda p: (place(p, "argmin"), place(p, "argmin", last=True)),
    "of magnitudes": lambda p: (place(p), place(p, x=compute("abs", p.x))),
    "of relus": lambda p: (place(p), place(p, x=relu(p.x))),
    "order of the top": lambda p: (two(p), put(p, (1, 2), (0, 1), of=two(p))),
    "least for top": lambda p: (two(p), two(p, largest=False)),
    "places of the least": lambda p: (two(p, 1), two(p, 1, largest=False)),
}
ROUNDED: dict[str, Step] = {
    "ceil for floor": lambda p: (compute("floor", p.x), compute("ceil", p.x)),
    "round for floor": lambda p: (compute("floor", p.x), compute("round", p.x)),
    "ceil for round": lambda p: (compute("round", p.x), compute("ceil", p.x)),
    "cut for floor": lambda p: (real(cast(p.x, "int32")), compute("floor", p.x)),
    "halves up": lambda p: (compute("round", p.x), compute("floor", plus(p.x, "1/2"))),
    "halves away": lambda p: (
        compute("round", p.x),
        multiply(compute("sign", p.x), compute("floor", plus(compute("abs", p.x), "1/2"))),
    ),
    "saturated 8 bits": lambda p: (cast(p.x, "int8"), cast(compute(_BYTE, p.x), "int8")),
    "unsigned": lambda p: (cast(cast(p.x, "uint8"), "int32"), cast(relu(p.x), "int32")),
    "cut before a sum": lambda p: (
        cast(plus(p.x, "1/2"), "int32"),
        combine("elementwise-add", cast(p.x, "int32"), cast(full(p.x, "1/2"), "int32")),
    ),
    "cut before a product": lambda p: (cast(times(p.x, 2), "int32"), times(cast(p.x, "int32"), 2)),
    "saturated 16 bits": lambda p: (
        cast(times(p.x, 64), "int16"),
        cast(compute("(clip -32768 32767)", times(p.x, 64)), "int16"),
    ),
    "sign of a rest": lambda p: (by("(mod floor)", p.x, 3), by("(mod truncate)", p.x, 3)),
    "rest by less than 0": lambda p: (by("(mod floor)", p.x, -3), by("(mod floor)", p.x, 3)),
}
DECIDED: dict[str, Step] = {
    f"{theme}: {name}": step
    for theme, steps in {
        "levels": QUANTIZED,
        "thresholds": THRESHOLDS,
        "comparisons": COMPARED,
        "positions": POSITIONS,
        "rounding": ROUNDED,
    }.items()
    for name, step in steps.items()
}
"""Pairs on reals with operations that depend on order."""
