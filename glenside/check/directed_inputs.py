"""Generates directed inputs: moves a tensor along a line until a primitive reaches a wanted branch outcome.

The deciding value (an operand, or the difference of two) must be affine along the line. Two sums of products of drawn
numbers are seldom equal, and a third of one is seldom a half: there, programs may differ that agree elsewhere. In a
prime field the point is one quotient, and it is reached exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from glenside.check.branch_outcomes import CAST_AIMS, WATCHED, Aim
from glenside.check.branches import Missing, function_of
from glenside.check.input_generators import held
from glenside.ir.dtypes import FLOATS, WHOLE
from glenside.ir.operand import Array
from glenside.ir.term import Term, postorder
from glenside.ir.types import Tensor
from glenside.semantics import Arithmetic, Native
from glenside.semantics.interpreter import evaluate
from glenside.semantics.ordered_field import OrderedField

_STEP = 1 / 64
"""Distance along the line of the two points that test whether the deciding value is affine.

It is so small that other branch outcomes stay as they are.
"""
_NEAREST = 3  # tensors
_MOVED = (*FLOATS, *WHOLE)
_BETWEEN = ("min", "max", "lt", "le", "gt", "ge")
_TRIED = 16  # elements
_WIDTHS, _ALONE = (1 / 2, 1 / 2, 1 / 8, 1 / 32), (0, 0, -1, 1)
_FAR, _CLOSE = 2.0**32, 2.0**-10


def near(goal: Missing, movable: Container[str]) -> list[Tensor]:
    """Returns movable tensors with which a branch outcome may be reached, nearest in the graph first."""
    return _nearest(goal.term, movable) if _aim(goal) is not None else []


def is_between(goal: Missing) -> bool:
    """True if the outcome is one of a minimum, a maximum or an ordering of two numbers."""
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
    """Returns the tensor moved along a line through its value, so that one element reaches an outcome.

    Returns None if the deciding value is not affine along that line.
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
    if not is_near or np.abs(found.real).max() > _FAR:  # rounding may hide the outcome
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
    """Moves a tensor of integers, which wrap: solves slope * t = goal - first modulo a power of two.

    So every goal is reached for which the equation has a solution, such as 77 as three times a number.
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
        for found in (t, t - turns):  # the tensor's dtype may hold only one of them
            if (met := decides(found)) is not None and met.flat[element] == wanted:
                return along(found)
    return None


def _integers(operands: Sequence[Array]) -> Array | None:
    """Returns the deciding value where it is of integers, wrapped to the widest of their dtypes; else None."""
    if not operands or any(a.dtype.kind not in "iu" for a in operands):
        return None
    wide = max((a.dtype for a in operands), key=lambda dtype: dtype.itemsize)
    each = [a.astype(f"int{8 * wide.itemsize}") for a in np.broadcast_arrays(*operands)]
    return np.asarray(each[0] - each[1] if len(each) == 2 else each[0])


def beside(
    goal: Missing, tensor: Tensor, arithmetic: Arithmetic, values: Mapping[str, Array], rng: np.random.Generator
) -> Array | None:
    """Returns a tensor near a constant value with which two operands are equal.

    Some elements are below that value and some above, or all on one side. Returns None if the difference of the
    operands is not affine in a common change of all elements.
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
    """A line of tensors: the tensor at t, the deciding value at its start, the slope per step, where it is affine."""

    along: Callable[[Array], Array]
    first: Array
    slope: Array
    affine: Array

    def nearest(self, goals: Array, rng: np.random.Generator | None = None) -> Sequence[int]:
        """Returns the index of the affine element nearest to its goal; with `rng`, of a random affine element."""
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
    """Returns the way from a start along a line; None if no element is affine along it."""
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
    """Returns the deciding value of a term's primitive: its operand, or the difference of its two operands."""
    operands = _operands(goal, arithmetic, values)
    if not operands:
        return None
    whole = operands[0].dtype.kind != "c"
    each = [a.astype(np.float64) for a in operands] if whole else operands
    numbers = Native() if whole else arithmetic
    return np.asarray(numbers.subtract(*np.broadcast_arrays(*each)) if len(each) == 2 else each[0])


def _operands(goal: Missing, arithmetic: Arithmetic, values: Mapping[str, Array]) -> list[Array]:
    """Returns the operands of the first call of a term's primitive."""
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
