"""Defines a product whose windows are added up tile by tile, as processors with little memory compute it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from glenside.ir.blockwise import blocks, positions
from glenside.ir.contraction import contraction_scratch
from glenside.ir.dtypes import widen
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Keeps, Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_number, require_sizes, spelled
from glenside.ir.operators.tiled_products import by_blas, gathered_matrix, matrices_of, matrix_of
from glenside.ir.types import AccessType, Dims

_NAME = "overlap-add-product"

Box = tuple[tuple[int, int], ...]  # (first, last) along each axis


def _check(
    a: AccessType, b: AccessType, n: int, out: Dims, strides: Dims, dilations: Dims, starts: Dims, tile: int
) -> None:
    require_number(_NAME, a)
    axes = len(out)
    require(axes >= 1, _NAME, "at least one axis that is added up", spelled(out))
    most = min(a.split, b.split) - axes
    require(0 <= n <= most, _NAME, f"0 <= n <= {most} shared axes, before {axes} of positions and of windows", n)
    require(a.dims.take(n) == b.dims.take(n), _NAME, f"the first {n} axes to agree", f"{a} and {b}")
    require(a.item == b.item and a.dtype == b.dtype, _NAME, "items and dtypes to agree", f"{a} and {b}")
    same = len(strides) == len(dilations) == len(starts) == axes
    require(same, _NAME, f"{axes} strides, dilations and starts", " ".join(map(spelled, (strides, dilations, starts))))
    require_sizes(_NAME, "sizes", out)
    require_sizes(_NAME, "strides", strides, least=1)
    require_sizes(_NAME, "dilations", dilations, least=1)
    require(tile >= 1, _NAME, "a tile of at least 1 position", tile)


def _reached(first: int, last: int, stride: int, offset: int, size: int) -> tuple[slice, slice]:
    """Returns the positions from first to last - 1 with an index in 0 .. size - 1, and position * stride + offset."""
    first_in = max(first, -(offset // stride))
    last_in = min(last, (size - 1 - offset) // stride + 1)
    if last_in <= first_in:
        return slice(0, 0), slice(0, 0)
    start = first_in * stride + offset
    return slice(first_in - first, last_in - first), slice(start, start + (last_in - first_in - 1) * stride + 1, stride)


@dataclass(frozen=True)
class _Tiles:
    """The tiling of one element of the shared axes: a box of positions at a time, its products as a matrix."""

    places: tuple[int, ...]
    window: tuple[int, ...]
    before: int  # axes of a, and of b, that are neither shared nor positions or window axes
    after: int
    length: int  # of an item
    columns: int  # products of one row: b's own axes times the window
    tile: int

    @staticmethod
    def of(a: Operand, b: Operand, n: int, axes: int, tile: int) -> _Tiles:
        left, right = a.access.shape.drop(n), b.access.shape.drop(n)
        before, after, length = len(left) - axes, len(right) - axes, a.access.item.product()
        return _Tiles(left.drop(before), right.drop(after), before, after, length, right.product(), tile)

    @property
    def windows_last(self) -> list[int]:
        """The permutation (A, box, B, window) -> (A, B, box, window)."""
        own, axes, box = range(self.before), len(self.places), self.before + len(self.places)
        return [
            *own,
            *range(box, box + self.after),
            *range(self.before, box),
            *range(box + self.after, box + self.after + axes),
        ]

    def boxes(self) -> Iterator[Box]:
        """Yields boxes of at most `tile` positions that cover them all."""
        for index in blocks(self.places, self.tile):
            box = [
                (part, part + 1) if isinstance(part, int) else (part.start, min(part.stop, size))
                for part, size in zip(index, self.places, strict=False)
            ]
            yield (*box, *((0, size) for size in self.places[len(box) :]))

    def part(self, a: Array, box: Box) -> Array:
        """Returns the rows of a box."""
        own: tuple[Any, ...] = (*(slice(None),) * self.before, *(slice(*part) for part in box))
        found: Array = a[own]
        return found

    def rows(self, part: Array) -> int:
        return part.size // self.length if self.length else prod(part.shape[: self.before + len(self.places)])


def _evaluate(
    arithmetic: Any,
    a: Operand,
    b: Operand,
    n: int,
    sizes: Dims,
    strides: Dims,
    dilations: Dims,
    starts: Dims,
    tile: int,
    out: Array | None = None,
) -> Array:
    """Computes the product; it holds one tile's products, and its rows unless these form a matrix already."""
    left, right, item, tiles = a.array, b.array, len(a.item_axes), _Tiles.of(a, b, n, len(sizes), tile)
    empty = (*(slice(None),) * n, slice(0, 0))
    none: Array = arithmetic.contract(left[empty], right[empty], n, item)  # gives the dtype of the sums
    own, other = left.shape[n : n + tiles.before], right.shape[n : n + tiles.after]
    result = np.empty((*left.shape[:n], *own, *other, *sizes), none.dtype) if out is None else out
    result[...] = 0
    if not (left.size and right.size and result.size):
        return result
    blas = arithmetic.has_blas and by_blas(left)
    for group in positions(left.shape[:n]):
        products = (
            _by_blas(left[group], right[group], tiles)
            if blas
            else (arithmetic.contract(tiles.part(left[group], box), right[group], 0, item) for box in tiles.boxes())
        )
        for box, found in zip(tiles.boxes(), products, strict=True):
            columns = found.transpose(tiles.windows_last)
            for tap in positions(tiles.window):
                axes = zip(box, strides, tap, dilations, starts, sizes, strict=True)
                reached = [_reached(first, last, t, u * d - s, size) for (first, last), t, u, d, s, size in axes]
                read: tuple[Any, ...] = (..., *(positions for positions, _ in reached), *tap)
                target: tuple[Any, ...] = (*group, ..., *(places for _, places in reached))
                arithmetic.accumulate(result[target], columns[read])
            del found, columns
    return result


