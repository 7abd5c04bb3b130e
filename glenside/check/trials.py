"""Selects the rounds of a check: the arithmetic of each, how its inputs are drawn, and how many rounds there are."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from glenside.check.indices import Pick, picks
from glenside.check.input_generators import (
    Draw,
    constants_of,
    declared,
    draw_integers,
    draw_near,
    draw_points,
    draw_residues,
    drawn_within,
    is_real,
    periods_of,
)
from glenside.check.order_dependence import depends_on_order, dtypes, has_order
from glenside.ir.dtypes import REALS
from glenside.ir.operand import Array
from glenside.ir.operator import Category
from glenside.ir.operators.compute import compute, compute_of
from glenside.ir.operators.opaque import name_of
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.ir.threads import in_parallel
from glenside.ir.types import AccessType, Tensor
from glenside.semantics import Arithmetic, Native
from glenside.semantics.ordered_field import OrderedField
from glenside.semantics.prime_field import PRIMES, PrimeField

_ELEMENTS = 1 << 20
"""The number of evaluated elements, over all rounds, after which no more rounds are required."""
_CALL = 64  # elements whose evaluation costs as much as the overhead of a term
_MORE = 4  # least number of further rounds if branch outcomes are missing
_PATIENCE = 3  # least number of consecutive further rounds that reach little, before the check ends
_LITTLE = 15 / 16  # share of missing outcomes still missing after a round that reaches little
_AGAIN = 8  # factor on the number of rounds if results repeat
_LONGEST = 1024
_WANTED = 8  # rounds in which each branch outcome is wanted: in a single one, later terms may hide it
_CALM = 2.0**20
"""Products of constants up to this magnitude are exact floats, with a fraction."""
OWN = 1 << 20 | 1
"""The number of the first round in which constants have their own values, as in all rounds of higher numbers.

