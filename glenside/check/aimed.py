"""Numbers aimed at sides that none of those drawn took: where what decides is affine along a tensor, that is moved on
a line to where it decides otherwise, or between.

Two sums of products of drawn numbers are seldom the same, and a third of one is seldom a half: at such places programs
differ that agree elsewhere. In a field the place is one quotient, and it is met exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from glenside.check.branches import Missing, function_of
from glenside.check.sides import CAST_AIMS, WATCHED, Aim
from glenside.check.stimuli import held
from glenside.ir.dtypes import FLOATS, WHOLE
from glenside.ir.operand import Array
from glenside.ir.term import Term, postorder
from glenside.ir.types import Tensor
from glenside.semantics import Arithmetic, Native
from glenside.semantics.interpreter import evaluate
from glenside.semantics.ordered_field import OrderedField

_STEP = 1 / 64
"""How far along the line it is looked whether what decides is affine: so near that other things decide as before."""
_NEAREST = 3  # tensors
_MOVED = (*FLOATS, *WHOLE)
_BETWEEN = ("min", "max", "lt", "le", "gt", "ge")
_TRIED = 16  # elements
_WIDTHS, _ALONE = (1 / 2, 1 / 2, 1 / 8, 1 / 32), (0, 0, -1, 1)
_FAR, _CLOSE = 2.0**32, 2.0**-10


def near(goal: Missing, movable: Container[str]) -> list[Tensor]:
    """Tensors to move so that a side is taken, of those that may be: first those that the fewest terms are between."""
    return _nearest(goal.term, movable) if _aim(goal) is not None else []


def is_between(goal: Missing) -> bool:
    """Whether a side is one of two numbers, or of how they compare."""
    return goal.primitive in _BETWEEN


def _aim(goal: Missing) -> Aim | None:
    return (CAST_AIMS if goal.primitive == "cast" else WATCHED[goal.primitive].aims)[goal.side]


def _nearest(term: Term, movable: Container[str]) -> list[Tensor]:
    found: dict[Tensor, None] = {}
    level = [term]
    seen = {term}
    while level:
        for leaf in level:
            if leaf.operator.name == "access-tensor" and isinstance(tensor := leaf.attributes[0], Tensor):
                if tensor.dtype in _MOVED and tensor.name in movable and tensor.dims.product():
                    found[tensor] = None
        level = list(dict.fromkeys(child for parent in level for child in parent.children if child not in seen))
        seen.update(level)
    return list(found)[:_NEAREST]


def moved(
    goal: Missing, tensor: Tensor, arithmetic: Arithmetic, values: Mapping[str, Array], rng: np.random.Generator
) -> Array | None:
    """The value of a tensor along a line through what it is, at which one element takes a side. None where what decides
    is not affine along that line.
    """
    aim = _aim(goal)
    if aim is None:
        return None
    if tensor.dtype in WHOLE:
        return _integers_moved(goal, aim, tensor, arithmetic, values, rng)
    if not isinstance(arithmetic, OrderedField):
        return None
    start = arithmetic.encode("", values[tensor.name], tensor.dtype)
    way = _way(goal, tensor, arithmetic, values, start, rng.choice((-1.0, 1.0), tuple(tensor.dims)))
    if way is None:
        return None
    goals = aim(way.first.real)
    one = partial(_one, way.nearest(goals))
    rest = arithmetic.subtract(arithmetic.encode("", one(goals), "float64"), one(way.first))
    step = arithmetic.encode("", np.asarray(_STEP), "float64")
    found = way.along(arithmetic.multiply(arithmetic.divide(rest, one(way.slope)), step))
    met = _decides(goal, arithmetic, {**values, tensor.name: found})
    is_near = met is not None and bool(np.abs(one(met).real - one(goals)) < _CLOSE)
    if not is_near or np.abs(found.real).max() > _FAR:  # where rounding may hide on which side it is
        return None
    return found


def _integers_moved(
    goal: Missing,
    aim: Aim,
    tensor: Tensor,
    arithmetic: Arithmetic,
    values: Mapping[str, Array],
    rng: np.random.Generator,
) -> Array | None:
    """The same of integers, which wrap: slope * t = goal - first is solved modulo a power of two, so that 77 is met as
    three times a number too.
    """
    start, line = values[tensor.name], rng.choice((-1, 1), tuple(tensor.dims)).astype(np.uint64)

    def along(t: int) -> Array:
        return np.asarray(start + (np.uint64(t % (1 << 64)) * line).astype(start.dtype))

    def decides(t: int) -> Array | None:
        return _integers(_operands(goal, arithmetic, {**values, tensor.name: along(t)}))

    first, second, third = (decides(t) for t in range(3))
    if first is None or second is None or third is None:
        return None
    affine = np.flatnonzero((third - second == second - first) & (second != first))
    for element in rng.permutation(affine)[:_TRIED]:
        wanted = round(float(aim(first.flat[element].astype(np.float64))))
        modulus = 1 << 8 * first.itemsize
        slope = int((second - first).flat[element]) % modulus
        rest, shared = (wanted - int(first.flat[element])) % modulus, math.gcd(slope, modulus)
        if rest % shared:
            continue
        turns = modulus // shared
        t = rest // shared * pow(slope // shared, -1, turns) % turns
        for found in (t, t - turns):  # where only one of them is a number of the tensor
            if (met := decides(found)) is not None and met.flat[element] == wanted:
                return along(found)
    return None


def _integers(operands: Sequence[Array]) -> Array | None:
    """What a primitive decides by, where that is integers: modulo as many numbers as there are of them."""
    if not operands or any(a.dtype.kind not in "iu" for a in operands):
        return None
    wide = max((a.dtype for a in operands), key=lambda dtype: dtype.itemsize)
    each = [a.astype(f"int{8 * wide.itemsize}") for a in np.broadcast_arrays(*operands)]
    return np.asarray(each[0] - each[1] if len(each) == 2 else each[0])


def beside(
    goal: Missing, tensor: Tensor, arithmetic: Arithmetic, values: Mapping[str, Array], rng: np.random.Generator
) -> Array | None:
    """Numbers about one with which two operands are the same: some elements are below and some above, or all on one of
    the sides, and not by much. None where what decides is not affine as all grow.
    """
    if tensor.dtype in WHOLE:
        return _integers_beside(goal, tensor, arithmetic, values, rng)
    if not isinstance(arithmetic, OrderedField):
        return None
    start = rng.standard_normal()
    dims = tuple(tensor.dims)
    begin = arithmetic.encode("", np.full(dims, start), "float64")
    way = _way(goal, tensor, arithmetic, values, begin, np.ones(dims))
    if way is None:
        return None
    one = partial(_one, way.nearest(np.zeros(way.first.shape), rng))
    centre = start - float(one(way.first).real) / float(one(way.slope).real) * _STEP
    if not abs(centre) < _FAR:
        return None
    width, side = rng.choice(_WIDTHS), rng.choice(_ALONE)
    around = rng.standard_normal(dims) if side == 0 else side * np.abs(rng.standard_normal(dims))
    return np.asarray(np.rint((centre + width * around) / _STEP) * _STEP)


def _integers_beside(
    goal: Missing, tensor: Tensor, arithmetic: Arithmetic, values: Mapping[str, Array], rng: np.random.Generator
) -> Array | None:
    start, dims = int(rng.integers(8)), tuple(tensor.dims)
    found = [
        _decides(goal, arithmetic, {**values, tensor.name: np.full(dims, start + step, tensor.dtype)})
        for step in range(3)
    ]
    first, second, third = (None if each is None else each.real.astype(np.float64) for each in found)
    if first is None or second is None or third is None:
        return None
    affine = np.flatnonzero((third - second == second - first) & (second != first))
    if not affine.size:
        return None
    element = rng.choice(affine)
    centre = start - first.flat[element] / (second - first).flat[element]
    around = np.rint(centre + 2 * rng.standard_normal(dims) + rng.choice((-4, 0, 4)))
    return np.asarray(np.clip(around, *held(tensor.dtype)), tensor.dtype)


class _Way(NamedTuple):
    """Along a line: the tensor there, what decides at its start, how that grows in a step, and where it is affine."""

    along: Callable[[Array], Array]
    first: Array
    slope: Array
    affine: Array

    def nearest(self, goals: Array, rng: np.random.Generator | None = None) -> Sequence[int]:
        """The element that is at its goal soonest; any of those that get there, by chance."""
        distance = np.abs((goals - self.first.real) / np.where(self.affine, self.slope.real, 1))
        place = (
            np.argmin(np.where(self.affine, distance, np.inf))
            if rng is None
            else rng.choice(np.flatnonzero(self.affine))
        )
        return tuple(map(int, np.unravel_index(int(place), distance.shape)))


def _way(
    goal: Missing, tensor: Tensor, arithmetic: OrderedField, values: Mapping[str, Array], start: Array, line: Array
) -> _Way | None:
    """The way from a start along a line; None where nothing on it is affine."""
    direction = arithmetic.encode("", line, "float64")

    def along(t: Array) -> Array:
        return arithmetic.add(start, arithmetic.multiply(direction, t))

    def decides(at: float) -> Array | None:
        there = along(arithmetic.encode("", np.asarray(at), "float64"))
        return _decides(goal, arithmetic, {**values, tensor.name: there})

    first, second, third = (decides(at) for at in (0.0, _STEP, 2 * _STEP))
    if first is None or second is None or third is None or first.dtype.kind != "c":
        return None
    slope = arithmetic.subtract(second, first)
    affine = (arithmetic.subtract(third, second).imag == slope.imag) & (slope.imag != 0) & (slope.real != 0)
    return _Way(along, first, slope, affine) if affine.any() else None


def _one(index: Sequence[int], a: Array) -> Array:
    return np.asarray(a[tuple(index)])


def _decides(goal: Missing, arithmetic: Arithmetic, values: Mapping[str, Array]) -> Array | None:
    """What a primitive of a term decides by: its operand, or the difference of its two."""
    operands = _operands(goal, arithmetic, values)
    if not operands:
        return None
    whole = operands[0].dtype.kind != "c"
    each = [a.astype(np.float64) for a in operands] if whole else operands
    numbers = Native() if whole else arithmetic
    return np.asarray(numbers.subtract(*np.broadcast_arrays(*each)) if len(each) == 2 else each[0])


def _operands(goal: Missing, arithmetic: Arithmetic, values: Mapping[str, Array]) -> list[Array]:
    """What a primitive of a term is given first."""
    taken: list[Array] = []
    probe = OrderedField(arithmetic.field) if isinstance(arithmetic, OrderedField) else Native()
    probe.opaque_below = arithmetic.opaque_below
    here: list[Term | None] = [None]

    def seen(*operands: Array) -> None:
        if here[0] is goal.term and not taken:
            taken.extend(operands)

    if goal.primitive == "cast":
        cast = probe.cast

        def watched(a: Array, dtype: str) -> Array:
            seen(a)
            return cast(a, dtype)

        vars(probe)["cast"] = watched
    else:
        function = function_of(probe, goal.primitive)

        def run(*operands: Array) -> Array:
            seen(*operands)
            return function(*operands)

        probe.own = {**probe.own, goal.primitive: run}

    def begin(term: Term) -> None:
        here[0] = term

    terms = list(postorder(goal.term))
    evaluate(terms, values, probe, watch=lambda *_: None, begin=begin)
    return taken