def _by_blas(a: Array, b: Array, tiles: _Tiles) -> Iterator[Array]:
    """Yields the products (A, box, B, window) of each box, in the same memory."""
    weights = gathered_matrix(b, tiles.columns, tiles.length)
    first = tiles.part(a, next(tiles.boxes()))
    products = np.empty((tiles.rows(first), tiles.columns), a.dtype)
    gathers = matrix_of(first, len(products), tiles.length) is None
    gathered = np.empty((len(products) if gathers else 0, tiles.length), a.dtype)
    for box in tiles.boxes():
        part = tiles.part(a, box)
        m = tiles.rows(part)
        rows = None if gathers else matrix_of(part, m, tiles.length)
        if rows is None:
            rows = gathered[:m] if gathers else np.empty((m, tiles.length), a.dtype)
            rows.reshape(part.shape)[...] = part
        np.matmul(rows, weights.T, out=products[:m])
        axes = tiles.before + len(tiles.places)
        yield products[:m].reshape(*part.shape[:axes], *b.shape[: tiles.after + len(tiles.window)])


def _largest(a: Operand, b: Operand, n: int, axes: int, tile: int) -> tuple[_Tiles, Array, bool, bool]:
    """Returns the first tile, which is the largest: its rows, whether they are gathered first, and whether b's are."""
    tiles = _Tiles.of(a, b, n, axes, tile)
    part = tiles.part(a.array[(0,) * n], next(tiles.boxes()))
    gathers = matrix_of(part, tiles.rows(part), tiles.length) is None
    return tiles, part, gathers, matrix_of(b.array[(0,) * n], tiles.columns, tiles.length) is None


def _scratch(a: Operand, b: Operand, n: int, out: Dims, strides: Dims, dilations: Dims, starts: Dims, tile: int) -> int:
    if not (a.access.size and b.access.size and out.product()):
        return 0
    tiles, part, gathers, copies = _largest(a, b, n, len(out), tile)
    products = tiles.rows(part) * tiles.columns
    if not by_blas(a.array):
        kept = products * np.dtype(widen(a.access.dtype)).itemsize
        return kept + contraction_scratch(part, b.array[(0,) * n], 0, len(a.item_axes))
    rows = tiles.rows(part) * tiles.length if gathers else 0
    return (products + rows + (tiles.columns * tiles.length if copies else 0)) * a.array.itemsize


