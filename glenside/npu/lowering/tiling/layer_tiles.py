"""Represents a mapped layer as tiles: streamed rows, stationary weights, and the element of each sum."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glenside.analysis.element_sources import Places, places
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operators.compute import name_of
from glenside.ir.program import is_product
from glenside.ir.term import Term
from glenside.ir.threads import concurrent_cached_property
from glenside.npu.lowering.tiling.element_sums import Sums, expanded, summands, sums
from glenside.npu.lowering.util.fast_divmod import divided
from glenside.npu.lowering.util.fast_unique import distinct
from glenside.npu.machine.model import Machine

_UNIT = "systolic-array"


@dataclass(frozen=True)
class Product:
    """One array instruction of a term, as tiles.

    rows     element numbers, (tiles)(m)(R); 0 is a zero
    weights  the same for the stationary operand, (tiles)(R)(C)
    """

    term: Term
    rows: Places
    weights: Places

    @staticmethod
    def of(term: Term, machine: Machine, ends: Container[Term]) -> Product:
        """Returns the tiles of an instruction; elements are traced back to leaves or to terms in `ends`."""
        a, b = term.children
        tiles = b.access.shape.product()
        rows, weights = places(a, ends), places(b, ends)
        return Product(
            term,
            Places(rows.numbers.reshape(tiles, -1, machine.rows), rows.first),
            Places(weights.numbers.reshape(tiles, machine.rows, machine.columns), weights.first),
        )


@dataclass(frozen=True)
class Group:
    """Tiles whose sums are added up: their numbers, in order."""

    tiles: tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """A layer as tiles of one product, and its elements.

    groups    tiles that are added up, in the order of their sums
    elements  number of each element's sum among those of the groups' first tiles, from 1 on; 0 is a zero, (dims)
    greatest  True if a group computes the maximum of its tiles' products instead of their sum
    """

    term: Term
    product: Product
    groups: tuple[Group, ...]
    elements: Array
    greatest: bool = False

    @concurrent_cached_property
    def known(self) -> dict[Any, Any]:
        """Returns the memo of the layer's analyses."""
        return {}

    @concurrent_cached_property
    def enabled(self) -> Array:
        """Flags of the banks in which rows of each tile have elements, (tiles)(R)."""
        found: Array = self.product.rows.numbers.max(axis=1, initial=0) > 0
        return found

    @concurrent_cached_property
    def loaded(self) -> list[int]:
        """Returns the number of weight rows of each tile: up to the last enabled bank."""
        width = self.enabled.shape[1]
        last = width - np.argmax(self.enabled[:, ::-1], axis=1)
        return np.where(self.enabled.any(axis=1), last, 1).tolist()  # type: ignore[no-any-return]

    @property
    def weights(self) -> list[Array]:
        """Element numbers of each tile's weights, only the rows that it needs."""
        return [own[:rows] for own, rows in zip(self.product.weights.numbers, self.loaded, strict=True)]

    @concurrent_cached_property
    def used(self) -> Array:
        """Flags of the columns of each tile whose sums are elements, (tiles)(C)."""
        of_group = np.asarray(self.wanted().any(axis=1))
        found = np.zeros((len(self.product.rows.numbers), of_group.shape[1]), bool)
        for group, used in zip(self.groups, of_group, strict=True):
            found[list(group.tiles)] = used
        return found

    def wanted(self) -> Array:
        """Returns flags, True for the sums of each group that are elements, (groups)(m)(C)."""
        tiles, m, _ = self.product.rows.numbers.shape
        columns = self.product.weights.numbers.shape[2]
        found = np.zeros(1 + tiles * m * columns, bool)
        found[self.elements.reshape(-1).astype(np.intp)] = True  # numpy takes half the time with this dtype
        return self.of_first(found[1:].reshape(tiles, m, columns))

    def of_first(self, of_tiles: Array) -> Array:
        """Selects the values of each group's first tile, (groups)(..), from those of all tiles, (tiles)(..)."""
        first = [group.tiles[0] for group in self.groups]
        return of_tiles[: len(first)] if first == [*range(len(first))] else of_tiles[first]

    def lines(self) -> tuple[Array, Array]:
        """Returns the accumulator row of each element, counted over all groups, and its column: (dims) each."""
        return self._lines

    @concurrent_cached_property
    def _lines(self) -> tuple[Array, Array]:
        tiles, m, _ = self.product.rows.numbers.shape
        row, column = divided(self.elements - 1, self.product.weights.numbers.shape[2])
        line = np.tile(np.arange(m), tiles)  # row number within each of all tiles
        for number, each in enumerate(self.groups):
            line[each.tiles[0] * m : (each.tiles[0] + 1) * m] += number * m
        return line.take(row), column

    @staticmethod
    def of(term: Term, machine: Machine, others: Container[Term] = ()) -> Layer:
        """Returns the layer of a term that may read other layers. Raises BadInput with the operation that the machine
        cannot run.
        """
        own = instruction_of(term, machine)
        product, added = Product.of(own, machine, others), sums(term, [own])
        tiles, m, _ = product.rows.numbers.shape
        groups, elements = _groups(added, tiles, m * machine.columns)
        return Layer(term, product, tuple(map(Group, groups)), elements)


