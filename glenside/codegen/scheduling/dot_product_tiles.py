"""Register tiles with dot-product instructions: each step adds several products of adjacent reduction elements.

One factor is the same for all columns; the other is packed as [panel][step][column][deep].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from glenside.codegen.loop_ir.affine_analysis import at, coefficient, substituted
from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.intrinsics import DOT_2
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Convert,
    Formula,
    Load,
    Number,
    Packing,
    Prefetch,
    Statement,
    Store,
)
from glenside.codegen.loop_ir.scalar_expr import number
from glenside.codegen.memory.buffer_arena import LINE, in_line
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.register_tiling import Tiles
from glenside.codegen.scheduling.tile_partition import Tile, TilePosition
from glenside.ir.index_map import Axis, Index, flattened
from glenside.ir.types import Dims

_LINES_AHEAD = 128
"""Cache lines by which a stream of weights is prefetched: by 5 to 12 % faster than the next panel, on a Xeon."""
_LONG = 16
"""The fewest reduction steps with which an odd last step does not matter."""


class DeepTiles(Tiles):
    """Register tiles in which a step adds `deep` products to each accumulator, if there are `operands` for that.

    nothing  padding of the operand after the end of the reduction
    quads    groups of `deep` products that one instruction adds
    """

    deep = 1
    quads = 1
    nothing: Number

    @property
    def operands(self) -> tuple[Load, Load] | None:
        """Returns the operand that is the same for all columns and the packed one; None if steps add one product."""
        return None

    def several(self, tile: Tile, same: Sequence[Formula], block: Sequence[Load]) -> list[Statement]:
        """Returns the statements of a step, from `deep` elements of the common operand and of each column."""
        raise NotImplementedError

    def _packing(self, load: Load, inner: Sequence[Axis], place: int) -> Packing:
        found = super()._packing(load, inner, place)
        if not self.operands:
            return found
        found = replace(found, deep=self.deep, together=len(self.groups[-1]) if self.groups else 0)
        size = prod(n for n, _ in found.outer) * found.depth * self.columns.size
        return replace(found, buffer=Buffer(found.buffer.name, Dims((size,)), load.dtype, found.buffer.role))

    def _summed(self, tile: Tile, position: TilePosition | None) -> list[Statement]:
        if not self.operands:
            return super()._summed(tile, position)
        whole = self.sum[-1] if self.sum else Axis(next(self.axes), 1)
        count, tail = divmod(whole.size, self.deep)
        each = Axis(next(self.axes), count)
        steps = self._together(tile, at(each), self.deep, position) if count else []
        steps = self.stepped(each, steps, count, tile) if count else []
        steps += self._together(tile, Index() + count, tail, position) if tail else []
        written = count + bool(tail)
        for axis in reversed(self.sum[:-1]):
            written *= axis.size
            steps = self.stepped(axis, steps, written, tile)
        return steps

    def _start_of_panel(self, tile: Tile, packed: Load) -> Index:
        """Returns the index of the first element of a tile's panel in the packed operand."""
        place, depth = Index(), self.packings[packed].depth
        for axis in (*self.block.around, *self.block.axes):
            if axis != self.columns and coefficient(packed.place, axis):
                place = place * axis.size + at(axis)
        place = tile.change(place * (depth * self.columns.size) + tile.begin * depth)
        return place + at(tile.panel) * (depth * tile.width)

    def _together(self, tile: Tile, step: Index, taken: int, position: TilePosition | None) -> list[Statement]:
        """Returns the products of `taken` steps of the last reduction axis, and the prefetch of the next panel."""
        assert self.operands, "there are factors"
        same, packed = self.operands
        packing, deep, quads = self.packings[packed], self.deep, self.quads
        outer, last = self.sum[:-1], self.sum[-1:]
        within = flattened([*map(at, outer), step], [*(n.size for n in outer), -(-prod(n.size for n in last) // deep)])
        depth, width = packing.depth, tile.width
        place = self._start_of_panel(tile, packed) + within * (width * deep) + tile.column * deep
        block = [Load(packing.buffer, place + n * width * deep + i) for n in range(quads) for i in range(deep)]
        start = tile.change(same.place)
        ends = [substituted(start, {axis: step * deep + i for axis in last}) for i in range(taken)]
        left = [self.nothing] * (quads * deep - taken)
        found = self.several(tile, [*(replace(same, place=end) for end in ends), *left], block)
        if position is not None and position.is_alone:  # each panel is read once: a stream
            line = LINE * packing.buffer.dims.product() // packing.buffer.bytes
            begin = substituted(place - tile.column * deep, {tile.row: Index()}) + _LINES_AHEAD * line
            found = [*(Prefetch(packing.buffer, begin + n) for n in range(0, quads * width * deep, line)), *found]
        elif position is not None and depth >= 16 * deep:
            next_panel = place - tile.column * deep - within * (width * deep)
            next_panel = next_panel + depth * (self.columns.size if position.grouped else width)
            next_panel = substituted(next_panel, {tile.row: Index()})  # outside the loops over rows
            share, line = -(-width * deep // position.count), in_line(packed.dtype)
            later = (position.place * (depth // deep) + within) * share
            found = [*(Prefetch(packing.buffer, next_panel + later + n) for n in range(0, quads * share, line)), *found]
        return found


class PairTiles(DeepTiles):
    """Register tiles with float32 accumulators and pairs of bfloat16 products, for processors with that instruction.

    Each product is exact and added with one rounding, as in float32; subnormal numbers flush to 0.
    """

    deep = 2
    nothing = number(0, "bfloat16")

    def __init__(self, block: Block, axes: Iterator[int], machine: Machine) -> None:
        super().__init__(block, axes, machine)
        self.pair = self._factors() if self.has_columns and machine.pairs else None
        self.at_once = 2 if self.pair else 1

    @property
    def operands(self) -> tuple[Load, Load] | None:
        return self.pair

    @property
    def rate(self) -> float:
        return self.machine.pairs

    @property
    def is_possible(self) -> bool:
        return self.pair is not None and super().is_possible

    def _factors(self) -> tuple[Load, Load] | None:
        """Returns the factors if one is the same for all columns and contiguous along the reduction, else None."""
        element = self.joined.element
        if self.joined.combine != "add" or not isinstance(element, Apply) or element.primitive.name != "multiply":
            return None
        found = [o.formula for o in element.operands if isinstance(o, Convert) and not o.bits]
        loads = [load for load in found if isinstance(load, Load) and load.dtype == "bfloat16" and not load.picked]
        if len(loads) < 2 or self.dtype != "float32" or len(self.packed) != 1 or self.packed[0] not in loads:
            return None
        same = loads[1] if loads[0] == self.packed[0] else loads[0]
        if same == self.packed[0] or coefficient(same.place, self.columns) or not self._is_run(same):
            return None
        return same, self.packed[0]

    def _is_run(self, same: Load) -> bool:
        """True if pairs are contiguous along the reduction and few are incomplete: else gathering costs more than pairs
        save.
        """
        along = [axis for axis in self.joined.axes if coefficient(same.place, axis) == 1]
        return not self.joined.axes or any(axis.size % 2 == 0 or axis.size >= _LONG for axis in along)

    def several(self, tile: Tile, same: Sequence[Formula], block: Sequence[Load]) -> list[Statement]:
        total = Load(tile.registers, tile.own)
        return tile.each(Store(total.buffer, total.place, Apply(DOT_2, (total, *same, *block), self.dtype)))