def _moved(a: Operand, b: Operand, n: int, out: Dims, strides: Dims, dilations: Dims, starts: Dims, tile: int) -> int:
    """Counts bytes: gathered rows are read, written and read again, and each tile reads b again.

    Products are written and read, and their sums are read and written.
    """
    if not (a.access.size and b.access.size and out.product()):
        return 0
    tiles, _, gathers, _ = _largest(a, b, n, len(out), tile)
    products = a.access.shape.product() * tiles.columns
    result = a.access.shape.take(a.split - len(out)).product() * b.access.shape.drop(n).take(tiles.after).product()
    narrow = a.access.size * (3 if gathers else 1) + b.access.size * sum(1 for _ in tiles.boxes())
    wide = 4 * products + result * out.product()
    return narrow * np.dtype(a.access.dtype).itemsize + wide * np.dtype(widen(a.access.dtype)).itemsize


def _adjoint(
    terms: Any,
    g: Any,
    a: Any,
    b: Any,
    n: int,
    out: Dims,
    strides: Dims,
    dilations: Dims,
    starts: Dims,
    tile: int,
) -> tuple[Any, ...]:
    """Returns the two products of windows of g; the first windows may start in padding before g."""
    axes, split = len(out), g.access.rank - len(out)
    places = a.access.shape.drop(a.access.split - axes)
    window = b.access.shape.drop(b.access.split - axes)
    ends = [
        (m - 1) * t + (k - 1) * d - start + 1 - size
        for m, t, k, d, start, size in zip(places, strides, window, dilations, starts, out, strict=True)
    ]
    padded = terms.pad_or_crop(g, [(0, 0)] * split + list(zip(starts, ends, strict=True)))
    found = terms.dilated_windows(terms.at(padded, split), window, strides, dilations)
    own = a.access.split - axes - n  # (G, A, B, positions, window) -> (G, A, positions, B, window)
    other = b.access.split - axes - n
    order = [
        *range(n + own),
        *range(n + own + other, n + own + other + axes),
        *range(n + own, n + own + other),
        *range(n + own + other + axes, n + own + other + 2 * axes),
    ]
    return tuple(terms.contraction_adjoint(terms.transpose(found, order), a, b, n))


overlap_add_product = operator(
    name=_NAME,
    kind=OperatorKind.INSTRUCTION,
    fields=fields(
        a=Kind.TERM,
        b=Kind.TERM,
        n=Kind.INT,
        out=Kind.SHAPE,
        strides=Kind.SHAPE,
        dilations=Kind.SHAPE,
        starts=Kind.INTS,
        tile=Kind.INT,
    ),
    check=_check,
    result=lambda a, b, n, out, strides, dilations, starts, tile: (
        a.with_dims(a.dims.take(a.split - out.length).append(b.dims.take(b.split - out.length).drop(n)).append(out))
        .with_split(a.split + b.split - n - out.length)
        .widened()
    ),
    evaluate=_evaluate,
    stores=lambda *_: True,
    doc="The dot-product of (G, A, positions)(I) and (G, B, window)(I), its windows added up: element u of the window "
    "of position m is added at index stride m + dilation u - start of the result (G, A, B, out)(), or dropped outside. "
    "It computes at most `tile` positions at a time, and holds only their products besides the result.",
    keeps=Keeps.ZERO,
    matrices=lambda a, b, n, *_: matrices_of(a, b, n),
    typed=True,
    adjoint=_adjoint,
    scratch=_scratch,
    moved=_moved,
    operations=lambda a, b, n, *_: a.shape.product() * b.shape.drop(n).product() * (a.item.product() + 1),
    examples=example(
        "(overlap-add-product (access (access-tensor x) 2) (access (access-tensor y) 2) 0 (shape 9) "
        "(shape 2) (shape 1) (list 0) 2)",
        x="m 4 k",
        y="n 3 k",
    ),
)
