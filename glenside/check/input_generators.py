"""Draws the random inputs on which two programs are compared."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from glenside.check.order_dependence import dtypes
from glenside.ir.blockwise import blocks
from glenside.ir.dtypes import REALS, STORED, WHOLE, limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operators.casting import cast
from glenside.ir.operators.compute import compute, compute_of
from glenside.ir.rational import exact
from glenside.ir.term import Term, postorder, tensors
from glenside.ir.types import Dims, Tensor

_MOST_INDEX = (1 << 63) - 1
_PART = 1 << 16  # elements that are drawn at a time
Draw = Callable[..., Array]
"""(tensor, exclusive upper bound of its integers) -> its value in one round."""


def declared(*roots: Term) -> dict[str, Tensor]:
    """Returns the tensors that the terms read, by name. Raises BadInput when two tensors of one name differ."""
    found: dict[str, Tensor] = {}
    for leaf in tensors(*roots):
        tensor = leaf.attributes[0]
        assert isinstance(tensor, Tensor)
        known = found.setdefault(tensor.name, tensor)
        if known != tensor:
            raise BadInput(f"a check requires both programs to declare {tensor.name} alike, got {known} and {tensor}")
    return found


def is_real(*roots: Term) -> bool:
    """True if any term has floats."""
    return any(dtype in REALS for term in postorder(*roots) for dtype in dtypes(term.type))


def _stream(seed: int, salt: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, salt, zlib.crc32(name.encode())])


def draw_integers(tensor: Tensor, limit: int | Array | None = None, *, seed: int) -> Array:
    """Draws integers over the full range of the dtype, or valid indices below a limit."""
    rng = _stream(seed, 0, tensor.name)
    if tensor.dtype == "bool":
        return rng.integers(0, 2, tensor.dims, dtype=np.bool_)
    dtype = np.dtype(tensor.dtype)
    if limit is not None:
        most = limit if tensor.dtype in REALS else limits(tensor.dtype)[1] + 1
        return rng.integers(0, np.clip(limit, 1, min(most, _MOST_INDEX)), tuple(tensor.dims)).astype(dtype)
    least, most = limits(tensor.dtype)
    drawn = rng.integers(least, most, tensor.dims, np.int8 if tensor.dtype in STORED else dtype, endpoint=True)
    return drawn.astype(dtype, copy=False)


def drawn_within(draw: Draw, tensor: Tensor, limit: int | Array | None) -> Array:
    """Draws a value of a tensor; elements with a limit are below it, and elements of limit 0 have none."""
    drawn: Array = draw(tensor, limit)
    if not isinstance(limit, np.ndarray) or limit.all():
        return drawn
    return np.where(limit > 0, drawn, draw(tensor))


def draw_residues(tensor: Tensor, limit: int | Array | None = None, *, seed: int, p: int) -> Array:
    """Draws residues modulo p for floats, as signed representatives, and integers for other dtypes."""
    if tensor.dtype not in REALS:
        return draw_integers(tensor, limit, seed=seed)
    half, rng, drawn = (p - 1) // 2, _stream(seed, p, tensor.name), np.empty(tensor.dims, np.float32)
    flat = drawn.reshape(-1)
    for index in blocks(flat.shape, _PART):
        flat[index] = rng.integers(-half, half, flat[index].shape, np.int32, endpoint=True)
    return drawn


def draw_near(
    tensor: Tensor,
    limit: int | Array | None = None,
    *,
    seed: int,
    turn: int,
    among: Sequence[Fraction | float],
    weights: Collection[str] = (),
) -> Array:
    """Draws small numbers that reach many branch outcomes: floats are multiples of 1/64.

    Four kinds of rounds alternate:

    0  numbers near one centre, so that all are below a threshold, or all above it
    1  a centre for each index of some axis, so that a whole window is below 0 beside others
    2  constants of the program, and numbers beside them
    3  one number far above all others, at another index each time

    Every second round of kind 0 has some tensors beyond a constant and the others about 0; every second round of kind 1
    has some parts of each tensor beyond a constant. Values that pass a threshold then reach the result, unless later
    terms clamp them again.

    Of every 16 rounds, some are special. In one, the kind is drawn for each tensor. In one, all numbers are -1, 0 or
    1, so that sums are exactly 0 at any depth. In two, integers have their full range, so that a whole window wraps. In
    one, some integers are the least and the most of their dtype.

    `weights` are small where reductions over products with them are long, so that values of a network of any depth stay
    in the range that is compared.
    """
    if tensor.dtype == "bool" or limit is not None:
        return draw_integers(tensor, limit, seed=seed + turn)
    rng = _stream(seed + turn, 3, tensor.name)
    if tensor.dtype in REALS and tensor.name in weights and len(tensor.dims) > 1 and tensor.dims.product():
        return _weights(tensor.dims, rng, turn)
    if tensor.dtype in _FEW_VALUES and turn % _PERIOD in _EACH:
        return _next(tensor, rng, 2 * (turn // _PERIOD) + turn % 2)
    if tensor.dtype not in REALS and turn % _PERIOD in _FULL:
        return _any(tensor, rng, seed + turn, among)
    normal = rng.standard_normal(tensor.dims)
    if tensor.dtype in REALS:
        grid = 64 if not _is_coarse(turn) else 4 if turn // _PERIOD % 2 else 2
        return np.asarray(np.rint(_pattern(tensor, normal, rng, seed, turn, among) * grid) / grid)
    drawn = np.rint(_pattern(tensor, 2 * normal, rng, seed, turn, among))
    clipped = np.clip(drawn, *held(tensor.dtype)).astype(tensor.dtype)
    if turn % _PERIOD != _ENDS:
        return clipped
    return _at_ends(clipped, tensor, rng if turn // _PERIOD % 2 else _stream(seed + turn, 3, ""))


_PERIOD = 16
_ENDS, _MIXED, _FEW, _FULL, _EACH = 6, 12, 13, (11, 14), (10, 11)
"""The period of special rounds, and within it the rounds of each kind.

