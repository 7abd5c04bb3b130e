"""The numbers of each trial of a check: in which arithmetic, how they are drawn, and how often."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from glenside.check.indices import Pick, picks
from glenside.check.order import depends_on_order, dtypes, has_order
from glenside.check.stimuli import (
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
from glenside.ir.dtypes import REALS
from glenside.ir.operand import Array
from glenside.ir.operator import Category
from glenside.ir.operators.compute import compute, parse_compute
from glenside.ir.operators.opaque import name_of
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.ir.threads import in_parallel
from glenside.ir.types import AccessType, Tensor
from glenside.semantics import Arithmetic, Native
from glenside.semantics.ordered_field import OrderedField
from glenside.semantics.prime_field import PRIMES, PrimeField

_ELEMENTS = 1 << 20
"""How many elements it takes to have drawn numbers often enough."""
_CALL = 64  # elements that take as long as it takes to evaluate a term of none
_MORE = 4  # times to draw anew, at least, where something was not reached
_PATIENCE = 3  # of them in a row that reach little, at least
_LITTLE = 15 / 16  # what is left then of what was not reached
_AGAIN = 8  # times as many numbers where results say little
_LONGEST = 1024
_WANTED = 8  # turns in which a side is taken, where there are so many: what follows may hide it in one
_CALM = 2.0**20
"""Of constants that are no larger the products are exact floats with a fraction."""
OWN = 1 << 20 | 1
"""The first turn in which constants have their own values, as they have in those after it: no other is so late, and its
numbers are about several centres.
"""


_EVERY, _AT_PERIODS = 8, 2
"""Of so many turns the one in which numbers are where rests of divisions repeat, in programs with any."""

_COMPARED = 400
_DECIDED = 2000  # of results that only say which numbers are the larger
_TURNS = 128  # for what several tensors must take at once to be seen
_MOST_TURNS = 400
_INDICES = 16  # turns, at least, in which indices are drawn anew


def _turns(result: Term, *others: Term) -> int:
    """How often numbers are to be drawn anew so that each element of an item is the largest in some turn: seldom,
    where there are many items; and so that enough numbers of the result are compared.
    """
    roots = (result, *others)
    decided = is_real(*roots) and not {*dtypes(result.type)} & {*REALS}
    enough = _DECIDED if decided else _COMPARED
    few = enough / max(1, result.access.size) if isinstance(result.type, AccessType) else 0
    rarest = max((_choices(t) for t in postorder(*roots) if depends_on_order(t) and t.operator is compute), default=0)
    rarest = max([rarest, *map(_picked, picks(*roots))])
    return min(_MOST_TURNS, max(_TURNS, math.ceil(8 * rarest), math.ceil(few)))


def _picked(pick: Pick) -> float:
    """How many places of an axis there are for each index."""
    return max(pick.sizes, default=0) * len(pick.sizes) / max(1, pick.indices.access.size)


def _choices(term: Term) -> float:
    """How many elements each maximum of a compute is of, for each of those maxima."""
    category = parse_compute(str(term.attributes[0]))[0].category
    a = term.children[0].access
    if category is Category.POINTWISE or not a.size:
        return 0
    of_one = a.item[0] if category is Category.FOLD else a.item.product()
    return of_one / (a.size / of_one)


class _Numbers(Native):
    """Numbers that remember which functions a pseudo-random one stood for: numpy's integers as they are."""

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
    """A prime field that remembers the same, of functions of reals too, and what was drawn as residues of its own."""

    @cached_property
    def _drawn(self) -> WeakValueDictionary[str, Array]:
        return WeakValueDictionary()

    def draw(self, tensor: Tensor, limit: int | Array | None = None, *, seed: int) -> Array:
        """See `draw_residues`."""
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
    """Numbers to compare programs in: what remembers, the arithmetic, and how tensors are drawn."""

    numbers: _Numbers
    arithmetic: Arithmetic
    draw: Draw

    def values(self, tensors: Mapping[str, Tensor], limits: Mapping[str, int | Array]) -> dict[str, Array]:
        """A value of each tensor, with what its integers must be below (see `index_limits`), each of its own stream."""
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
    """Two prime fields; where something depends on order, numbers that have it, drawn anew as long as that is cheap.
    Integers are drawn over their full range, and small ones, since what wraps hides order and parity.

    count    how often numbers are drawn at least
    longest  the same where results repeat
    more     how often they may be drawn after that, for what was not reached
    aims     how often they may be moved to where they reach it, or that be looked for
    wanted   in how many turns each side is to be taken
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
        """Whether to draw once more than numbers have to be, where so much was not reached; not after a few that
        reached little of it.
        """
        self.in_vain = self.in_vain + 1 if missing > _LITTLE * self.missing else 0
        self.missing = missing
        self.more -= 1
        return bool(missing) and self.more >= 0 and self.in_vain < self.patience

    def at(self, turn: int) -> Turn:
        """The numbers of a turn."""
        if not self.real:
            numbers = _Numbers()
            draw = partial(self._near, turn=turn - 1) if turn else partial(draw_integers, seed=self.seed)
            return Turn(numbers, numbers, draw)
        field = self.fields[turn % len(self.fields)]
        if not self.ordered:
            return Turn(field, field, partial(field.draw, seed=self.seed + turn // len(self.fields)))
        return Turn(field, OrderedField(field), partial(self._near, turn=turn))

    def _near(self, tensor: Tensor, limit: int | Array | None = None, *, turn: int) -> Array:
        """Numbers near constants: near the large ones one tensor in each turn, where there are floats. The places of
        products of two such numbers are rounded to hundreds, and so are sums in which those cancel.
        """
        far = not self.real or tensor.name == self.names[zlib.crc32(b"%d" % turn) % len(self.names)]
        if far and self.periods and turn % _EVERY == _AT_PERIODS and tensor.name not in self.weights:
            return draw_points(tensor, limit, seed=self.seed, turn=turn // _EVERY, points=self.periods)
        among = self.among if far else self.calm
        return draw_near(tensor, limit, seed=self.seed, turn=turn, among=among, weights=self.weights)
