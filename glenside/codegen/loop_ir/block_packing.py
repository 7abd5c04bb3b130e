"""Packed operands of products of integers with scales for blocks: unsigned integers, and sums of blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from glenside.codegen.loop_ir.affine_analysis import at
from glenside.codegen.loop_ir.ir import Formula, Let, Load, Local, Packing, Statement, Store
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index, flattened
from glenside.ir.operand import Array


@dataclass(frozen=True)
class OffsetPacking(Packing):
    """Packed signed integers, with a number added that makes them unsigned. Its blocks need no padding."""

    offset: int = 0

    def value(self, load: Load) -> Formula:
        return convert(apply("add", convert(load, "int32"), number(self.offset, "int32")), self.buffer.dtype)

    def packed(self, elements: Array) -> Array:
        """Returns the packed values of elements of the source."""
        return (elements.astype(np.int16) + self.offset).astype(RECORDS[self.buffer.dtype].numpy)


@dataclass(frozen=True)
class BlockSums(Packing):
    """Sums of blocks of integers times a factor, as int32: `outer` are the axes of blocks, `inner` those within one."""

    factor: int = 1

    def statements(self) -> tuple[Statement, ...]:
        limits = (*self.limits, *(0 for _ in self.outer[len(self.limits) :]))
        outer = [Axis(i, n, limit) for i, ((n, _), limit) in enumerate(zip(self.outer, limits, strict=True))]
        inner = [Axis(i, n) for i, (n, _) in enumerate(self.inner, len(outer))]
        place, total = Index() + self.first, Local("sum_of_block", "int32")
        for axis, (_, stride) in zip((*outer, *inner), (*self.outer, *self.inner), strict=True):
            place = place + at(axis) * stride
        added = apply("add", total, convert(Load(self.source, place), "int32"))
        own = flattened([at(axis) for axis in outer], [axis.size for axis in outer])
        stored = Store(self.buffer, own, apply("multiply", total, number(self.factor, "int32")))
        sums = around(inner, [Let(total, added, known=True)])
        return tuple(around(outer, [Let(total, number(0, "int32")), *sums, stored]))

    def values(self, places: Array, source: Callable[[Array], Array]) -> Array:
        """Returns the sums at indices; `source` returns elements of the source at indices."""
        starts, left = np.full(places.shape, self.first, np.int64), places
        for size, stride in reversed(self.outer):
            left, own = np.divmod(left, size)
            starts = starts + own * stride
        within = np.zeros(prod(n for n, _ in self.inner), np.int64)
        left = np.arange(within.size)
        for size, stride in reversed(self.inner):
            left, own = np.divmod(left, size)
            within = within + own * stride
        return np.asarray(source(starts[..., None] + within).sum(-1, dtype=np.int32) * np.int32(self.factor))