_ENDS   some integers are the least and the most of their dtype
_MIXED  each tensor is drawn in its own way
_FEW    all numbers are -1, 0 or 1
_FULL   integers have their full range
_EACH   integers of 8 bits enumerate their dtype
"""


def _next(tensor: Tensor, rng: np.random.Generator, times: int) -> Array:
    """Returns the next integers in the enumeration of a dtype, after `times` earlier draws, in random order."""
    size, least = tensor.dims.product(), limits(tensor.dtype)[0]
    some = (least + np.arange(times * size, (times + 1) * size)).astype(np.dtype(tensor.dtype))
    return rng.permutation(some).reshape(tensor.dims)


def _any(tensor: Tensor, rng: np.random.Generator, seed: int, among: Sequence[Fraction | float]) -> Array:
    """Draws integers of their full range.

    They are independent, or one for each index of some axis, or near one centre, throughout or in a part. Half of the
    centres wrap when they are multiplied by a constant of the program.
    """
    dims, kind = tensor.dims, rng.integers(4)
    any_ = draw_integers(tensor, seed=seed)
    if kind == 0 or not any_.size:
        return any_
    if kind == 1:
        some = any_[tuple(slice(size) for size in _along_one_axis(dims, rng))]
        return np.array(np.broadcast_to(some, dims))
    most = limits(tensor.dtype)[1]
    factors = [n for n in (abs(int(c)) for c in among if c == int(c)) if 1 < n < most]
    wrapping = bool(factors) and rng.random() < 0.5
    centre = any_.dtype.type(_BEYOND_WRAP * most // _one_of(factors, rng)) if wrapping else any_.flat[0]
    about = centre + rng.integers(-8, 9, dims).astype(any_.dtype)
    return about if kind == 2 else np.where(_one_side(dims, rng), about, any_)


_BEYOND_WRAP = Fraction(5, 4)


def _at_ends(drawn: Array, tensor: Tensor, rng: np.random.Generator) -> Array:
    """Replaces some integers by the least or the most of their dtype, or their neighbours: only these may wrap.

    With a common random stream, tensors of the same dims have them at the same indices. In half of the draws one number
    fills a part, so that a whole window wraps.
    """
    least, most = limits(tensor.dtype)
    ends = np.array([least, least, least + 1, most - 1, most, most], drawn.dtype)
    if rng.random() < 0.5:
        return np.where(_one_side(tensor.dims, rng), _one_of(ends, rng), drawn)
    return np.where(rng.random(tensor.dims) < _SOME, _some_of(ends, tensor.dims, rng), drawn)


_SOME = 0.25  # share of elements
_LARGE = 1 << 20
_LED = 0.5  # share of centres
_AWAY = 0.4  # share of centres of integers


def further(turn: int) -> int:
    """Returns the number of a further round: every second one has few distinct numbers, or integers of full range."""
    return turn if turn % 2 == 0 else turn * _PERIOD + (_FULL[-1] if turn % 4 == 1 else _FEW)


def held(dtype: str) -> tuple[int, int]:
    """Returns the least and the largest integer of a dtype that float64 represents."""
    least, most = limits(dtype)
    return least, most if most < 1 << 53 else most - (most >> 53)


def _weights(dims: Dims, rng: np.random.Generator, turn: int) -> Array:
    length = dims.product() / max(dims)  # of the reduction, if the longest axis is that of the results
    if turn % _PERIOD == _FEW:
        return _signs(dims, rng, min(0.5, _TERMS / length)).astype(np.float32)
    scale = 2.0 ** round(1 - math.log2(length) / 2)
    most = 2 if _is_coarse(turn) else 127
    step = np.float32(scale / (2 if _is_coarse(turn) else 64))
    return np.asarray(rng.integers(-most, most + 1, dims, np.int8) * step)


_TERMS = 3
"""Nonzero terms of a reduction with few weights, on average: so few that values do not grow with depth."""


def _signs(dims: Sequence[int], rng: np.random.Generator, share: float) -> Array:
    """Draws -1 or 1 for a share of the elements, and 0 for the rest."""
    return np.asarray((rng.random(dims) < share) * np.where(rng.random(dims) < 0.5, -1.0, 1.0))


def _is_coarse(turn: int) -> bool:
    """True if numbers of a round are halves or quarters: some are equal, some sums 0, some products half levels."""
    return turn // 4 % 2 == 1 and turn % 4 < 2


_CENTRES = (-6.0, -2.0, 0.0, 0.0, 3.0)
_BESIDE = (0.0, 0.0, 1 / 64, -1 / 64, 0.5, -0.5, 1.0, -1.0)
"""Offsets from a constant at which an inexact threshold shows."""
_BEYOND = 5.0
"""Distance from a constant at which a whole window is on one side of it, if other operands are about 0."""
_SCALED = 8.0
"""Factor by which a number is beyond a constant even if it is multiplied by a fraction first."""
_PAIRED, _LARGEST_LED = 24, 1e10
_PEAK = 50.0
_FEW_VALUES = ("int8", "uint8")
"""Dtypes with few values: every value is drawn, because a sum may wrap for a single one."""


def _pattern(
    tensor: Tensor, normal: Array, rng: np.random.Generator, seed: int, turn: int, among: Sequence[Fraction | float]
) -> Array:
    dims, (constants, led) = tensor.dims, _known(tuple(among))
    kind, times = turn % 4, turn // 4
    if turn % _PERIOD == _MIXED:
        return _own_way(tensor, normal, rng, constants)
    if turn % _PERIOD == _FEW:
        signs = _signs(dims, rng, _one_of((0.25, 0.5, 0.75), rng))
        return np.where(_one_side(dims, rng), 0.0, signs) if rng.random() < 0.5 else signs
    if kind < 2 and times % 2:
        calm, far = normal / 2, normal / 2 + _centre(constants, led, rng) + _one_of((-_BEYOND, _BEYOND), rng)
        if kind == 0:  # the far tensors are others each time
            return np.asarray(far if zlib.crc32(tensor.name.encode(), seed) >> times // 2 % 32 & 1 else calm)
        return np.where(_one_side(dims, rng), far, calm)
    if kind == 0:
        # round 0 is the only one of a large network, if it reaches all branch outcomes
        return np.asarray(normal if turn == 0 else _about(tensor, normal, rng, constants, led))
    if kind == 1:
        return np.asarray(2 * normal + _some_of(_CENTRES, _along_one_axis(dims, rng), rng))
    if kind == 2:
        any_ = 3 * normal if tensor.dtype not in _FEW_VALUES else draw_integers(tensor, seed=seed + turn)
        some = np.where(rng.random(dims) < times % 2 / 4, _some_of(led, dims, rng), _some_of(constants, dims, rng))
        return np.where(rng.random(dims) < 0.5, some + _some_of(_BESIDE, dims, rng), any_)
    drawn = np.array(2 * normal)
    if drawn.size > 1:
        first = _stream(seed, 4, tensor.name).integers(1 << 30, size=drawn.ndim)
        drawn[tuple((first + times) % dims)] = _PEAK
    return drawn


def _about(tensor: Tensor, normal: Array, rng: np.random.Generator, constants: Array, led: Array) -> Any:
    """Returns numbers about one centre."""
    if tensor.dtype not in REALS and rng.random() < _AWAY:  # all beyond any constant that is added
        away = _one_of(limits(tensor.dtype), rng) // 4
        return normal + max(-_LARGE, min(away, _LARGE))
    return normal / _one_of((1, 2, 4), rng) + _centre((*_CENTRES, *constants), led, rng)


def _centre(constants: Sequence[float] | Array, led: Array, rng: np.random.Generator) -> Any:
    """Draws a centre: a constant of the program, or a number that an operation turns into one."""
    return _one_of(led if led.size and rng.random() < _LED else constants, rng)


def _one_of(numbers: Sequence[float] | Array, rng: np.random.Generator) -> Any:
    """Draws one of some numbers, five times as fast as `rng.choice`."""
    return numbers[int(rng.integers(0, len(numbers)))]


def _some_of(numbers: Sequence[float] | Array, dims: Sequence[int], rng: np.random.Generator) -> Array:
    return np.asarray(numbers)[rng.integers(0, len(numbers), dims)]


@lru_cache(maxsize=8)
def _known(among: Sequence[Fraction | float]) -> tuple[Array, Array]:
    """Returns the constants, 0 first, and the numbers that operations with them turn into constants."""
    constants = np.array([0.0, *map(float, among)])
    return constants, _led(constants)


def _led(constants: Array) -> Array:
    """Returns quotients and differences of constants, which a product or a sum turns into a constant, and numbers
    beyond each constant.
    """
    some = constants[:_PAIRED]
    divisors = some[some != 0]
    found = np.concatenate([np.divide.outer(some, divisors), np.subtract.outer(some, divisors)], axis=None)
    return np.concatenate([found[np.abs(found) < _LARGEST_LED], _SCALED * constants])


def _own_way(tensor: Tensor, normal: Array, rng: np.random.Generator, constants: Array) -> Array:
    """Draws a tensor in one of six ways: about 0; whole; of -1, 0 and 1; in a part beyond a constant or a bound of its
    dtype; one number for each index of an axis; about one constant.
    """
    dims = tensor.dims
    edges = constants if tensor.dtype in REALS else np.array([*constants, *map(float, limits(tensor.dtype))])
    match rng.integers(6):
        case 0:
            return np.asarray(normal / 2)
        case 1:
            return np.asarray(np.rint(_one_of((1, 4), rng) * normal))
        case 2:
            return _signs(dims, rng, _one_of((0.25, 0.5), rng))
        case 3:
            far = normal / 2 + _one_of((1, 1, _SCALED), rng) * _one_of(edges, rng) + _one_of((-_BEYOND, _BEYOND), rng)
            return np.where(_one_side(dims, rng), far, normal / 2)
        case 4:
            centre = np.zeros(dims) + _one_of(constants, rng)
            return np.asarray(centre + _some_of(_BESIDE, _along_one_axis(dims, rng), rng))
    return np.asarray(np.zeros(dims) + _one_of((1, 1, _SCALED), rng) * _one_of(edges, rng) + rng.integers(-5, 6))


def _along_one_axis(dims: Sequence[int], rng: np.random.Generator) -> list[int]:
    """Returns dims that are 1 except for a random axis of several elements."""
    wide = [axis for axis, size in enumerate(dims) if size > 1]
    axis = _one_of(wide, rng) if wide else 0
    return [size if i == axis else 1 for i, size in enumerate(dims)]


def _one_side(dims: Sequence[int], rng: np.random.Generator) -> Array:
    """Returns a mask of one side of a random cut through a random axis."""
    line = _along_one_axis(dims, rng)
    size = math.prod(line)
    before = np.arange(size).reshape(line) < rng.integers(1, max(2, size))
    return np.asarray(before if rng.random() < 0.5 else ~before)


_WRAPS = tuple(dtype for dtype in WHOLE if dtype not in ("int64", "uint64"))
_LONG = 100
"""Length below which an attribute is a list of few numbers; longer ones are matrices."""


def constants_of(*roots: Term) -> list[Fraction]:
    """Returns the numbers in attributes of terms, such as thresholds, and the first that casts wrap.

    Large numbers are left out: sums of floats with these would hide others.
    """
    found: dict[Fraction, None] = {}
    largest = 1 << 20 if is_real(*roots) else 1 << 62
    for term in postorder(*roots):
        if term.operator is cast and term.access.dtype in _WRAPS and _may_wrap(term):
            least, most = limits(term.access.dtype)
            found.update(dict.fromkeys((Fraction(least - 1), Fraction(most + 1))))
        for attribute in term.attributes:
            if isinstance(attribute, str) and len(attribute) < _LONG:
                numbers = (exact(word) for word in attribute.strip("()").split())
                found.update(dict.fromkeys(n for n in numbers if n is not None and abs(n) < largest))
    return list(found)


def periods_of(*roots: Term) -> list[float]:
    """Returns numbers near multiples of the divisors of remainders, at distances that are constants of the program.

    There a remainder equals that of a small number, but other functions have different values than for the small
    number.
    """
    moduli = [term.children[0] for term in postorder(*roots) if term.operator is compute and _is_rest(term)]
    if not moduli:
        return []
    divisors = [float(abs(c)) for c in constants_of(*moduli) if 1 < abs(c) < _LARGE]
    rests = [0.0, *(float(c) for c in constants_of(*roots) if abs(c) < _LARGE and c not in divisors)]
    points = (m * d + c for m in _MULTIPLES for d in divisors for c in (*rests, *divisors))
    return list(dict.fromkeys(points))[:_MOST_POINTS]


_MULTIPLES = (1, -1, 2)
_MOST_POINTS = 1 << 10


def _is_rest(term: Term) -> bool:
    return compute_of(term)[0].name == "mod"


def draw_points(
    tensor: Tensor, limit: int | Array | None = None, *, seed: int, turn: int, points: Sequence[float]
) -> Array:
    """Draws some of these points, others in each round, clamped to the dtype; half of the floats are 1/2 above."""
    if tensor.dtype == "bool" or limit is not None:
        return draw_integers(tensor, limit, seed=seed + turn)
    rng, size = _stream(seed, 6, tensor.name), tensor.dims.product()
    order = np.asarray(points)[rng.permutation(len(points))]
    found = order[(turn * size + np.arange(size)) % len(order)].reshape(tensor.dims)
    if tensor.dtype in REALS:
        return np.asarray(found + _stream(seed + turn, 7, tensor.name).integers(0, 2, tensor.dims) / 2)
    return np.asarray(np.clip(found, *held(tensor.dtype)).astype(tensor.dtype))


def _may_wrap(term: Term) -> bool:
    """True if a cast to integers has operands that the integer dtype cannot hold."""
    least, most = limits(term.access.dtype)
    given = term.children[0].access.dtype
    if given not in WHOLE:
        return given in REALS
    low, high = limits(given)
    return low < least or most < high


def draw_reals(tensor: Tensor, limit: int | Array | None = None, *, seed: int) -> Array:
    """Draws normal values for floats, and integers for other dtypes."""
    if tensor.dtype not in REALS:
        return draw_integers(tensor, limit, seed=seed)
    return _stream(seed, 1, tensor.name).standard_normal(tensor.dims).astype(tensor.dtype)