def instruction_of(term: Term, machine: Machine) -> Term:
    """Returns the array instruction whose sums a term consists of. Raises BadInput if there is none, or it is for
    another array size.
    """
    found = summands(term)
    if [each.operator.name for each in found] != [_UNIT]:
        raise BadInput(_no_sums(found, machine))
    size = tuple(found[0].attributes)
    if size != (machine.rows, machine.columns):
        raise BadInput(
            f"the layer is mapped onto {size[0]} x {size[1]}, the machine is {machine.rows} x {machine.columns}"
        )
    return found[0]


def _no_sums(found: Sequence[Term], machine: Machine) -> str:
    """Explains why a layer of these terms cannot run on the array."""
    others = [each for each in found if each.operator.name != _UNIT]
    if not others:
        return f"its mapping combines {len(found)} products of the array; {machine} supports one per layer"
    words = ", ".join(dict.fromkeys(str(name_of(each)) for each in others))
    if any(is_product(each) for each in others):
        return f"no mapping of its product onto {machine} was found; it still computes {words}"
    return f"its mapping computes {words} of the sums of the array; {machine} can only add and move them"


def _groups(added: Sums, tiles: int, size: int) -> tuple[list[tuple[int, ...]], Array]:
    """Returns the groups of tiles that are added up, and the elements as sums of each group's first tile. Raises
    BadInput if sums at different positions of tiles are added up.
    """
    rows, of = added.rows, added.of
    if rows is None:
        return [(tile,) for tile in _tiles_of(of, size)], of
    together = _together(rows, tiles, size)
    if together is None:  # few layers are so: with zeros, or with sums of unused elements
        return _groups_of_rows(expanded(rows, of), tiles, size)
    elements = np.append(rows.dtype.type(0), rows[:, 0]).take(of)
    first = _tiles_of(elements, size)
    groups = sorted(map(tuple, (np.array(first)[:, None] + together[first]).tolist())) if first else []
    return _each_once(groups), elements


def _tiles_of(numbers: Array, size: int) -> list[int]:
    """Returns the tiles that contain sums of these numbers, each once, in order; number 0 is in none."""
    tile = numbers.reshape(-1) - numbers.dtype.type(1)
    tile //= numbers.dtype.type(size)
    if not len(tile):
        return []
    ends = np.flatnonzero(tile[1:] != tile[:-1])  # most are in the tile of the one before
    found = distinct(np.append(tile[ends], tile[-1]))
    tiles: list[int] = found[found >= 0].tolist()
    return tiles


def _together(rows: Array, tiles: int, size: int) -> Array | None:
    """Returns the distances from the first tile of each row of sums to its other tiles, (tiles)(terms); `rows` is
    (n)(terms).

    None unless rows with the same first tile have equal distances, and all have their sums in order at one position.
    """
    if not len(rows) or rows.min() <= 0:
        return None
    first = np.ascontiguousarray(rows[:, 0])
    tile = (first - 1) // first.dtype.type(size)
    some = np.append(np.flatnonzero(tile[1:] != tile[:-1]), len(tile) - 1)  # one row for each first tile
    apart = np.zeros((tiles, rows.shape[1]), rows.dtype)
    apart[tile[some]] = rows[some] - first[some, None]
    found, rest = divided(apart, size)
    if rest.any() or (apart[:, 1:] < apart[:, :-1]).any():
        return None
    alike = all(np.array_equal(rows[:, term] - first, apart[:, term].take(tile)) for term in range(1, rows.shape[1]))
    return found if alike else None


def _groups_of_rows(rows: Array, tiles: int, size: int) -> tuple[list[tuple[int, ...]], Array]:
    """Returns groups of tiles for sums, (dims)(terms), in which an element is one sum, and the elements."""
    flat = rows.reshape(-1, rows.shape[-1])
    none = np.iinfo(flat.dtype).max
    flat = np.sort(np.where(flat > 0, flat, none), axis=1)
    some = flat[:, 0] < none
    used = flat[some]
    tile, place = divided(np.where(used < none, used - 1, -1), size)
    if ((place != place[:, :1]) & (used < none)).any():
        raise BadInput("sums at different positions of tiles are added up: accumulators only add sums at one position")
    example = np.zeros(tiles, np.int64)  # an element for each first tile
    example[tile[:, 0]] = np.arange(len(tile))
    if (tile != tile[example[tile[:, 0]]]).any():
        raise BadInput(_SEVERAL)
    groups = [tuple(int(t) for t in row if t >= 0) for row in np.unique(tile[distinct(example[tile[:, 0]])], axis=0)]
    return _each_once(groups), np.where(some, flat[:, 0], 0).reshape(rows.shape[:-1])


def _each_once(groups: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Raises BadInput if a tile is in several groups."""
    every = [tile for group in groups for tile in group]
    if len(every) != len({*every}):
        raise BadInput(_SEVERAL)
    return groups


_SEVERAL = "a tile is part of several sums: accumulators keep one"
