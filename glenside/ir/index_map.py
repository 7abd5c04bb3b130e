"""Defines index maps: for each element of a result, the index of the operand's element that it equals, as data.

The map of a transposed, padded or dilated array is independent of the machine. From it derive the counters of address
generators, the loads of a loop and the adjoint of a gradient. An index is a quasi-affine expression of the result's
axes i0, i1 ..: sums, multiples, and quotients and remainders by constants, rounded down.

  a[i0, i1*2 + i2]                           windows of 2 or more neighbours, with stride 2
  a[i0, i1 - 1] if 1 <= i1 < 6 else 0        padded with zeros
  a[i0, i1//3] if i1 % 3 == 0 else 0         two zeros between neighbours
  a[i0] if i0 < 4; b[i0 - 4] if i0 >= 4      a, then b
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from glenside.ir.open_integer import common_divisor
from glenside.ir.operand import Array
from glenside.ir.types import Dims


class Fill(Enum):
    """The value where no piece of a map applies."""

    ZERO = "0"
    LOWEST = "lowest"  # the lowest value of the dtype


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of the result: an integer from 0 to size - 1.

    limit  0 if the size is the same for all sizes of a program; else the axis stays a loop, also with one step or none.
           More than 1: the greatest size, on which alone decisions about indices depend
    """

    number: int
    size: int
    limit: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, max((self.limit if self.limit > 1 else self.size) - 1, 0)

    @property
    def likely(self) -> int:
        """The size that schedules are chosen for: the limit, if there is one."""
        return self.limit if self.limit > 1 else self.size

    @property
    def is_loop(self) -> bool:
        """True unless the axis has one step for all sizes of a program."""
        return self.size != 1 or self.limit > 0

    def evaluate(self, axes: Sequence[Any] | Mapping[int, Any]) -> Any:
        return axes[self.number]

    def __str__(self) -> str:
        return f"i{self.number}"


