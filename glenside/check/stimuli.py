"""The random numbers that two programs are compared on."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from glenside.check.order import dtypes
from glenside.ir.blockwise import blocks
from glenside.ir.dtypes import REALS, STORED, WHOLE, limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operators.casting import cast
from glenside.ir.operators.compute import compute, parse_compute
from glenside.ir.rational import exact
from glenside.ir.term import Term, postorder, tensors
from glenside.ir.types import Dims, Tensor

_MOST_INDEX = (1 << 63) - 1
_PART = 1 << 16  # elements that are drawn at a time
Draw = Callable[..., Array]
"""(tensor, what its integers must be below) -> its value in one trial."""


def declared(*roots: Term) -> dict[str, Tensor]:
    """The tensors that the terms read. Raises BadInput when two of one name differ."""
    found: dict[str, Tensor] = {}
    for leaf in tensors(*roots):
        tensor = leaf.attributes[0]
        assert isinstance(tensor, Tensor)
        known = found.setdefault(tensor.name, tensor)
        if known != tensor:
            raise BadInput(f"a check requires both programs to declare {tensor.name} alike, got {known} and {tensor}")
    return found


def is_real(*roots: Term) -> bool:
    """Whether floats occur anywhere."""
    return any(dtype in REALS for term in postorder(*roots) for dtype in dtypes(term.type))


def _stream(seed: int, salt: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, salt, zlib.crc32(name.encode())])


def draw_integers(tensor: Tensor, limit: int | Array | None = None, *, seed: int) -> Array:
    """Integers over the full range of the dtype, or valid indices below a limit."""
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
    """A value of a tensor in which elements that have a limit are below it, and others as without one."""
    drawn: Array = draw(tensor, limit)
    if not isinstance(limit, np.ndarray) or limit.all():
        return drawn
    return np.where(limit > 0, drawn, draw(tensor))


def draw_residues(tensor: Tensor, limit: int | Array | None = None, *, seed: int, p: int) -> Array:
    """Residues modulo p, as signed representatives, for floats; integers for the rest."""
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
    """Small numbers in which order shows: floats are multiples of 1/64, integers are whole.

    Of every four turns one has numbers near one centre, so that all are below a threshold, or above it; one a centre
    for each index of some axis, so that a whole window is below 0 beside others; one constants of the program, and what
    is beside them; and one a number far above all others, at another place each time. Every second time the first has
    some tensors beyond a constant and others about 0, and the second has parts of each so: what a threshold lets
    through is seen where what follows does not cut it off again. Every fourth time, instead, each tensor is drawn in a
    way of its own, then all are few of -1, 0 and 1, in which sums are exactly 0 at any depth, and then integers are of
    their full range, as they are once more of every sixteen, so that a whole window wraps; and once some integers are
    the least and the most there are. `weights` are small where sums of products with them are long, so that what a
    network computes stays where it is compared, whatever its depth.
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
"""Of so many turns those in which some integers are the least and the most there are, each tensor is drawn in its own
way, all are -1, 0 and 1, integers are any, those of few bits one after the other.
"""


def _next(tensor: Tensor, rng: np.random.Generator, times: int) -> Array:
    """The integers of a dtype that follow those of as many times before, each at some place."""
    size, least = tensor.dims.product(), limits(tensor.dtype)[0]
    some = (least + np.arange(times * size, (times + 1) * size)).astype(np.dtype(tensor.dtype))
    return rng.permutation(some).reshape(tensor.dims)


