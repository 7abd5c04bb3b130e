"""Matrix products by a bfloat16 matrix unit with float32 accumulators; a float32 operand is split into three bfloat16.

With x = x0 + x1 + x2, each a bfloat16, x y is the sum of six partial products. The dropped terms, x1 y2 + x2 y1 +
x2 y2, are less than 2^-25 of x y: half a unit in the last place of a float32. The unit adds 32 products in two chains
of 16, then adds their sum to an accumulator. A reduction of K terms has 6 K / 32 + 17 roundings in all; a sequential
sum has K.

Operands are packed as [block of lines][chunk of 32 reduction steps][part][line][step]. Rows keep this order; columns
are in pairs of steps, [16 lines][pair][line][2]. A block has the lines of two registers. A tile has the rows of one
block and the columns of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.affine_analysis import at, substituted
from glenside.codegen.loop_ir.intrinsics import PARTS
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    For,
    Formula,
    Load,
    Number,
    Packing,
    Prefetch,
    Statement,
    Store,
    Way,
)
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.scalar_expr import apply, convert
from glenside.codegen.processor.model import Machine
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index, flattened
from glenside.ir.operand import Array

CHUNK = 32
"""Reduction steps of one instruction."""
COLUMNS = 32
"""Columns of a tile: two registers of 16."""
_LANES = 16
_LINE = 32
"""2-byte elements of a cache line."""
PRODUCTS = {1: ((0, 0),), 3: ((0, 0), (0, 1), (0, 2), (1, 1), (1, 0), (2, 0))}
"""Number of parts -> the pairs (part of rows, part of columns) that are multiplied, in the unit's order."""