@dataclass(frozen=True, slots=True)
class Divided:
    """The quotient expression // divisor, rounded down, or the remainder expression % divisor; divisor >= 2."""

    expression: Index
    divisor: int
    remainder: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        low, high = self.expression.bounds
        return (0, self.divisor - 1) if self.remainder else (low // self.divisor, high // self.divisor)

    def evaluate(self, axes: Sequence[Any] | Mapping[int, Any]) -> Any:
        value = self.expression.evaluate(axes)
        return value % self.divisor if self.remainder else value // self.divisor

    def __str__(self) -> str:
        return f"{self.expression.in_brackets()}{' % ' if self.remainder else '//'}{self.divisor}"


Atom = Axis | Divided


@dataclass(frozen=True, slots=True)
class Index:
    """A sum of atoms, each times its factor, and a constant. Quotients and remainders that bounds decide are
    simplified.
    """

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        """The inclusive bounds of the index; exact if its atoms are independent."""
        low = high = self.constant
        for atom, factor in self.terms:
            ends = [factor * end for end in atom.bounds]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        factors = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + factor
        kept = tuple((atom, factor) for atom, factor in factors.items() if factor)
        return Index(kept, self.constant + other.constant)

    __radd__ = __add__

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        terms = tuple((atom, f * factor) for atom, f in self.terms) if factor else ()
        return Index(terms, self.constant * factor)

    def __floordiv__(self, divisor: int) -> Index:
        """Divides, rounding down; multiples of the divisor leave the quotient.

        A divisor of 0, the size of an axis without elements, counts as 1: there is no index to divide.
        """
        multiple, rest, decided = self._divided(max(divisor, 1))
        if decided:
            return multiple
        whole, _, step = rest._in_steps(divisor)
        return multiple + (Index(((Divided(rest, divisor), 1),)) if step == 1 else whole // (divisor // step))

    def __mod__(self, divisor: int) -> Index:
        """Returns the remainder, from 0 to divisor - 1; multiples of the divisor vanish. A divisor of 0 counts as 1."""
        _, rest, decided = self._divided(max(divisor, 1))
        if decided:
            return rest
        whole, small, step = rest._in_steps(divisor)
        if step == 1:
            return Index(((Divided(rest, divisor, remainder=True), 1),))
        return whole % (divisor // step) * step + small

    def _in_steps(self, divisor: int) -> tuple[Index, Index, int]:
        """Returns (whole, small, step): the index is whole * step + small, 0 <= small < step, and step divides the
        divisor.

        The step is as large as possible. (32 i + j) // 1024 is i // 32 if j is from 0 to 31: `small` does not affect
        the quotient.
        """
        for _, factor in sorted(self.terms, key=lambda term: -abs(term[1])):
            step = common_divisor(factor, divisor)
            large = tuple((a, f // step) for a, f in self.terms if f % step == 0)
            small = Index(tuple((a, f) for a, f in self.terms if f % step), self.constant % step)
            low, high = small.bounds
            if step > 1 and low >= 0 and high < step:
                return Index(large, self.constant // step), small, step
        return self, Index(), 1

    def _divided(self, divisor: int) -> tuple[Index, Index, bool]:
        """Returns (multiple, rest, decided): the index is multiple * divisor + rest; decided: bounds prove rest <
        divisor.
        """
        multiple = Index(tuple((a, f // divisor) for a, f in self.terms if f % divisor == 0), self.constant // divisor)
        rest = Index(tuple((a, f) for a, f in self.terms if f % divisor), self.constant % divisor)
        first, last = (end // divisor for end in rest.bounds)
        return (multiple + first, rest - first * divisor, True) if first == last else (multiple, rest, False)

    def at(self, places: Sequence[Index]) -> Index:
        """Substitutes `places[i]` for axis i."""
        if len(self.terms) == 1 and isinstance(atom := self.terms[0][0], Axis):  # most indices are one axis
            factor, place = self.terms[0][1], places[atom.number]
            scaled = place if factor == 1 else place * factor
            return scaled + self.constant if self.constant else scaled
        found: Index = Index() + self.evaluate(places)
        return found

    def evaluate(self, axes: Sequence[Any] | Mapping[int, Any]) -> Any:
        """Evaluates the index at `axes[i]` for axis i: numbers, indices, or arrays that broadcast to each other."""
        return sum((atom.evaluate(axes) * factor for atom, factor in self.terms), self.constant)

    def in_brackets(self) -> str:
        text = str(self)
        return text if text.isalnum() else f"({text})"

    def __str__(self) -> str:
        leads = self.constant > 0 and all(factor < 0 for _, factor in self.terms)
        text = str(self.constant) if leads else ""
        for atom, factor in self.terms:
            size = "" if abs(factor) == 1 else f"*{abs(factor)}"
            shown = f"({atom})" if size and not isinstance(atom, Axis) else str(atom)
            text += (" - " if text else "-") if factor < 0 else (" + " if text else "")
            text += f"{shown}{size}"
        if not leads and (self.constant or not text):
            sign = (" - " if self.constant < 0 else " + ") if text else ("-" if self.constant < 0 else "")
            text += f"{sign}{abs(self.constant)}"
        return text


@dataclass(frozen=True, slots=True)
class Within:
    """The guard low <= index < high."""

    index: Index
    low: int
    high: int

    @property
    def always(self) -> bool:
        low, high = self.index.bounds
        return self.low <= low and high < self.high

    def evaluate(self, axes: Sequence[Any] | Mapping[int, Any]) -> Any:
        value = self.index.evaluate(axes)
        return (self.low <= value) & (value < self.high)

    def __str__(self) -> str:
        low, high = self.index.bounds
        index = Index(self.index.terms)
        first, end = self.low - self.index.constant, self.high - self.index.constant
        if self.low <= low:
            return f"{index} < {end}"
        return f"{index} >= {first}" if high < self.high else f"{first} <= {index} < {end}"


@dataclass(frozen=True, slots=True)
class Multiple:
    """The guard index % divisor == 0."""

    index: Index
    divisor: int

    @property
    def always(self) -> bool:
        return self.index % self.divisor == Index()

    def evaluate(self, axes: Sequence[Any] | Mapping[int, Any]) -> Any:
        return self.index.evaluate(axes) % self.divisor == 0

    def __str__(self) -> str:
        return f"{self.index.in_brackets()} % {self.divisor} == 0"


Guard = Within | Multiple


@dataclass(frozen=True, slots=True)
class Piece:
    """The elements that come from one operand: the index along each of its axes, where all guards hold."""

    operand: int
    indices: tuple[Index, ...]
    guards: tuple[Guard, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "guards", tuple(dict.fromkeys(g for g in self.guards if not g.always)))

    def at(self, places: Sequence[Index], guards: Sequence[Guard] = ()) -> Piece:
        """Substitutes `places[i]` for axis i of the result, and adds guards."""
        indices = tuple(index.at(places) for index in self.indices)
        return Piece(self.operand, indices, (*guards, *(replace(g, index=g.index.at(places)) for g in self.guards)))

    def __str__(self) -> str:
        element = f"{chr(ord('a') + self.operand)}[{', '.join(map(str, self.indices))}]"
        return f"{element} if {' and '.join(map(str, self.guards))}" if self.guards else element


@dataclass(frozen=True, slots=True)
class IndexMap:
    """The map of a result of given dims: at most one piece holds for each element; without a piece it is the fill."""

    dims: Dims
    pieces: tuple[Piece, ...]
    fill: Fill | None = None

    def __str__(self) -> str:
        text = "; ".join(map(str, self.pieces)) or "nothing"
        return text if self.fill is None else f"{text} else {self.fill.value}"

    def then(self, other: IndexMap) -> IndexMap:
        """Composes with `other`, a map of one operand, which this map computes. Raises ValueError if their fills
        differ.
        """
        if None not in (self.fill, other.fill) and self.fill is not other.fill:
            raise ValueError(f"one map requires one fill, got {self.fill} and {other.fill}")
        pieces = [mine.at(theirs.indices, theirs.guards) for theirs in other.pieces for mine in self.pieces]
        return IndexMap(other.dims, tuple(pieces), self.fill or other.fill)

    def places(self, piece: Piece, operand: Sequence[int]) -> tuple[Array, Array]:
        """Returns, per element of the result, its row-major position in an operand of these dims, and whether the piece
        holds.

        Both arrays have the result's dims; the position is 0 where the piece does not hold.
        """
        axes = np.ogrid[tuple(slice(0, n) for n in self.dims)] if self.dims else []
        held: Any = np.True_
        for guard in piece.guards:
            held = held & guard.evaluate(axes)
        place: Any = np.int64(0)
        for index, size in zip(piece.indices, operand, strict=True):
            place = place * size + index.evaluate(axes)
        held = np.broadcast_to(held, self.dims)
        return np.where(held, place, 0), held

    def gather(self, operands: Sequence[Array], lowest: Any = None) -> Array:
        """Computes the result's array; `lowest` is the fill where the map fills with the lowest value of the dtype."""
        fill = lowest if self.fill is Fill.LOWEST else 0
        result = np.full(self.dims, fill, operands[0].dtype)
        for piece in self.pieces:
            operand = operands[piece.operand]
            place, held = self.places(piece, operand.shape)
            if operand.size:
                result = np.where(held, operand.reshape(-1)[place], result)
        return result


def axes_of(dims: Sequence[int]) -> list[Index]:
    """Returns the axes of a result of `dims`, as indices."""
    return [Index(((Axis(i, n), 1),)) if n != 1 else Index() for i, n in enumerate(dims)]


def mapped(dims: Sequence[int], indices: Iterable[Index], *guards: Guard, fill: Fill | None = None) -> IndexMap:
    """Returns a map of one operand."""
    return IndexMap(Dims(dims), (Piece(0, tuple(indices), guards),), fill)


def along(dims: Sequence[int], axis: int, index: Callable[[Index], Index]) -> list[Index]:
    """Returns the axes of a result, with another index along one of them."""
    axes = axes_of(dims)
    return [*axes[:axis], index(axes[axis]), *axes[axis + 1 :]]


def same(dims: Sequence[int]) -> IndexMap:
    """Returns the identity map."""
    return mapped(dims, axes_of(dims))


def transposed(dims: Sequence[int], order: Sequence[int]) -> IndexMap:
    """Returns the map of a transpose: axis i of the result is axis `order[i]` of an operand of `dims`."""
    result = [dims[axis] for axis in order]
    axes = axes_of(result)
    return mapped(result, [axes[order.index(axis)] for axis in range(len(dims))])


def broadcast(operand: Sequence[int], dims: Sequence[int]) -> IndexMap:
    """Returns the map that repeats axes of size 1 to `dims`."""
    axes = zip(axes_of(dims), operand, dims, strict=True)
    return mapped(dims, [axis if have == want else Index() for axis, have, want in axes])


def flattened(indices: Sequence[Index], dims: Sequence[int]) -> Index:
    """Returns the row-major position of an element of `dims`."""
    flat = Index()
    for index, size in zip(indices, dims, strict=True):
        flat = flat * size + index
    return flat


def reshaped(operand: Sequence[int], dims: Sequence[int]) -> IndexMap:
    """Returns the map of a reshape: the operand's elements in row-major order under other dims."""
    return _reshaped(tuple(operand), tuple(dims))


@lru_cache(maxsize=4096)
def _reshaped(operand: tuple[int, ...], dims: tuple[int, ...]) -> IndexMap:
    flat = flattened(axes_of(dims), dims)
    indices: list[Index] = []
    behind = 1
    for size in reversed(operand):
        indices.append(flat // max(behind, 1) % max(size, 1))
        behind *= size
    return mapped(dims, reversed(indices))
