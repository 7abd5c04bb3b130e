"""Draws small programs around one pair of steps: beginnings, ends, and chosen numbers.

Floats are float64, in which what a sigmoid or a softmax rounds to stays far from 0 and 1 for numbers as small as these.
As reals they never are 0 or 1, and reals are what a check compares: what only saturation tells apart is no difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from glenside.builder.layout import broadcast, flip, transpose
from glenside.builder.pointwise import add, cast, combine, compute, hard_sigmoid, multiply, relu, sigmoid, softmax
from glenside.builder.products import convolution
from glenside.builder.quantization import dequantize, quantize
from glenside.builder.reductions import position, reduce_axes
from glenside.builder.windows import average_pool, max_pool
from glenside.check.confined import Confined
from glenside.check.indices import index_limits, picks
from glenside.check.input_generators import constants_of
from glenside.ir.dtypes import FLOATS, limits
from glenside.ir.errors import GlensideError
from glenside.ir.operand import Array
from glenside.ir.operators.compute import compute as compute_of
from glenside.ir.term import Term, build, postorder, tensors
from glenside.ir.types import Dims, Tensor
from glenside.semantics import Native

REAL = "float64"
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
Pair = tuple[Term, Term]
Step = Callable[["Place"], Pair]
"""Two terms for one place of a program: the first is right, the second is wrong or equal to the first."""
_CLIPS = ("(clip 0 6)", "(clip -1 1)", "(leaky-relu 1/8)", "abs", "(clip -3 5/2)")


def tensor(name: str, dims: tuple[int, ...], dtype: str = REAL) -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype))


def full(x: Term, value: int | str) -> Term:
    return build("full", tuple(x.access.dims), str(value), x.access.dtype)


def by(kind: str, x: Term, value: int | str) -> Term:
    """Combines a term with one number."""
    return combine(kind, x, full(x, value))


def plus(x: Term, value: int | str) -> Term:
    return by("elementwise-add", x, value)


def times(x: Term, value: int | str) -> Term:
    return by("elementwise-mul", x, value)


def real(x: Term) -> Term:
    return cast(x, REAL)


def levels(x: Term, dtype: str, scale: str, zero: int) -> Term:
    """Quantizes and dequantizes."""
    point = build("full", tuple(x.access.dims), str(zero), dtype)
    return dequantize(quantize(x, full(x, scale), point, dtype), full(x, scale), point)


@dataclass(frozen=True)
class Place:
    """The operands that a step may use: an image x of (1)(C)(H)(W), and other tensors, which both terms of a pair
    share.
    """

    x: Term
    pick: random.Random

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(self.x.access.dims)

    @cached_property
    def axis(self) -> int:
        """Returns an axis of at least three elements, if there is one."""
        return self.pick.choice([axis for axis, size in enumerate(self.dims) if size > 2] or [1])

    @property
    def size(self) -> int:
        return self.dims[self.axis]

    @cached_property
    def number(self) -> str:
        return self.pick.choice(("1/2", "0", "2", "-1", "13/4"))

    @cached_property
    def y(self) -> Term:
        """Returns another image."""
        return tensor("y", self.dims, self.x.access.dtype)

    @cached_property
    def weights(self) -> Term:
        return tensor("k", (2, self.dims[1], 3, 3), self.x.access.dtype)

    @property
    def indices(self) -> Term:
        return tensor("i", (3,), "int64")

    @property
    def elements(self) -> Term:
        """Returns an index for each element."""
        return tensor("j", self.dims, "int64")

    def convolved(self, weights: Term | None = None, stride: int = 1, padding: object = 1, dilation: int = 1) -> Term:
        w = self.weights if weights is None else weights
        return convolution(self.x, w, stride, padding, dilation, 1).result  # type: ignore[arg-type]


_FUNCTIONS = ("exp", "sigmoid", "softmax", "sqrt")


def is_smooth(*terms: Term) -> bool:
    """True if terms have functions such as exp. Nothing that depends on order is put after these: x * sigmoid(x) = 5/2,
    or a softmax of 1/2 in three numbers, only holds for transcendental numbers, which no check can draw.
    """
    return any(t.operator is compute_of and t.attributes[0] in _FUNCTIONS for t in postorder(*terms))


def floats(pick: random.Random) -> Term:
    """Adds up to three steps to an image of floats; one of four ends in a function such as exp."""
    c, h = pick.choice((2, 3, 4)), pick.choice((4, 5, 6))
    x = tensor("x", (1, c, h, h if pick.random() < 0.6 else pick.choice((4, 5, 6))))
    for number in range(pick.choice((0, 0, 1, 2, 3))):
        x = _step(pick, x, number)
    if pick.random() < 0.75:
        return x
    return softmax(x, pick.choice((1, 3))) if pick.random() < 0.5 else multiply(x, sigmoid(x))


def _step(pick: random.Random, x: Term, number: int) -> Term:
    dims = tuple(x.access.dims)
    c = dims[1]

    def convolved() -> Term:
        size, groups = pick.choice(((1, 1), (3, 1), (3, c)))
        w = tensor(f"w{number}", (c if groups > 1 else pick.choice((2, 3, 4)), c // groups, size, size))
        return convolution(x, w, 1, size // 2, 1, groups).result

    def quantized() -> Term:
        dtype = pick.choice(("int8", "uint8"))
        return levels(x, dtype, pick.choice(("1/4", "1/8", "1/2")), pick.choice((0, 3, 100)))

    steps: tuple[Callable[[], Term], ...] = (
        convolved,
        convolved,
        quantized,
        lambda: relu(x),
        lambda: compute(pick.choice(_CLIPS), x),
        lambda: add(x, broadcast(tensor(f"b{number}", (1, c, 1, 1)), dims)),
        lambda: add(x, tensor(f"v{number}", dims)),
        lambda: max_pool(x, 3, strides=pick.choice((1, 2)), padding=1),
        lambda: average_pool(x, 2, strides=1),
        lambda: transpose(x, pick.choice(((0, 1, 3, 2), (0, 2, 3, 1), (0, 2, 1, 3)))),
        lambda: hard_sigmoid(x),
        lambda: times(x, pick.choice(("1/2", "2", "-1", "3/4"))),
    )
    try:
        return pick.choice(steps)()
    except GlensideError:  # too small for windows
        return x


def whole_numbers(pick: random.Random) -> Term:
    """Adds up to two steps to an image of integers."""
    dims = (1, pick.choice((2, 3, 4)), pick.choice((4, 5, 6)), pick.choice((4, 5, 6)))
    x = tensor("x", dims, pick.choice(INTEGERS))
    for number in range(pick.choice((0, 1, 2))):
        x = _whole_step(pick, x, number)
    return x


def _whole_step(pick: random.Random, x: Term, number: int) -> Term:
    dtype, other = x.access.dtype, tensor(f"v{number}", tuple(x.access.dims), x.access.dtype)
    match pick.randrange(6):
        case 0:
            return plus(x, pick.choice((1, 3, 100)))
        case 1:
            return times(x, pick.choice((2, 3) if dtype.startswith("u") else (2, 3, -1)))
        case 2 if dtype in ("int16", "int32"):
            return compute(pick.choice(("(clip -3 100)", "(clip 0 200)", "(clip -128 127)")), x)
        case 2:
            return relu(x)
        case 3:
            return combine("elementwise-add", x, other)
        case 4:
            return combine("maximum", x, other)
    return transpose(x, (0, 1, 3, 2))


def ended(pick: random.Random, a: Term, b: Term) -> Pair:
    """Adds up to two steps after both terms; after smooth functions none that depends on order."""
    smooth = is_smooth(a, b)
    for number in range(pick.choice((0, 0, 1, 2))):
        step = _end(pick, a, number, smooth)
        a, b = step(a), step(b)
    return a, b


def _end(pick: random.Random, t: Term, number: int, smooth: bool) -> Callable[[Term], Term]:
    ends: list[Callable[[Term], Term]] = [lambda t: t]
    dtype, filled = t.access.dtype, all(t.access.dims) and t.access.rank
    axis = pick.randrange(t.access.rank) if t.access.rank else 0
    if filled:
        ends.append(lambda t: flip(t, axis))
    if dtype != "bool" and filled:
        ends.append(lambda t: reduce_axes("reduce-sum", t, [axis]))
    if dtype not in FLOATS and dtype != "bool":
        ends += [real, lambda t: plus(t, 1)]
    if dtype in FLOATS:
        ends += [lambda t: times(t, "1/2"), lambda t: add(t, tensor(f"e{number}", tuple(t.access.dims)))]
    if dtype in FLOATS and not smooth:
        ends += [relu, lambda t: compute("(clip -8 8)", t), lambda t: levels(t, "int8", "1/4", 3)]
        if filled:
            ends += [lambda t: reduce_axes("reduce-max", t, [axis]), lambda t: position("argmax", t, axis)]
    return pick.choice(ends)


_SETS = 90


def chosen(a: Term, b: Term, seed: int) -> Iterator[dict[str, Array]]:
    """Draws values for two terms: small ones, constants of both and their neighbours, large ones, few distinct ones, or
    around one constant; full-range and extreme integers. Indices are valid.
    """
    rng, below = np.random.default_rng(seed), index_limits(a, others=[b])
    confined = Confined(picks(a))
    among = np.array([0.0, *map(float, constants_of(a, b))])
    declared = dict.fromkeys(leaf.attributes[0] for leaf in tensors(a, b))
    for number in range(_SETS):
        values: dict[str, Array] = {}
        for t in declared:
            assert isinstance(t, Tensor)
            if t.name in below:
                drawn = rng.integers(0, below[t.name], t.dims)
            elif t.dtype in FLOATS:
                drawn = _floats(t, rng, among, number % 6)
            else:
                drawn = _whole(t, rng, among, number % 6)
            values[t.name] = np.asarray(drawn).astype(t.dtype)
        yield confined.settle(values, Native()) or values


def _floats(t: Tensor, rng: np.random.Generator, among: Array, way: int) -> Array:
    dims = tuple(t.dims)
    drawn = (
        lambda: rng.integers(-16, 17, dims) / 4,
        lambda: rng.choice(among, dims) + rng.choice((0, 0, 1 / 4, -1 / 4, 1 / 64, -1 / 64, 1 / 2), dims),
        lambda: rng.integers(-40, 41, dims) / 2 * rng.choice((1, 4)),
        lambda: rng.integers(-1, 2, dims) * 1.0,
        lambda: rng.choice(among) + rng.integers(-64, 65, dims) / 64,
        lambda: rng.integers(-3, 4, dims) / 2 + rng.choice((-6, 6, 0, 0, 2)),
    )[way]()
    few = t.name[0] in "wk" and rng.random() < 0.5  # weights, whose sums are then often the constants themselves
    return np.asarray(drawn * (rng.random(dims) < 0.3) if few else drawn)


def _whole(t: Tensor, rng: np.random.Generator, among: Array, way: int) -> Array:
    dims, (least, most) = tuple(t.dims), limits(t.dtype)
    if way in (0, 5):
        return rng.integers(least, most, dims, np.dtype(t.dtype), endpoint=True)
    if way == 1:
        near = [int(n) + beside for n in among for beside in (-2, -1, 0, 1, 2)]
        return rng.choice(np.array([n for n in near if least <= n <= most]), dims)
    if way == 2:
        return rng.choice(np.array([least, least + 1, most, most - 1, 0, 1]), dims)
    return np.clip(rng.integers(-9, 10, dims) * rng.choice((1, 1, 10)), least, most)
