"""The tiles of a mapped layer: rows that stream, weights that stay, and where the sums of both belong."""

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
from glenside.npu.lowering.tiling.dot_product_rows import Sums, expanded, summands, sums
from glenside.npu.lowering.util.fast_divmod import divided
from glenside.npu.lowering.util.fast_unique import distinct
from glenside.npu.machine.model import Machine

_UNIT = "systolic-array"


@dataclass(frozen=True)
class Product:
    """One instruction of the array in a term, as tiles.

    rows     numbers of elements, (tiles)(m)(R); 0 is a zero
    weights  the same of what stays, (tiles)(R)(C)
    """

    term: Term
    rows: Places
    weights: Places

    @staticmethod
    def of(term: Term, machine: Machine, ends: Container[Term]) -> Product:
        """Of operands that `ends` are among."""
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

    groups    tiles that are added up, in the order of what they are for
    elements  for each element of the term the number of its sum among those of the groups' first tiles, from 1 on; 0 is
              a zero: (dims)
    greatest  whether of the tiles of a group the greatest products stay, and are not added up
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
        """The lanes that rows of each tile have elements in, (tiles)(R)."""
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
        """The numbers of the elements of each tile's weights, as many rows of these as it needs."""
        return [own[:rows] for own, rows in zip(self.product.weights.numbers, self.loaded, strict=True)]

    @concurrent_cached_property
    def used(self) -> Array:
        """The columns of each tile whose sums are elements, (tiles)(C)."""
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
        found[self.elements.reshape(-1).astype(np.intp)] = True  # which numpy goes through in half the time
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
        line = np.tile(np.arange(m), tiles)  # of each row of all tiles
        for number, each in enumerate(self.groups):
            line[each.tiles[0] * m : (each.tiles[0] + 1) * m] += number * m
        return line.take(row), column

    @staticmethod
    def of(term: Term, machine: Machine, others: Container[Term] = ()) -> Layer:
        """Of a term that may read other layers. Raises BadInput: what the machine cannot do, by name."""
        own = instruction_of(term, machine)
        product, added = Product.of(own, machine, others), sums(term, [own])
        tiles, m, _ = product.rows.numbers.shape
        groups, elements = _groups(added, tiles, m * machine.columns)
        return Layer(term, product, tuple(map(Group, groups)), elements)


def instruction_of(term: Term, machine: Machine) -> Term:
    """The instruction of the array whose sums a term is made of. Raises BadInput: there is none, or of an array of
    another size.
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
        return f"its mapping adds up or moves {len(found)} products of the array; {machine} makes one of a layer"
    words = ", ".join(dict.fromkeys(str(name_of(each)) for each in others))
    if any(is_product(each) for each in others):
        return f"no mapping of its product onto {machine} was found: it is left as it was written, {words}"
    return f"its mapping computes {words} of what the array makes; {machine} adds up sums there, and moves them"


def _groups(added: Sums, tiles: int, size: int) -> tuple[list[tuple[int, ...]], Array]:
    """Tiles that are added up, and the elements as sums of the first of each. Raises BadInput where sums of different
    places of tiles are added up.
    """
    rows, of = added.rows, added.of
    if rows is None:
        return [(tile,) for tile in _tiles_of(of, size)], of
    together = _together(rows, tiles, size)
    if together is None:  # few layers are so: there are zeros, or what no element is made of is added up otherwise
        return _groups_of_rows(expanded(rows, of), tiles, size)
    elements = np.append(rows.dtype.type(0), rows[:, 0]).take(of)
    first = _tiles_of(elements, size)
    groups = sorted(map(tuple, (np.array(first)[:, None] + together[first]).tolist())) if first else []
    return _each_once(groups), elements


def _tiles_of(numbers: Array, size: int) -> list[int]:
    """The tiles that have sums of these numbers, each once, in order; 0 is none of any."""
    tile = numbers.reshape(-1) - numbers.dtype.type(1)
    tile //= numbers.dtype.type(size)
    if not len(tile):
        return []
    ends = np.flatnonzero(tile[1:] != tile[:-1])  # most are of the tile of the one before
    found = distinct(np.append(tile[ends], tile[-1]))
    tiles: list[int] = found[found >= 0].tolist()
    return tiles


def _together(rows: Array, tiles: int, size: int) -> Array | None:
    """By how many tiles those of each row of sums, (n)(terms), are behind the first of them, (tiles)(terms): where rows
    of one first tile are alike in this, and all have their sums in order and at one place. None where they are not.
    """
    if not len(rows) or rows.min() <= 0:
        return None
    first = np.ascontiguousarray(rows[:, 0])
    tile = (first - 1) // first.dtype.type(size)
    some = np.append(np.flatnonzero(tile[1:] != tile[:-1]), len(tile) - 1)  # of each first tile a row
    apart = np.zeros((tiles, rows.shape[1]), rows.dtype)
    apart[tile[some]] = rows[some] - first[some, None]
    found, rest = divided(apart, size)
    if rest.any() or (apart[:, 1:] < apart[:, :-1]).any():
        return None
    alike = all(np.array_equal(rows[:, term] - first, apart[:, term].take(tile)) for term in range(1, rows.shape[1]))
    return found if alike else None


def _groups_of_rows(rows: Array, tiles: int, size: int) -> tuple[list[tuple[int, ...]], Array]:
    """Groups tiles for sums, (dims)(terms), in each of which an element is one sum."""
    flat = rows.reshape(-1, rows.shape[-1])
    none = np.iinfo(flat.dtype).max
    flat = np.sort(np.where(flat > 0, flat, none), axis=1)
    some = flat[:, 0] < none
    used = flat[some]
    tile, place = divided(np.where(used < none, used - 1, -1), size)
    if ((place != place[:, :1]) & (used < none)).any():
        raise BadInput("sums of different places of tiles are added up: accumulators add up those of one place")
    example = np.zeros(tiles, np.int64)  # of each first tile, an element
    example[tile[:, 0]] = np.arange(len(tile))
    if (tile != tile[example[tile[:, 0]]]).any():
        raise BadInput(_SEVERAL)
    groups = [tuple(int(t) for t in row if t >= 0) for row in np.unique(tile[distinct(example[tile[:, 0]])], axis=0)]
    return _each_once(groups), np.where(some, flat[:, 0], 0).reshape(rows.shape[:-1])


def _each_once(groups: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Raises BadInput where a tile is in several."""
    every = [tile for group in groups for tile in group]
    if len(every) != len({*every}):
        raise BadInput(_SEVERAL)
    return groups


_SEVERAL = "a tile is added to several sums: accumulators keep one"
