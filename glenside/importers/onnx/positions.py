"""Elements around computed positions: which they are, how much each counts, and what is beyond the ends of an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from glenside.builder.indexing import gather_nd
from glenside.builder.layout import broadcast, common_dims, reshape, stack, transpose
from glenside.builder.pointwise import add, cast, combine, compute, divide, multiply, select, subtract
from glenside.builder.reductions import weighted_elements
from glenside.importers.onnx.node import Node
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build

# One column for each tap: where it stands from the element at or below the position, and the polynomial of its
# distance to the position that is its weight, the highest power first. Cubic is Keys' kernel with a = -3/4.
OFFSETS = {"linear": [0, 1], "cubic": [-1, 0, 1, 2]}
WEIGHTS: dict[str, list[list[float]]] = {
    "linear": [[-1, -1], [1, 1]],
    "cubic": [[-0.75, 1.25, 1.25, -0.75], [3.75, -2.25, -2.25, 3.75], [-6, 0, 0, -6], [3, 1, 1, 3]],
}


def number(like: Term, value: float) -> Term:
    """A number, ()(), that combines with the elements of a float tensor."""
    return build("full", (), repr(float(value)), like.access.dtype)


def within(x: Term, low: float, high: float) -> Term:
    """Whether low <= x <= high."""
    above, below = combine("(compare ge)", x, number(x, low)), combine("(compare le)", x, number(x, high))
    return combine("logical-and", above, below)


@dataclass(frozen=True)
class SampledAxis:
    """An axis of `size` elements.

    padding  zeros: nothing is beyond its ends; border: the element at the end; reflection: the elements in reverse
    aligned  whether an end is the centre of the element there, and not half an element further out
    """

    size: int
    padding: str
    aligned: bool

    @property
    def ends(self) -> tuple[float, float]:
        return (0, self.size - 1) if self.aligned else (-0.5, self.size - 0.5)

    def position(self, normal: Term) -> Term:
        """Where a number from -1 to 1, end to end, stands on the axis: ((normal + 1) * length - margin) / 2."""
        low, high = self.ends
        x = multiply(add(normal, number(normal, 1)), number(normal, high - low))
        return divide(add(x, number(x, 2 * low)), number(x, 2))

    def returned(self, x: Term) -> Term:
        """Positions, with those beyond the ends where the padding looks for them."""
        if self.padding == "reflection":
            return self.reflected(x)
        if self.padding == "border":
            return select(within(x, *self.ends), x, compute(f"(clip 0 {self.size - 1})", x))
        return x

    def reflected(self, x: Term) -> Term:
        """A triangle wave from end to end."""
        low, high = self.ends
        if low == high:
            return broadcast(number(x, low), x.access.dims)
        span, whole = number(x, high - low), number(x, 2 * (high - low))
        distance = compute("abs", subtract(x, number(x, low)))
        left = subtract(distance, multiply(compute("floor", divide(distance, whole)), whole))
        return add(subtract(span, compute("abs", subtract(left, span))), number(x, low))

    def taps(self, node: Node, x: Term, mode: str) -> tuple[Term, Term]:
        """Indices and weights around positions: ()(S..) -> two of ()(S.. T)."""
        dtype = x.access.dtype
        at = reshape(x, (*x.access.dims, 1))
        whole = add(compute("floor", at), node.constant(np.array(OFFSETS[mode], dtype)))
        distance = compute("abs", subtract(whole, at))
        first, *rest = (node.constant(np.array(row, dtype)) for row in WEIGHTS[mode])
        weights = reduce(lambda sum_, row: add(multiply(sum_, distance), row), rest, first)
        return self.indices(whole), self.counted(whole, broadcast(weights, whole.access.dims))

    def counted(self, whole: Term, weights: Term) -> Term:
        """Weights without those of elements that are not there."""
        return weights if self.padding != "zeros" else select(self.inside(whole), weights, number(weights, 0))

    def inside(self, whole: Term) -> Term:
        """Whether a whole position is an element."""
        return within(whole, 0, self.size - 1)

    def indices(self, whole: Term) -> Term:
        """Whole positions as indices of elements; what is no number counts as 0."""
        x = self.reflected(whole) if self.padding == "reflection" else whole
        least = select(combine("(compare ge)", x, number(x, 0)), x, number(x, 0))
        return cast(combine("minimum", least, number(x, self.size - 1)), "int64")


def require_elements(x: Term) -> None:
    """Raise BadInput when an axis of x after (N C) has no element to sample."""
    if 0 in x.access.dims.drop(2):
        raise BadInput(f"input 0 requires elements to sample, got {x.access}")


def channels_last(x: Term) -> Term:
    """()(N C d..) -> ()(N d.. C)."""
    return transpose(x, (0, *range(2, x.access.rank), 1))


def channels_first(y: Term) -> Term:
    """()(N S.. C) -> ()(N C S..)."""
    return transpose(y, (0, y.access.rank - 1, *range(1, y.access.rank - 1)))


def places(indices: Sequence[Term]) -> Term:
    """Indices of several axes, which broadcast to each other, as places: ()(S..) each -> ()(S.. axes)."""
    dims = common_dims("places", *(index.access.dims for index in indices))
    return stack([broadcast(index, dims) for index in indices], -1)


def apart(taps: Sequence[Term]) -> list[Term]:
    """Taps of several axes, ()(S.. T) each, so that they broadcast to all combinations, ()(S.. T T ..)."""
    ones = [1] * len(taps)
    return [
        reshape(tap, (*tap.access.dims[:-1], *ones[:k], tap.access.dims[-1], *ones[k + 1 :]))
        for k, tap in enumerate(taps)
    ]


def sampled(node: Node, x: Term, axes: Sequence[SampledAxis], positions: Sequence[Term], mode: str) -> Term:
    """x of ()(N C d..) between its elements, at positions of each axis, ()(N S..) -> ()(N C S..)."""
    dims = positions[0].access.dims
    taps = [axis.taps(node, at, mode) for axis, at in zip(axes, positions, strict=True)]
    weights = reduce(multiply, apart([weight for _, weight in taps]))
    count = weights.access.dims.drop(len(dims)).product()
    at = reshape(places(apart([index for index, _ in taps])), (*dims, count, len(axes)))
    return channels_first(weighted_elements(gather_nd(channels_last(x), at, 1), reshape(weights, (*dims, count))))


def picked(x: Term, axes: Sequence[SampledAxis], whole: Sequence[Term]) -> Term:
    """The elements of x at whole positions of each axis, ()(N C d..) at ()(N S..) -> ()(N C S..)."""
    at = places([axis.indices(one) for axis, one in zip(axes, whole, strict=True)])
    y = gather_nd(channels_last(x), at, 1)
    if axes[0].padding == "zeros":
        there = [axis.inside(one) for axis, one in zip(axes, whole, strict=True)]
        inside = reduce(lambda a, b: combine("logical-and", a, b), there)
        y = select(reshape(inside, (*inside.access.dims, 1)), y, build("full", (), 0, y.access.dtype))
    return channels_first(y)


def float_dtype(*terms: Term) -> str:
    """float64 when one of them needs it, else float32."""
    narrow = {"float16", "float32"}
    return "float32" if all(term.access.dtype in narrow for term in terms) else "float64"
