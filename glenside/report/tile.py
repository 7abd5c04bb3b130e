"""Pictures of a layer's tiles: which elements of the operand that stays an array holds, and which places stay empty.

They are read off the terms: an element of a tile is followed through everything that moves it, to what holds it.
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
"""The instruction whose right operand stays in the array."""
_MOST = 1 << 17
"""Places of an array that are drawn."""


@dataclass(frozen=True)
class Source:
    """What elements of a tile come from: a tensor, or what is computed of one."""

    name: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """One tile of an array: for each of its places, in row-major order, the number of the element there.

    number   of it among `count`, from 1
    sources  what elements are of; those of the first have numbers from 1, those of the next go on; 0 is an empty place
    cells    as runs: (difference to the place before, how often), flat
    used     places that hold an element
    """

    rows: int
    columns: int
    number: int
    count: int
    sources: tuple[Source, ...]
    cells: tuple[int, ...]
    used: int


def instructions(layer: Term) -> list[Term]:
    """The instructions of a layer's term that no other one reads: its own, and not those of layers before."""
    return nearest(layer, stops=lambda term: term.operator.kind is OperatorKind.INSTRUCTION)


def tiles_of(layer: Term) -> list[Tile]:
    """The first tile of a layer as it was mapped, and its last one where that holds less or more."""
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
    """The same of a product that is cut into tiles as it stands."""
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
    """A tile whose places that are `held` have the elements of the operand at these indices."""
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
    """The tensor that a term is, or the largest of the constants that it is computed from."""
    below = [a for t in postorder(term) for a in t.attributes if isinstance(a, Tensor)]
    if term.operator.kind is OperatorKind.LEAF:
        return one_line(below[0].name) if below else term.operator.name
    if below and constants_under(term).get(term):
        most = max(below, key=lambda tensor: tensor.dims.product())
        return f"{one_line(most.name)}, with what is folded into it"
    return f"the result of {one_line(str(term.attributes[0])) if term.attributes else term.operator.name}"