def _any(tensor: Tensor, rng: np.random.Generator, seed: int, among: Sequence[Fraction | float]) -> Array:
    """Integers of their full range: each on its own, one for each index of some axis, or one throughout or in a part,
    with others about it; half of those wrap when they are multiplied with a constant.
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
    """With some integers that are the least or the most of their dtype, or beside: one of them may be all that wraps.
    With a stream that is not the tensor's own, tensors of the same dims have them at the same places. Every second time
    they are one number in a part, so that a whole window wraps.
    """
    least, most = limits(tensor.dtype)
    ends = np.array([least, least, least + 1, most - 1, most, most], drawn.dtype)
    if rng.random() < 0.5:
        return np.where(_one_side(tensor.dims, rng), _one_of(ends, rng), drawn)
    return np.where(rng.random(tensor.dims) < _SOME, _some_of(ends, tensor.dims, rng), drawn)


_SOME = 0.25  # elements
_LARGE = 1 << 20
_LED = 0.5  # centres
_AWAY = 0.4  # of those of integers


def further(turn: int) -> int:
    """A turn for each that comes after those which suffice elsewhere: every second one is of few numbers, or of any."""
    return turn if turn % 2 == 0 else turn * _PERIOD + (_FULL[-1] if turn % 4 == 1 else _FEW)


def held(dtype: str) -> tuple[int, int]:
    """The least and the largest integer of a dtype that are float64s too."""
    least, most = limits(dtype)
    return least, most if most < 1 << 53 else most - (most >> 53)


def _weights(dims: Dims, rng: np.random.Generator, turn: int) -> Array:
    length = dims.product() / max(dims)  # of the sums, where the longest axis is that of the results
    if turn % _PERIOD == _FEW:
        return _signs(dims, rng, min(0.5, _TERMS / length)).astype(np.float32)
    scale = 2.0 ** round(1 - math.log2(length) / 2)
    most = 2 if _is_coarse(turn) else 127
    step = np.float32(scale / (2 if _is_coarse(turn) else 64))
    return np.asarray(rng.integers(-most, most + 1, dims, np.int8) * step)


_TERMS = 3
"""Of how many numbers a sum of products with few weights is: as seldom more as that they do not grow."""


def _signs(dims: Sequence[int], rng: np.random.Generator, share: float) -> Array:
    """-1 or 1 in a share of the elements, and 0."""
    return np.asarray((rng.random(dims) < share) * np.where(rng.random(dims) < 0.5, -1.0, 1.0))


def _is_coarse(turn: int) -> bool:
    """Whether numbers are halves or quarters, and few: some are equal, some sums 0, some products halves of levels."""
    return turn // 4 % 2 == 1 and turn % 4 < 2


_CENTRES = (-6.0, -2.0, 0.0, 0.0, 3.0)
_BESIDE = (0.0, 0.0, 1 / 64, -1 / 64, 0.5, -0.5, 1.0, -1.0)
"""Where a threshold that is a little off shows: at the constant itself, and beside it."""
_BEYOND = 5.0
"""How far from a constant a whole window is on one side of it, where what it is multiplied with is calm: about 0."""
_SCALED = 8.0
"""By what a number is beyond a constant even where it is multiplied with a fraction first."""
_PAIRED, _LARGEST_LED = 24, 1e10
_PEAK = 50.0
_FEW_VALUES = ("int8", "uint8")
"""So few that each is drawn: one of them may be all that a sum wraps for."""


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
        if kind == 0:  # which tensors are far is another choice each time
            return np.asarray(far if zlib.crc32(tensor.name.encode(), seed) >> times // 2 % 32 & 1 else calm)
        return np.where(_one_side(dims, rng), far, calm)
    if kind == 0:
        # 0 comes first: of a large network that turn is the only one, if all is reached
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
    """About one centre."""
    if tensor.dtype not in REALS and rng.random() < _AWAY:  # all beyond whatever is added
        away = _one_of(limits(tensor.dtype), rng) // 4
        return normal + max(-_LARGE, min(away, _LARGE))
    return normal / _one_of((1, 2, 4), rng) + _centre((*_CENTRES, *constants), led, rng)


def _centre(constants: Sequence[float] | Array, led: Array, rng: np.random.Generator) -> Any:
    """One that is compared with what is computed of numbers about it: as it is, or where that leads to a constant."""
    return _one_of(led if led.size and rng.random() < _LED else constants, rng)


def _one_of(numbers: Sequence[float] | Array, rng: np.random.Generator) -> Any:
    """As `rng.choice` has it, which takes five times as long."""
    return numbers[int(rng.integers(0, len(numbers)))]


def _some_of(numbers: Sequence[float] | Array, dims: Sequence[int], rng: np.random.Generator) -> Array:
    return np.asarray(numbers)[rng.integers(0, len(numbers), dims)]


@lru_cache(maxsize=8)
def _known(among: Sequence[Fraction | float]) -> tuple[Array, Array]:
    """Constants, 0 first, and what they lead to."""
    constants = np.array([0.0, *map(float, among)])
    return constants, _led(constants)


def _led(constants: Array) -> Array:
    """What is a constant of a program once another one was multiplied with it or added to it, or lies beyond all."""
    some = constants[:_PAIRED]
    divisors = some[some != 0]
    found = np.concatenate([np.divide.outer(some, divisors), np.subtract.outer(some, divisors)], axis=None)
    return np.concatenate([found[np.abs(found) < _LARGEST_LED], _SCALED * constants])


def _own_way(tensor: Tensor, normal: Array, rng: np.random.Generator, constants: Array) -> Array:
    """About 0; whole; few; far in a part, at the bounds of integers too; one number for each index, or throughout."""
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
    """Dims that are 1 but for some axis that has several elements."""
    wide = [axis for axis, size in enumerate(dims) if size > 1]
    axis = _one_of(wide, rng) if wide else 0
    return [size if i == axis else 1 for i, size in enumerate(dims)]


def _one_side(dims: Sequence[int], rng: np.random.Generator) -> Array:
    """Where some axis, cut in two, is on one side of the cut."""
    line = _along_one_axis(dims, rng)
    size = math.prod(line)
    before = np.arange(size).reshape(line) < rng.integers(1, max(2, size))
    return np.asarray(before if rng.random() < 0.5 else ~before)


_WRAPS = tuple(dtype for dtype in WHOLE if dtype not in ("int64", "uint64"))
_LONG = 100
"""What a text is shorter than that names a few numbers: others are matrices."""


def constants_of(*roots: Term) -> list[Fraction]:
    """The numbers with which something is compared, to which it is cut, or beyond which a cast wraps. Sums of floats
    with large ones would hide others.
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
    """Numbers at which what is left of a division by a constant is one of a few: multiples of it, and other constants
    beside those. A rest is the same there as of a small number, and all else is not.
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
    return parse_compute(str(term.attributes[0]))[0].name == "mod"


def draw_points(
    tensor: Tensor, limit: int | Array | None = None, *, seed: int, turn: int, points: Sequence[float]
) -> Array:
    """Some of these numbers, others each time, as far as the dtype holds them; half of them half above."""
    if tensor.dtype == "bool" or limit is not None:
        return draw_integers(tensor, limit, seed=seed + turn)
    rng, size = _stream(seed, 6, tensor.name), tensor.dims.product()
    order = np.asarray(points)[rng.permutation(len(points))]
    found = order[(turn * size + np.arange(size)) % len(order)].reshape(tensor.dims)
    if tensor.dtype in REALS:
        return np.asarray(found + _stream(seed + turn, 7, tensor.name).integers(0, 2, tensor.dims) / 2)
    return np.asarray(np.clip(found, *held(tensor.dtype)).astype(tensor.dtype))


def _may_wrap(term: Term) -> bool:
    """Whether a cast to integers is of others than those that are integers of it too."""
    least, most = limits(term.access.dtype)
    given = term.children[0].access.dtype
    if given not in WHOLE:
        return given in REALS
    low, high = limits(given)
    return low < least or most < high


def draw_reals(tensor: Tensor, limit: int | Array | None = None, *, seed: int) -> Array:
    """Normal values for floats; integers for the rest."""
    if tensor.dtype not in REALS:
        return draw_integers(tensor, limit, seed=seed)
    return _stream(seed, 1, tensor.name).standard_normal(tensor.dims).astype(tensor.dtype)
