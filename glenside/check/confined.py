"""Generates inputs whose computed indices are within the axes that they select from.

If drawn numbers lead outside, the tensors below the indices are moved into intervals. The search starts at a point at
which all indices are inside. The intervals of all tensors grow at once, then each alone, as long as numbers at their
ends and between keep all indices inside. A tensor that does not matter stays as it is drawn. For i + j, one interval is
wide where the other is narrow, so several boxes of intervals are found and used in rotation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from glenside.check.indices import Pick
from glenside.check.input_generators import constants_of, declared
from glenside.ir.dtypes import REALS, WHOLE, limits
from glenside.ir.errors import OutOfBounds
from glenside.ir.operand import Array
from glenside.ir.operators.casting import cast
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType, Tensor
from glenside.semantics import Arithmetic
from glenside.semantics.interpreter import evaluate

_ELEMENTS = 1 << 26  # most elements that the search evaluates
_MOST_TRIES = 300
_LEAST_TRIES = 24
_FINEST = 1 / 8  # precision of the ends of an interval of floats
_WIDEST = 1 << 20
_RETRIES, _SEARCHES, _PROBES = 4, 6, 3

Interval = tuple[float, float]
Values = dict[str, Array]


class Box(NamedTuple):
    """An interval for each of some tensors, and a number that is in all intervals."""

    centre: float
    intervals: Mapping[str, Interval]

    def shrunk(self, share: float, whole: bool) -> Box:
        """Returns the box with intervals of a share of their width, about the centre."""
        step = 1.0 if whole else _FINEST

        def end(at: float) -> float:
            return at if share == 1 else self.centre + int((at - self.centre) * share / step) * step

        return Box(self.centre, {name: (end(low), end(high)) for name, (low, high) in self.intervals.items()})

    def point(self, names: Iterable[str]) -> Box:
        """Returns the box of the centre alone, for these tensors."""
        return Box(self.centre, dict.fromkeys(names, (self.centre, self.centre)))


class Confined:
    """The search for tensor values with which the indices of some picks are within their axes.

    tensors  the tensors below computed indices, by name: no others are changed
    boxes    boxes of intervals, each found from drawn numbers that led outside
    """

    def __init__(self, found: Sequence[Pick]) -> None:
        computed = [pick.indices for pick in found if _is_computed(pick.indices)]
        self._picks = found if computed else ()
        self._roots = list(dict.fromkeys(pick.indices for pick in self._picks))
        self.tensors = {n: t for n, t in declared(*computed).items() if t.dtype != "bool"}
        self.among = [*map(float, constants_of(*self._roots))] if computed else []
        self.boxes: list[Box] = []
        self._uses = 0
        size = sum(t.access.size for t in postorder(*self._roots) if isinstance(t.type, AccessType))
        self.tries = max(_LEAST_TRIES, min(_MOST_TRIES, _ELEMENTS // max(1, size)))

    @property
    def bounded(self) -> set[str]:
        """The names of the tensors for which some box has an interval."""
        return {name for box in self.boxes for name in box.intervals}

    def settle(
        self, values: Mapping[str, Array], arithmetic: Arithmetic, fixed: Collection[str] = (), *, whole: bool = False
    ) -> Values | None:
        """Returns the values, moved where necessary so that all indices are within; None if no such values are found.

        fixed  names of tensors that are not moved
        whole  move floats to whole numbers only
        """
        if not self.tensors or self.is_within(values, arithmetic):
            return dict(values)
        if len(self.boxes) < _SEARCHES:
            self.boxes.append(_Search(self, values, arithmetic, fixed, whole).found())
        self._uses += 1
        box = self.boxes[-1 if self._uses <= _SEARCHES else self._uses % _SEARCHES]
        for tried in (*(box.shrunk(2.0**-n, whole) for n in range(_RETRIES)), box.point(self.tensors)):
            held = {n: _of_dtype(self.tensors[n], at) for n, at in tried.intervals.items() if n not in fixed}
            moved = {n: _folded(a, held[n]) if n in held else a for n, a in values.items()}
            if self.is_within(moved, arithmetic):
                return moved
        return None

    def is_within(self, values: Mapping[str, Array], arithmetic: Arithmetic) -> bool:
        """True if all indices are within their axes."""
        try:
            found = dict(zip(self._roots, evaluate(self._roots, values, arithmetic), strict=True))
        except OutOfBounds:
            return False
        return not any(pick.outside(found[pick.indices]).any() for pick in self._picks)


class _Search:
    """The search for a box of intervals, from one set of drawn values."""

    def __init__(
        self,
        confined: Confined,
        values: Mapping[str, Array],
        arithmetic: Arithmetic,
        fixed: Collection[str],
        whole: bool,
    ) -> None:
        self._confined, self._values, self._arithmetic, self._whole = confined, values, arithmetic, whole
        self._names = [n for n in confined.tensors if n in values and n not in fixed]
        self._left = confined.tries
        self._rng = np.random.default_rng(len(confined.boxes))
        self._at: dict[str, Interval] = {}
        self._ends: Array = np.zeros(0, np.int64)

    def found(self) -> Box:
        """Returns a box about a centre, for the tensors that matter; their intervals grow in random order."""
        names = [self._names[i] for i in self._rng.permutation(len(self._names))]
        centre = next((c for c in self._centres() if self._holds(dict.fromkeys(names, (c, c)))), None)
        if centre is None:
            return Box(0.0, dict.fromkeys(names, (0.0, 0.0)))
        self._at = dict.fromkeys(names, (centre, centre))
        self._free(names)
        step = _FINEST
        while self._at and self._grown({n: (low - step, high + step) for n, (low, high) in self._at.items()}):
            step *= 2
        for at in self._rng.permutation(2 * len(self._at)):
            self._grow([*self._at][at // 2], int(at % 2))
        return Box(centre, {n: _of_dtype(self._confined.tensors[n], at) for n, at in self._at.items()})

    def _centres(self) -> Sequence[float]:
        powers = [sign * 2.0**power for power in range(-1, 7) for sign in (1, -1)]
        beside = [sign * c + off for c in self._confined.among for sign in (1, -1) for off in (0, 1, -1)]
        return [
            c for c in dict.fromkeys((0.0, *powers, *beside)) if abs(c) <= _WIDEST and (c == int(c) or not self._whole)
        ]

    def _free(self, names: Sequence[str]) -> None:
        """Removes the intervals of tensors that do not matter, by bisection."""
        if not names:
            return
        rest = {n: interval for n, interval in self._at.items() if n not in names}
        if self._holds(rest):
            self._at = rest
        elif len(names) > 1:
            self._free(names[: len(names) // 2])
            self._free(names[len(names) // 2 :])

    def _grow(self, name: str, side: int) -> None:
        """Moves one end of an interval as far as indices stay within, in growing and then shrinking steps."""
        finest = 1.0 if self._whole or self._confined.tensors[name].dtype not in REALS else _FINEST
        step, away = 1.0, 1 if side else -1
        faster = True
        while step >= finest:
            ends = [*self._at[name]]
            ends[side] += away * step
            grown = self._grown({**self._at, name: (ends[0], ends[1])})
            faster &= grown
            step *= 2.0 if faster else 0.5

    def _grown(self, intervals: Mapping[str, Interval]) -> bool:
        """Sets these intervals if all indices are within, at the ends and between; returns whether it did."""
        widest = max(high - low for low, high in intervals.values())
        if widest > _WIDEST or self._left <= 0 or not all(self._holds(intervals, probe) for probe in range(_PROBES)):
            return False
        self._at = dict(intervals)
        return True

    def _holds(self, intervals: Mapping[str, Interval], probe: int = 0) -> bool:
        """True if all indices are within.

        probe  0: each tensor at a random end of its interval; 1: at the opposite ends; 2: at random numbers
        """
        self._left -= 1
        ends = self._rng.integers(0, 2, len(intervals)) if probe == 0 else 1 - self._ends
        self._ends = ends
        ways = [2] * len(intervals) if probe == 2 else [int(end) for end in ends]
        sampled = {n: self._sample(n, at, way) for way, (n, at) in zip(ways, intervals.items(), strict=True)}
        values = {**self._values, **sampled}
        return self._confined.is_within(values, self._arithmetic)

    def _sample(self, name: str, interval: Interval, way: int) -> Array:
        """Returns numbers of an interval: its low end (way 0), its high end (1), or a mixture with others (2)."""
        given, tensor = self._values[name], self._confined.tensors[name]
        low, high = _of_dtype(tensor, interval)
        dims = given.shape
        steps = 1.0 if self._whole or tensor.dtype not in REALS else 1 / _FINEST
        between = low + self._rng.integers(0, int((high - low) * steps) + 1, dims) / steps
        chosen = np.full(dims, way) if way < 2 else self._rng.integers(0, 3, dims)
        return _like(given, np.choose(chosen, [np.full(dims, low), np.full(dims, high), between]))


def _of_dtype(tensor: Tensor, interval: Interval) -> Interval:
    """Returns the part of an interval that a tensor's dtype holds."""
    if tensor.dtype in REALS:
        return interval
    least, most = map(float, limits(tensor.dtype))
    high = min(max(math.floor(interval[1]), least), most)
    return min(max(math.ceil(interval[0]), least), high), high


def _like(given: Array, real: Array) -> Array:
    """Returns numbers in the dtype of others; of ordered numbers, with their residues."""
    return real + 1j * given.imag if given.dtype.kind == "c" else real.astype(given.dtype)


def _folded(a: Array, interval: Interval) -> Array:
    """Returns the numbers with those outside an interval moved into it, modulo its width."""
    low, high = interval
    inside = (a.real >= low) & (a.real <= high)
    turned: Array
    if a.dtype.kind in "iu":
        least, count = int(low), int(high) - int(low) + 1
        turned = (a.astype(np.int64) % count - least % count) % count + least
        return np.where(inside, a, turned.astype(a.dtype))
    turned = low + np.mod(a.real - low, high - low) if high > low else np.full(a.shape, low)
    return _like(a, np.where(inside, a.real, turned))


def _is_computed(indices: Term) -> bool:
    """True if indices are computed, rather than given integers that are moved or cast between integers."""
    return any(
        term.operator.name != "access-tensor"
        and not (term.index_map is not None and term.children)
        and not (term.operator is cast and term.children[0].access.dtype in WHOLE)
        for term in postorder(indices)
    )
