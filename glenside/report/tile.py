"""Computes which weights a tile of the array holds, and which of its positions stay empty.

They are computed from the terms: an element of a tile is traced through all movements to the tensor that stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from glenside.analysis.element_sources import sources
from glenside.analysis.layers import product_sizes
from glenside.ir.names import one_line
from glenside.ir.operand import Array
from glenside.ir.operator import OperatorKind
from glenside.ir.term import Term, constants_under, nearest, postorder
from glenside.ir.types import Tensor, ceil_div

STAYS = "systolic-array"
"""The instruction whose right operand is stationary in the array."""
_MOST = 1 << 17
"""Largest array, in elements, that is drawn."""


@dataclass(frozen=True)
class Source:
    """The source of a tile's elements: a tensor, or a value computed from constants."""

    name: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """One tile of an array: for each of its positions, in row-major order, the number of the element there.

    number   of the tile among `count`, from 1
    sources  sources of elements; elements of the first are numbered from 1, then those of the next; 0 is empty
    cells    run lengths: (difference to the position before, count), flat
    used     positions that hold an element
    """

    rows: int
    columns: int
    number: int
    count: int
    sources: tuple[Source, ...]
    cells: tuple[int, ...]
    used: int


def instructions(layer: Term) -> list[Term]:
    """Returns the instructions of a layer's term that no other instruction reads, without those of layers before it."""
    return nearest(layer, stops=lambda term: term.operator.kind is OperatorKind.INSTRUCTION)


def tiles_of(layer: Term) -> list[Tile]:
    """Returns the first tile of a mapped layer, and the last one if it holds another number of elements."""
    own = next((term for term in instructions(layer) if term.operator.name == STAYS), None)
    if own is None:
        return []
    rows, columns = (int(str(n)) for n in own.attributes[:2])
    operand = own.children[1]
    shape = tuple(operand.access.shape)
    count = int(np.prod(shape, dtype=np.int64))

    def tile(number: int) -> Tile:
        at = np.unravel_index(np.full(rows * columns, number), shape) if shape else ()
        k, n = (axis.ravel() for axis in np.indices((rows, columns)))
        return _tile(operand, rows, columns, (number + 1, count), (*at, k, n), np.full(rows * columns, True))

    return _ends(tile, count, rows * columns)


def baseline_tiles(product: Term, rows: int, columns: int) -> list[Tile]:
    """Returns the same tiles for a product that is tiled without any rule."""
    pairs = product.children[0]
    if pairs.operator.name != "access-product":
        return []
    operand, sizes = pairs.children[1], product_sizes(product)
    down, across = int(ceil_div(sizes.k, rows)), int(ceil_div(sizes.n, columns))
    dims, count = tuple(operand.access.dims), sizes.groups * down * across

    def tile(number: int) -> Tile:
        group, place = divmod(number, down * across)
        row, column = divmod(place, across)
        k, n = (axis.ravel() for axis in np.indices((rows, columns)))
        k, n = k + row * rows, n + column * columns
        held = (k < sizes.k) & (n < sizes.n)
        flat = (group * sizes.n + n[held]) * sizes.k + k[held]
        return _tile(operand, rows, columns, (number + 1, count), np.unravel_index(flat, dims), held)

    return _ends(tile, count, rows * columns)


def _ends(tile: Callable[[int], Tile], count: int, places: int) -> list[Tile]:
    if not count or places > _MOST:
        return []
    first = tile(0)
    last = tile(count - 1) if count > 1 else first
    return [first] if last.used == first.used else [first, last]


def _tile(operand: Term, rows: int, columns: int, place: tuple[int, int], at: Sequence[Array], held: Array) -> Tile:
    """Returns the tile whose positions in `held` hold the elements of the operand at these indices."""
    terms, whose, element = sources(operand, at)
    first = 1 + np.cumsum([0, *(term.access.size for term in terms)])
    numbers = np.zeros(rows * columns, np.int64)
    numbers[held] = np.where(whose < 0, 0, first[whose] + element)
    named = tuple(Source(_named(term), tuple(term.access.dims)) for term in terms)
    return Tile(rows, columns, *place, named, tuple(_runs(numbers)), int((numbers > 0).sum()))


def _runs(numbers: Array) -> Iterator[int]:
    for difference, run in groupby(np.diff(numbers, prepend=0).tolist()):
        yield difference
        yield sum(1 for _ in run)


def _named(term: Term) -> str:
    """Names the tensor that a term is, or the largest constant that it is computed from."""
    below = [a for t in postorder(term) for a in t.attributes if isinstance(a, Tensor)]
    if term.operator.kind is OperatorKind.LEAF:
        return one_line(below[0].name) if below else term.operator.name
    if below and constants_under(term).get(term):
        most = max(below, key=lambda tensor: tensor.dims.product())
        return f"{one_line(most.name)}, with others folded into it"
    return f"the result of {one_line(str(term.attributes[0])) if term.attributes else term.operator.name}"
