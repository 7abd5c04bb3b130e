"""Register tiles of products of integers that have a scale for each block of steps, on both sides.

    sum over b, i of (q[r, b, i] s[r, b]) (w[n, b, i] t[n, b]) = sum over b of s[r, b] t[n, b] (sum over i of q w)

The inner sums are exact, in int32. An instruction adds four products of a signed and an unsigned byte, so weights are
packed with an offset that makes them unsigned, and each inner sum starts at minus the offset times the sum of q.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from math import prod

from glenside.codegen.emit_c.nibbles import NIBBLES, WIDE_HALF
from glenside.codegen.loop_ir.affine_analysis import at, changed, coefficient, substituted
from glenside.codegen.loop_ir.block_packing import BlockSums, OffsetPacking
from glenside.codegen.loop_ir.compute_block import Block, ScheduledBlock
from glenside.codegen.loop_ir.intrinsics import DOT_4_SIGNED, DOT_4_TURNED, DOT_16, QUADS, Instruction
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Convert,
    For,
    Formula,
    Load,
    Packing,
    Role,
    Statement,
    Store,
    Way,
)
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.dot_product_tiles import DeepTiles
from glenside.codegen.scheduling.operand_packing import panels_computed
from glenside.codegen.scheduling.register_tiling import TilingDecision
from glenside.codegen.scheduling.tile_partition import Tile, TilePosition
from glenside.ir.dtypes import limits
from glenside.ir.index_map import Axis, Index, flattened
from glenside.ir.types import Dims

_DEEP = 4


@dataclass(frozen=True)
class _Scaled:
    """An operand: integers times a scale, which may be stored in 16 bits."""

    integers: Load
    scale: Load
    scales: Formula


def _scaled(formula: Formula) -> _Scaled | None:
    """Matches integers that are cast to float32 and multiplied by a scale; returns None for other formulas."""
    if not isinstance(formula, Apply) or formula.primitive.name != "multiply":
        return None
    for one, other in (formula.operands, formula.operands[::-1]):
        narrow = isinstance(one, Convert) and not one.bits and one.formula.dtype in ("int8", "uint8", *NIBBLES)
        scale = other.formula if isinstance(other, Convert) and not other.bits else other
        if narrow and isinstance(one, Convert) and isinstance(one.formula, Load) and isinstance(scale, Load):
            return None if one.formula.picked or scale.picked else _Scaled(one.formula, scale, other)
    return None


class BlockTiles(DeepTiles):
    """Register tiles with an int32 accumulator for the current block beside each float32 accumulator."""

    deep = _DEEP
    nothing = number(0, "int8")

    def __init__(self, block: Block, axes: Iterator[int], machine: Machine) -> None:
        super().__init__(block, axes, machine)
        self.pair = self._factors() if self.has_columns else None
        self.dot = self._instruction() if self.pair else DOT_4_TURNED
        self.quads = QUADS if self.dot is DOT_16 else 1
        self.at_once = self.quads * _DEEP if self.pair else 1
        self.integers: dict[Buffer, Buffer] = {}
        self.sums: BlockSums | None = None
        self.first: Formula = number(0, "int32")

    @property
    def is_possible(self) -> bool:
        return self.pair is not None and super().is_possible

    @property
    def in_blocks(self) -> bool:
        return True

    @property
    def operands(self) -> tuple[Load, Load] | None:
        return (self.pair[0].integers, self.pair[1].integers) if self.pair else None

    def _factors(self) -> tuple[_Scaled, _Scaled] | None:
        """Returns the operand that is the same for all columns, and the packed one, if both are scaled integers."""
        element, joined = self.joined.element, self.joined
        if joined.combine != "add" or not isinstance(element, Apply) or element.primitive.name != "multiply":
            return None
        found = [_scaled(operand) for operand in element.operands]
        same, packed = found if found[1] is None or found[1].integers in self.packed else found[::-1]
        if same is None or packed is None or {*self.packed} != {packed.integers, packed.scale}:
            return None
        varies = any(coefficient(load.place, self.columns) for load in (same.integers, same.scale))
        if same.integers.dtype != "int8" or varies:
            return None
        scales = (same.scale.place, packed.scale.place)
        inner = [a for a in joined.axes if a.size != 1 and not any(coefficient(place, a) for place in scales)]
        along = [coefficient(same.integers.place, axis) for axis in inner]
        fits = prod(axis.size for axis in inner) * 128 * 255 < 1 << 31
        return (same, packed) if along == [1] and inner[0].size % _DEEP == 0 and fits else None

    def _instruction(self) -> Instruction:
        """Returns the instruction that adds products: in 16 bits where these hold the products of both operands."""
        assert self.pair, "there are factors"
        same, packed = (own.integers for own in self.pair)
        depth = prod(axis.size for axis in self.joined.axes if coefficient(same.place, axis) == 1)
        if self.machine.shorts and packed.dtype in NIBBLES and depth % (QUADS * _DEEP) == 0:
            return DOT_16
        return (
            DOT_4_SIGNED if self.machine.shorts and packed.dtype == "int8" and same.buffer.symmetric else DOT_4_TURNED
        )

    def _registers(self, sums: int, width: int) -> int:
        """Counts two accumulators for each sum, or one where a block has few instructions: the other one may spill."""
        return 2 * sums + width + 2 if self.quads == 1 else sums + self.quads * min(width, sums // width)

    def _depends(self, load: Load, group: Sequence[Axis]) -> bool:
        return any(coefficient(load.place, axis) for axis in group)

    def _packing(self, load: Load, inner: Sequence[Axis], place: int) -> Packing:
        assert self.pair, "there are factors"
        if load != self.pair[1].integers:
            return super(DeepTiles, self)._packing(load, inner, place)
        found = super()._packing(load, inner, place)
        if self.dot is DOT_4_SIGNED:
            return found
        bits, offset = (4 if load.dtype in NIBBLES else 8), self._offset
        halves = bits == 4 and found.buffer.dims.product() % (2 * WIDE_HALF) == 0 and found.depth % WIDE_HALF == 0
        name = f"{load.buffer.name}.unsigned"
        dtype, role = f"uint{bits}", found.buffer.role
        buffer = Buffer(name, found.buffer.dims, dtype, role, WIDE_HALF if halves else 0)
        fields = {field.name: getattr(found, field.name) for field in dataclass_fields(found)}
        return OffsetPacking(**{**fields, "buffer": buffer}, offset=offset)

    @property
    def _offset(self) -> int:
        """Returns the number that is added to packed weights: it makes them unsigned, if the instruction wants that."""
        assert self.pair, "there are factors"
        return 0 if self.dot is DOT_4_SIGNED else -limits(self.pair[1].integers.dtype)[0]

    def apply(self, decision: TilingDecision) -> ScheduledBlock:
        found = super().apply(decision)
        return replace(found, packings=(*found.packings, self.sums)) if self.sums else found

    def _order_sum(self) -> None:
        super()._order_sum()
        if self._offset:
            self.first = self._sums_of_blocks()

    def _sums_of_blocks(self) -> Load:
        """Returns minus the offset of weights times the sum of a block of the other operand, which is packed."""
        assert self.pair, "there are factors"
        same, outer = self.pair[0].integers, self.sum[:-1]
        own = [a for a in (*self.block.around, *self.block.axes) if coefficient(same.place, a)]
        (last,) = self.groups[-1]
        place = substituted(same.place, self.at_sum)
        strides = [*(coefficient(same.place, a) for a in own), *(coefficient(place, a) for a in outer)]
        sizes = [axis.size for axis in (*own, *outer)]
        buffer = Buffer(f"{same.buffer.name}.sums", Dims((prod(sizes),)), "int32", Role.TEMPORARY)
        axes, limits = tuple(zip(sizes, strides, strict=True)), tuple(axis.limit for axis in own)
        inner, first = ((last.size, 1),), same.place.constant
        self.sums = BlockSums(buffer, same.buffer, first, axes, inner, 1, (), limits=limits, factor=-self._offset)
        return Load(buffer, flattened([*map(at, own), *map(at, outer)], sizes))

    def _copied(self, piece: tuple[int, int, int, int], tiles: int) -> dict[Formula, Buffer]:
        """Returns the panel in which the first of many tiles stores weights of 4 bits as bytes for the others."""
        assert self.pair, "there are factors"
        packing = self.packings[self.pair[1].integers]
        if not packing.buffer.nibbles:
            return {}
        size = Dims((packing.depth, piece[1] * piece[2]))
        load = Load(packing.buffer, Index())
        return panels_computed([convert(load, "uint8")], size, tiles, self.machine)

    def _summed(self, tile: Tile, position: TilePosition | None) -> list[Statement]:
        """Returns the loops over blocks of a tile: sums of integers, then their scales."""
        assert self.pair, "there are factors"
        name = f"{tile.registers.name}block"
        integers = self.integers[tile.registers] = Buffer(name, tile.registers.dims, "int32", Role.REGISTER)
        blocks, whole = self.sum[:-1], self.sum[-1]
        each = Axis(next(self.axes), whole.size // self.at_once)
        together = self._together(tile, at(each) * self.quads, self.at_once, position)
        steps = self.stepped(each, together, each.size, tile)
        scales = [self._element(one.scales, tile, tile.change, tile.column) for one in self.pair]
        total = Load(tile.registers, tile.own)
        scaled = apply("multiply", convert(Load(integers, tile.own), "float32"), apply("multiply", *scales))
        body = [
            *self._panel_stored(tile),
            *tile.each(Store(integers, tile.own, changed(self.first, tile.change))),
            *steps,
            *tile.each(Store(total.buffer, total.place, apply("add", total, scaled))),
        ]
        for axis in reversed(blocks):
            body = [For(axis, tuple(body))]
        return body

    def _panel_stored(self, tile: Tile) -> list[Statement]:
        """Returns the stores of a block of weights to the panel, as bytes."""
        if not self.copied or not tile.copies:
            return []
        assert self.operands, "there are factors"
        ((_, panel),) = self.copied.items()
        packed = self.operands[1]
        packing, whole = self.packings[packed], self.sum[-1]
        count = whole.size * tile.width
        lanes = min(4 * tile.lane.size, count)
        vector, lane = Axis(next(self.axes), count // lanes), Axis(next(self.axes), lanes)
        blocks = flattened([at(axis) for axis in self.sum[:-1]], [axis.size for axis in self.sum[:-1]])
        own = blocks * count + at(vector) * lanes + at(lane)
        place = self._start_of_panel(tile, packed) + own
        store: Statement = For(lane, (Store(panel, own, convert(Load(packing.buffer, place), "uint8")),), Way.VECTOR)
        return [For(vector, (store,), Way.UNROLLED)] if vector.size > 1 else [store]

    def several(self, tile: Tile, same: Sequence[Formula], block: Sequence[Load]) -> list[Statement]:
        assert self.operands, "there are factors"
        if self.copied:  # the first tile has stored the panel
            ((_, panel),) = self.copied.items()
            start = self._start_of_panel(tile, self.operands[1])
            block = [Load(panel, load.place - start) for load in block]
        total = Load(self.integers[tile.registers], tile.own)
        shift = (number(0, "uint8"),) if self.dot is DOT_4_TURNED else ()
        value = Apply(self.dot, (total, *shift, *same, *block), "int32")
        return tile.each(Store(total.buffer, total.place, value))