No other round has so high a number. The numbers of this round are about several centres.
"""


_EVERY, _AT_PERIODS = 8, 2
"""The period, and the round of each period whose inputs are near multiples of divisors, in programs with remainders."""

_COMPARED = 400  # least number of result elements to compare over all rounds
_DECIDED = 2000  # the same for results that are only outcomes of comparisons
_TURNS = 128  # least number of rounds, for differences that need values of several tensors at once
_MOST_TURNS = 400
_INDICES = 16  # least number of rounds with newly drawn indices


def _turns(result: Term, *others: Term) -> int:
    """Returns the number of rounds in which each element of an item is likely to be the largest at least once.

    Terms with many items need few rounds. There are also enough rounds to compare enough elements of the result.
    """
    roots = (result, *others)
    decided = is_real(*roots) and not {*dtypes(result.type)} & {*REALS}
    enough = _DECIDED if decided else _COMPARED
    few = enough / max(1, result.access.size) if isinstance(result.type, AccessType) else 0
    rarest = max((_choices(t) for t in postorder(*roots) if depends_on_order(t) and t.operator is compute), default=0)
    rarest = max([rarest, *map(_picked, picks(*roots))])
    return min(_MOST_TURNS, max(_TURNS, math.ceil(8 * rarest), math.ceil(few)))


def _picked(pick: Pick) -> float:
    """Returns the ratio of selectable indices of the axes to drawn indices."""
    return max(pick.sizes, default=0) * len(pick.sizes) / max(1, pick.indices.access.size)


def _choices(term: Term) -> float:
    """Returns the ratio of elements per maximum to the number of maxima of a compute term."""
    category = compute_of(term)[0].category
    a = term.children[0].access
    if category is Category.POINTWISE or not a.size:
        return 0
    of_one = a.item[0] if category is Category.FOLD else a.item.product()
    return of_one / (a.size / of_one)


class _Numbers(Native):
    """Native arithmetic of numpy that records which functions a pseudo-random function replaced."""

    @cached_property
    def replaced(self) -> set[str]:
        return set()

    def opaque(self, key: str, operands: Sequence[Array], dims: Sequence[int], dtype: str) -> Array:
        self.replaced.add(name_of(key))
        return super().opaque(key, operands, dims, dtype)

    def opaque_pointwise(self, key: str, a: Array, dtype: str, places: Array | None = None) -> Array:
        self.replaced.add(name_of(key))
        return super().opaque_pointwise(key, a, dtype, places)


class Field(_Numbers, PrimeField):
    """A prime field that records the functions that it replaced, on reals too, and the residues that it drew."""

    @cached_property
    def _drawn(self) -> WeakValueDictionary[str, Array]:
        return WeakValueDictionary()

    def draw(self, tensor: Tensor, limit: int | Array | None = None, *, seed: int) -> Array:
        """Draws a tensor with `draw_residues`."""
        drawn = draw_residues(tensor, limit, seed=seed, p=self.p)
        if tensor.dtype in REALS:
            self._drawn[tensor.name] = drawn
        return drawn

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        return array if self._drawn.get(name) is array else super().encode(name, array, dtype)

    def _scatter(self, function: str, x: Array) -> Array:
        self.replaced.add(function)
        return super()._scatter(function, x)


class Turn(NamedTuple):
    """A round: the numbers that record replaced functions, the arithmetic, and how tensors are drawn."""

    numbers: _Numbers
    arithmetic: Arithmetic
    draw: Draw

    def values(self, tensors: Mapping[str, Tensor], limits: Mapping[str, int | Array]) -> dict[str, Array]:
        """Draws a value of each tensor, each from a random stream of its own.

        limits  exclusive upper bounds of integers (see `index_limits`)
        """
        drawn: dict[str, Array] = {}

        def draw(name: str, _: None = None) -> None:
            drawn[name] = drawn_within(self.draw, tensors[name], limits.get(name))

        if sum(tensor.dims.product() for tensor in tensors.values()) < _ELEMENTS:
            for name in tensors:
                draw(name)
        else:
            in_parallel(draw, tensors, lambda _: None)
        return {name: drawn[name] for name in tensors}


class Trials:
    """The rounds of a check: two prime fields, or where branch outcomes depend on order, ordered numbers.

    Ordered numbers are drawn in as many rounds as are cheap. Integers are drawn over their full range and small, since
    wrapping hides order and parity.

    count    the least number of rounds
    longest  the least number of rounds if results repeat
    more     the most further rounds, for branch outcomes that no round reached
    aims     the most attempts of directed input generation: searches and rounds together
    wanted   the number of rounds in which each branch outcome is wanted
    """

    def __init__(self, seed: int, original: Program, *roots: Term) -> None:
        self.seed, self.weights = seed, frozenset(original.constants_declared)
        self.among = tuple(map(float, constants_of(*roots)))
        self.calm = tuple(c for c in self.among if abs(c) <= _CALM)
        self.periods = periods_of(*roots)
        self.names = [*declared(*roots)]
        self.ordered, self.real = has_order(*roots), is_real(*roots)
        self.fields = [Field(p) for p in PRIMES]
        size = sum(_CALL + (t.access.size if isinstance(t.type, AccessType) else 0) for t in postorder(*roots))
        self.count = max(1, min(_turns(*roots), _ELEMENTS // max(1, size)))
        self.more = max(_MORE, self.count // 2)
        self.patience, self.in_vain, self.missing = max(_PATIENCE, self.more // 4), 0, math.inf
        self.longest = min(_LONGEST, _AGAIN * self.count)
        self.aims = self.count // 2 if self.ordered or not self.real else 0
        self.wanted = _WANTED if self.aims else 1
        if not self.real:
            self.count, self.longest = self.count + 1, self.longest + 1
        elif not self.ordered:
            picked = max(map(_picked, picks(*roots)), default=0.0)
            drawn = _INDICES + math.ceil(8 * picked) if picked else 0
            self.count = self.longest = max(len(self.fields), min(self.count, drawn))
            self.more = 0

    def go_on(self, missing: int) -> bool:
        """Decides on a further round, and counts it: there is none after several rounds that reached little.

        missing  the number of branch outcomes that no round reached
        """
        self.in_vain = self.in_vain + 1 if missing > _LITTLE * self.missing else 0
        self.missing = missing
        self.more -= 1
        return bool(missing) and self.more >= 0 and self.in_vain < self.patience

    def at(self, turn: int) -> Turn:
        """Returns the round of a number."""
        if not self.real:
            numbers = _Numbers()
            draw = partial(self._near, turn=turn - 1) if turn else partial(draw_integers, seed=self.seed)
            return Turn(numbers, numbers, draw)
        field = self.fields[turn % len(self.fields)]
        if not self.ordered:
            return Turn(field, field, partial(field.draw, seed=self.seed + turn // len(self.fields)))
        return Turn(field, OrderedField(field), partial(self._near, turn=turn))

    def _near(self, tensor: Tensor, limit: int | Array | None = None, *, turn: int) -> Array:
        """Draws numbers near the program's constants.

        In programs with floats, only one tensor of each round is near large constants. The product of two such numbers
        is so large that its position on the real line is rounded to hundreds, and so are sums in which such products
        cancel.
        """
        far = not self.real or tensor.name == self.names[zlib.crc32(b"%d" % turn) % len(self.names)]
        if far and self.periods and turn % _EVERY == _AT_PERIODS and tensor.name not in self.weights:
            return draw_points(tensor, limit, seed=self.seed, turn=turn // _EVERY, points=self.periods)
        among = self.among if far else self.calm
        return draw_near(tensor, limit, seed=self.seed, turn=turn, among=among, weights=self.weights)
