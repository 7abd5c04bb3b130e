"""The tiles of a mapped layer: rows that stream, weights that stay, and where the sums of both belong."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glenside.analysis.places import Places, places
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operators.compute import name_of
from glenside.ir.program import is_product
from glenside.ir.term import Term
from glenside.ir.threads import found_once
from glenside.npu.lowering.distinct import distinct
from glenside.npu.lowering.dividing import divided
from glenside.npu.lowering.sums import summands, sums
from glenside.npu.machine import Machine

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

    @found_once
    def known(self) -> dict[Any, Any]:
        """What else is found out about it, once for all who ask."""
        return {}

    @found_once
    def enabled(self) -> Array:
        """The lanes that rows of each tile have elements in, (tiles)(R)."""
        found: Array = np.any(self.product.rows.numbers > 0, axis=1)
        return found

    @found_once
    def loaded(self) -> list[int]:
        """How many rows of weights each tile needs: up to the last lane that is enabled."""
        width = self.enabled.shape[1]
        last = width - np.argmax(self.enabled[:, ::-1], axis=1)
        return np.where(self.enabled.any(axis=1), last, 1).tolist()  # type: ignore[no-any-return]

    @property
    def weights(self) -> list[Array]:
        """The numbers of the elements of each tile's weights, as many rows of these as it needs."""
        return [own[:rows] for own, rows in zip(self.product.weights.numbers, self.loaded, strict=True)]

    @found_once
    def used(self) -> Array:
        """The columns of each tile whose sums are elements, (tiles)(C)."""
        line, column = self.sums_of()
        m, columns = self.product.rows.numbers.shape[1], self.product.weights.numbers.shape[2]
        of_group = np.zeros((len(self.groups), columns), bool)
        of_group[line // m, column] = True
        found = np.zeros((len(self.product.rows.numbers), columns), bool)
        for group, used in zip(self.groups, of_group, strict=True):
            found[list(group.tiles)] = used
        return found

    def lines(self) -> tuple[Array, Array]:
        """Of each element the row of sums, among those of all groups, and its column: (dims) each."""
        return self._lines

    @found_once
    def _lines(self) -> tuple[Array, Array]:
        m, columns = self.product.rows.numbers.shape[1], self.product.weights.numbers.shape[2]
        tile, place = divided(self.elements - 1, m * columns)
        row, column = divided(place, columns)
        group = np.zeros(len(self.product.rows.numbers), np.int64)
        for number, each in enumerate(self.groups):
            group[each.tiles[0]] = number
        return group[tile] * m + row, column

    def sums_of(self) -> tuple[Array, Array]:
        """Of each element that is a sum the row of sums and the column, (n) each."""
        line, column = self.lines()
        there = self.elements.reshape(-1) > 0
        return line.reshape(-1)[there], column.reshape(-1)[there]

    @staticmethod
    def of(term: Term, machine: Machine, others: Container[Term] = ()) -> Layer:
        """Of a term that may read other layers. Raises BadInput: what the machine cannot do, by name."""
        own = instruction_of(term, machine)
        product, added = Product.of(own, machine, others), sums(term, [own])
        tiles, m, _ = product.rows.numbers.shape
        groups, elements = _groups(added.numbers, tiles, m * machine.columns)
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
    """What is wrong with a layer that is made of these."""
    others = [each for each in found if each.operator.name != _UNIT]
    if not others:
        return f"its mapping adds up or moves {len(found)} products of the array; {machine} makes one of a layer"
    words = ", ".join(dict.fromkeys(str(name_of(each)) for each in others))
    if any(is_product(each) for each in others):
        return f"no mapping of its product onto {machine} was found: it is left as it was written, {words}"
    return f"its mapping computes {words} of what the array makes; {machine} adds up sums there, and moves them"


def _groups(added: Array, tiles: int, size: int) -> tuple[list[tuple[int, ...]], Array]:
    """Tiles that are added up, and the elements as sums of the first of each. Raises BadInput where sums of different
    places of tiles are added up.
    """
    flat = added.reshape(-1, added.shape[-1])
    if flat.shape[1] == 1:  # nothing is added up
        first = distinct(np.maximum(flat[:, 0] - 1, -1) // flat.dtype.type(size))
        return [(tile,) for tile in first[first >= 0].tolist()], np.maximum(flat[:, 0], 0).reshape(added.shape[:-1])
    none = np.iinfo(flat.dtype).max
    are_all = bool(flat.min(initial=1) > 0)
    if not are_all:
        flat = np.where(flat > 0, flat, none)
    if (flat[:, 1:] < flat[:, :-1]).any():
        flat = np.sort(flat, axis=1)
    some = flat[:, 0] < none
    used = flat if some.all() else flat[some]
    tile, place = divided(used - 1 if are_all else np.where(used < none, used - 1, -1), size)
    apart = place != place[:, :1]
    if (apart if are_all else apart & (used < none)).any():
        raise BadInput("sums of different places of tiles are added up: accumulators add up those of one place")
    example = np.zeros(tiles, np.int64)  # of each first tile, an element
    example[tile[:, 0]] = np.arange(len(tile))
    if (tile != tile[example[tile[:, 0]]]).any():
        raise BadInput(_SEVERAL)
    groups = [tuple(int(t) for t in row if t >= 0) for row in np.unique(tile[distinct(example[tile[:, 0]])], axis=0)]
    every = [t for group in groups for t in group]
    if len(every) != len({*every}):
        raise BadInput(_SEVERAL)
    return groups, np.where(some, flat[:, 0], 0).reshape(added.shape[:-1])


_SEVERAL = "a tile is added to several sums: accumulators keep one"