@dataclass(frozen=True)
class PartPacking(Packing):
    """A packed matrix operand, split into bfloat16 parts.

    inner   (size, stride) of the reduction axes; the last axis is cut into chunks and padded with zeros
    lines   (size, stride) of the axes of lines, flattened; padded with zeros after the last line
    height  lines of a block
    parts   3 for float32, 1 for bfloat16
    paired  True if the operand is the columns
    """

    lines: tuple[tuple[int, int], ...] = ()
    height: int = COLUMNS
    parts: int = 3
    paired: bool = False

    @property
    def count(self) -> int:
        """Returns the number of lines."""
        return prod(n for n, _ in self.lines)

    @property
    def blocks(self) -> int:
        return -(-self.count // self.height)

    @property
    def run(self) -> int:
        """Returns the size of the last reduction axis."""
        return self.inner[-1][0]

    @property
    def chunks(self) -> int:
        """Returns the number of chunks of a line."""
        return prod(n for n, _ in self.inner[:-1]) * -(-self.run // CHUNK)

    @property
    def chunk(self) -> int:
        """Returns the elements of a chunk of a block, over all parts."""
        return self.parts * self.height * CHUNK

    @property
    def depth(self) -> int:
        return self.chunks * CHUNK * self.parts

    def place(self, block: Index, chunk: Index, part: int, line: Index, step: Index) -> Index:
        """Returns the packed index of a block's line, at a step of a chunk, in a part."""
        begin = (block * self.chunks + chunk) * self.chunk + part * (self.height * CHUNK)
        if not self.paired:
            return begin + line * CHUNK + step
        half = _LANES * CHUNK
        return begin + line // _LANES * half + step // 2 * CHUNK + line % _LANES * 2 + step % 2

    def statements(self) -> tuple[Statement, ...]:
        outer = tuple(Axis(i, n) for i, (n, _) in enumerate(self.outer))
        numbers = iter(range(len(outer), 1 << 30))
        place = flattened([at(a) for a in outer], [n for n, _ in self.outer]) * self.blocks
        start = Index() + self.first
        for axis, (_, stride) in zip(outer, self.outer, strict=True):
            start = start + at(axis) * stride
        whole, rest = divmod(self.count, self.height)
        body: list[Statement] = []
        for first, times, filled in ((0, whole, self.height), (whole, 1, rest)):
            if filled and times:
                block = Axis(next(numbers), times)
                here = at(block) + first
                found = self.filling(place + here, here * self.height, filled, start, numbers)
                body += around([block], found)
        return tuple(around(outer, body))

    def filling(self, block: Index, first: Index, filled: int, start: Index, numbers: Iterator[int]) -> list[Statement]:
        """Returns the loops that fill `block` with `filled` lines from line `first` on, and pad the others with zeros.

        start  source index of line 0
        """
        made: list[Statement] = []
        outer = [Axis(next(numbers), n) for n, _ in self.inner[:-1]]
        whole = flattened([at(a) for a in outer], [n for n, _ in self.inner[:-1]]) * -(-self.run // CHUNK)
        for count, line_start in ((filled, 0), (self.height - filled, filled)):
            together = _LANES if self.paired else 1
            rows = [Axis(next(numbers), n) for n in (count // together, together)]
            line = at(rows[0]) * together + at(rows[1]) + line_start
            for lane, inside, chunk, within in self._steps(numbers) if count else ():
                step = chunk * CHUNK + within
                is_value = line_start == 0 and step.bounds[1] < self.run
                stores = []
                for part in range(self.parts):
                    value: Formula = Number(Fraction(0), self.buffer.dtype)
                    if is_value:
                        value = Load(self.source, self._read(start, first + line, outer, step))
                        value = value if self.parts == 1 else Apply(PARTS[part], (value,), self.buffer.dtype)
                    stores.append(Store(self.buffer, self.place(block, whole + chunk, part, line, within), value))
                whole_vectors = lane.size == _LANES and is_value and not self.paired
                body = [For(lane, tuple(stores), Way.VECTOR)] if whole_vectors else around([lane], stores)
                made += around([*rows, *outer, *inside], body)
        return made

    def _steps(self, numbers: Iterator[int]) -> Iterator[tuple[Axis, list[Axis], Index, Index]]:
        """Yields the loops over the last reduction axis: full vectors, then single values, then zeros.

        Each is (innermost axis, axes around it, chunk, step in the chunk).
        """
        chunks, rest = divmod(self.run, CHUNK)
        pieces = [(chunks, 0, 0, CHUNK // _LANES, _LANES)] if chunks else []
        if rest:
            vectors = rest // _LANES
            pieces += [
                (1, chunks, begin, times, size)
                for begin, times, size in (
                    (0, vectors, _LANES),
                    (vectors * _LANES, 1, rest % _LANES),
                    (rest, 1, CHUNK - rest),
                )
            ]
        for times, first, begin, count, size in pieces:
            for start, number, each in _pairs(begin, count * size) if self.paired else [(begin, count, size)]:
                if number and each:
                    chunk, part, step = (Axis(next(numbers), n) for n in (times, number, each))
                    yield step, [chunk, part], at(chunk) + first, at(part) * each + start + at(step)

    def _read(self, start: Index, line: Index, outer: Sequence[Axis], step: Index) -> Index:
        place = start
        for axis, (_, stride) in zip(outer, self.inner, strict=False):
            place = place + at(axis) * stride
        for size, stride in reversed(self.lines):
            place = place + (line % size if len(self.lines) > 1 else line) * stride
            line = line // size if len(self.lines) > 1 else line
        return place + step * self.inner[-1][1]

    def fill(self, packed: Array, source: Array) -> None:
        """Fills `packed` from `source` in numpy, as the loops of `statements` do."""
        groups, high, steps = prod(n for n, _ in self.outer), self.blocks, -(-self.run // CHUNK) * CHUNK
        sizes = [*(n for n, _ in self.outer), *(n for n, _ in self.lines), *(n for n, _ in self.inner)]
        strides = [s * source.itemsize for _, s in (*self.outer, *self.lines, *self.inner)]
        flat = source.reshape(-1)[self.first :]
        found = np.lib.stride_tricks.as_strided(flat, sizes, strides, writeable=False)
        whole = np.zeros((groups, high * self.height, self.chunks * CHUNK // steps, steps), source.dtype)
        whole[:, : self.count, :, : self.run] = found.reshape(groups, self.count, -1, self.run)
        lines = whole.reshape(groups, high, self.height, self.chunks, CHUNK)
        order: Any = (0, 1, 3, 2, 4)
        if self.paired:
            lines = lines.reshape(groups, high, -1, _LANES, self.chunks, CHUNK // 2, 2)
            order = (0, 1, 4, 2, 5, 3, 6)
        lines = lines.transpose(order).reshape(groups, high, self.chunks, -1)
        kept = packed.reshape(groups, high, self.chunks, self.parts, -1)
        half = RECORDS[self.buffer.dtype].numpy
        for part in range(self.parts):
            near = lines.astype(half)
            kept[..., part, :] = near
            if part + 1 < self.parts:
                lines = lines - near.astype(source.dtype)


def _pairs(begin: int, count: int) -> list[tuple[int, int, int]]:
    """Splits steps into (first, count, width): a leading half pair, whole pairs, a trailing half pair."""
    half = min(begin % 2, count)
    pairs, last = divmod(count - half, 2)
    found = [(begin, half, 1), (begin + half, pairs, 2), (begin + half + 2 * pairs, last, 1)]
    return [piece for piece in found if piece[1]]


@dataclass(frozen=True)
class MatrixProduct:
    """A tile of a matrix product, the meaning of a `Way.MATRIX` loop: `sums` (rows)(COLUMNS) = packed rows x columns.

    first       index of the tile in `sums`; `of_rows` and `of_columns` are its indices in `a` and `b`
    rows        rows of the tile, of both registers
    parts       parts of each factor
    steps       chunks of the reduction
    later       prefetch of later columns: index in `b`, and cache lines per product of a chunk
    adds        True if the product is added to `sums`, False if it replaces them
    """

    sums: Buffer
    a: Buffer
    b: Buffer
    first: Index
    of_rows: Index
    of_columns: Index
    rows: int
    parts: int
    steps: int
    later: tuple[Index, int] = (Index(), 0)
    adds: bool = False

    def statement(self, numbers: Iterator[int]) -> For:
        """Returns loops that compute the product; the unit adds the same terms in another order."""
        sizes = self.steps, CHUNK // 2, 2, self.rows, COLUMNS // _LANES, _LANES
        step, pair, one, row, half, column = axes = [Axis(next(numbers), n) for n in sizes]
        place = self.first + at(row) * COLUMNS + at(half) * _LANES + at(column)
        own_rows, own_columns = self.rows * CHUNK, COLUMNS * CHUNK
        adds = []
        for p, q in PRODUCTS[self.parts]:
            a = self.of_rows + (at(step) * self.parts + p) * own_rows + at(row) * CHUNK + at(pair) * 2 + at(one)
            b = self.of_columns + (at(step) * self.parts + q) * own_columns + at(half) * (_LANES * CHUNK)
            b = b + at(pair) * CHUNK + at(column) * 2 + at(one)
            product = apply("multiply", *(convert(Load(x, i), "float32") for x, i in ((self.a, a), (self.b, b))))
            adds.append(Store(self.sums, place, apply("add", Load(self.sums, place), product)))
        body = around(axes, adds)
        if not self.adds:
            zero = Store(self.sums, place, Number(Fraction(0), "float32"))
            body = [*around((row, half, column), [zero]), *body]
        asked, count = self.later
        count *= len(PRODUCTS[self.parts])
        if count:
            line, step = Axis(next(numbers), count), Axis(next(numbers), self.steps)
            asked = asked + (at(step) * count + at(line)) * _LINE
            body = [*body, *around((step, line), [Prefetch(self.b, asked, far=True)])]
        return For(Axis(next(numbers), 1), tuple(body), Way.MATRIX)

    def touches(self) -> Iterator[tuple[Buffer, Index, int]]:
        """Yields the contiguous ranges that the product touches: (buffer, first index, elements)."""
        yield self.sums, self.first, self.rows * COLUMNS
        yield self.a, self.of_rows, self.steps * self.parts * self.rows * CHUNK
        yield self.b, self.of_columns, self.steps * self.parts * COLUMNS * CHUNK


_TILE = 60
"""Cycles to start a tile and to store it."""
_PER_CHUNK = 0.55
"""Fixed part of a chunk's time, as a fraction of the time with 16 rows in each register: measured on a Xeon."""


def cycles(machine: Machine, rows: int, parts: int, steps: int) -> float:
    """Returns the predicted cycles of a tile; `steps`: its chunks. The cost of a chunk is affine in `rows`."""
    products = 2 * _LANES * COLUMNS * CHUNK * len(PRODUCTS[parts])
    return _TILE + steps * products / machine.matrix * (_PER_CHUNK + (1 - _PER_CHUNK) * rows / (2 * _LANES))


def product_of(loop: For) -> MatrixProduct:
    """Returns the matrix product that a `Way.MATRIX` loop computes; the inverse of `MatrixProduct.statement`."""
    *_, adding = (part for part in loop.body if any(_stores([part])))
    adds, within = list(_stores([adding])), _axes(adding)
    parts = {len(pairs): parts for parts, pairs in PRODUCTS.items()}[len(adds)]
    (a, b), (row, *_) = _factors(adds[0]), within[-3:]
    steps, asked = prod(axis.size for axis in within[:-5]), loop.body[-1]
    every = (*within, *_axes(asked))

    def begin(index: Index) -> Index:
        return substituted(index, dict.fromkeys(every, Index()))

    later = Index(), 0
    lines = prod(axis.size for axis in _axes(asked))
    while isinstance(asked, For):
        asked = asked.body[0]
    if isinstance(asked, Prefetch):
        later = begin(asked.place), lines // (steps * len(adds))
    return MatrixProduct(
        adds[0].buffer,
        a.buffer,
        b.buffer,
        begin(adds[0].place),
        begin(a.place),
        begin(b.place),
        row.size,
        parts,
        steps,
        later,
        loop.body[0] is adding,
    )


def _stores(body: Sequence[Statement]) -> Iterator[Store]:
    for statement in body:
        if isinstance(statement, For):
            yield from _stores(statement.body)
        elif isinstance(statement, Store):
            yield statement


def _axes(statement: Statement) -> list[Axis]:
    found = []
    while isinstance(statement, For):
        found.append(statement.axis)
        statement = statement.body[0]
    return found


def _factors(add: Store) -> tuple[Load, Load]:
    assert isinstance(add.formula, Apply), "it adds"
    product = add.formula.operands[1]
    assert isinstance(product, Apply), "it multiplies"
    a, b = (operand.formula for operand in product.operands if hasattr(operand, "formula"))
    assert isinstance(a, Load), "rows are packed"
    assert isinstance(b, Load), "columns are packed"
    return a, b
