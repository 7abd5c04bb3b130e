"""Register tiling: splits, orders, unrolls and vectorizes a block's loops so that accumulators stay in registers.

A tile is an output-stationary array of rows x columns. The columns are contiguous in the result and vectorized; along
the rows at least one operand does not change. Constants, and other operands where it pays, are read from a packed copy,
[panel][reduction step][column], which a tile reads sequentially.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from glenside.codegen.emit_c.nibbles import HALF
from glenside.codegen.loop_ir.affine_analysis import (
    Change,
    at,
    changed,
    coefficient,
    is_affine,
    joined_axes,
    loads_in,
    merged,
    substituted,
    with_merged,
)
from glenside.codegen.loop_ir.compute_block import Block, ScheduledBlock
from glenside.codegen.loop_ir.intrinsics import MAX_INTERLEAVE
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Convert,
    Fence,
    For,
    Formula,
    Load,
    Number,
    Packing,
    Role,
    Statement,
    Store,
    Way,
)
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.open_axes import axis_of, bytes_assumed, is_open
from glenside.codegen.loop_ir.scalar_expr import apply, with_local
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.open_pieces import width_of
from glenside.codegen.scheduling.operand_packing import (
    is_near,
    packed_for_rows,
    packing_of,
    panels_computed,
    panels_copied,
    with_first_alone,
)
from glenside.codegen.scheduling.prefetch import Reads, asked_of_packed, next_tile, run_ahead
from glenside.codegen.scheduling.tile_partition import (
    Tile,
    TilePosition,
    least_lanes,
    pieces_of,
    position_in_panel,
    rows_of,
    tiles_of_rows,
)
from glenside.codegen.scheduling.vectorize import LEAST_AT_ONCE, in_vectors, is_long, lanes_in, lanes_of, spread
from glenside.ir.index_map import Axis, Index, flattened
from glenside.ir.types import Dims

_UNROLLED = 9
"""The most reduction steps that are unrolled."""


@dataclass(frozen=True)
class TilingDecision:
    """The axes of register tiles, and their size.

    columns  the vectorized axis
    packed   operands that are packed, so that columns are contiguous
    rows     axes of the rows of a tile, the outer one first; none without rows
    height   rows of a tile, in units of all of the inner axis of rows
    width    columns of a tile, in vectors
    """

    columns: Axis
    packed: tuple[Load, ...]
    rows: tuple[Axis, ...]
    height: int
    width: int


class Tiles:
    """A schedule of rows x columns of accumulators in registers; each reduction step adds products to every one.

    at_once  products that a step adds to an accumulator
    """

    at_once = 1

    def __init__(self, block: Block, axes: Iterator[int], machine: Machine) -> None:
        self.axes, self.machine = axes, machine
        self.block = with_merged(block, axes)
        (self.joined,) = self.block.joined
        self.dtype = self.joined.local.dtype
        self.lanes = lanes_of(self.dtype, machine)
        self.least = min(self.lanes, least_lanes(self.dtype))
        self.steps = prod(a.likely for a in (*self.block.around, *self.block.axes, *self.joined.axes))
        self.loads = list(dict.fromkeys(loads_in(self.joined.element)))
        self.of_rows: dict[Load, Packing] = {}
        self.copied: dict[Formula, Buffer] = {}
        found = self._columns(1)
        if found is None and self.dtype == block.buffer.dtype == "float32" and not is_long(block.value):
            found = self._columns(MAX_INTERLEAVE)
        self.has_columns = found is not None
        self.columns, self.packed = found or (Axis(0, 1), ())

    @property
    def is_possible(self) -> bool:
        joined = self.joined
        return (
            self.dtype in ("float32", "float64", "int32")
            and joined.exact
            and isinstance(joined.start, Number)
            and in_vectors(joined.element, self.dtype)
            and in_vectors(self.block.value, self.block.buffer.dtype)
            and lanes_in([joined.element, self.block.value], self.machine) == self.lanes
            and is_affine(self.block.place)
            and self.has_columns
        )

    def _columns(self, apart: int) -> tuple[Axis, tuple[Load, ...]] | None:
        """Returns the first axis that can be vectorized, with a stride in the result of at most `apart`, or None.

        And the operands that must be packed for that.
        """
        found = ((axis, self._packed_along(axis, apart)) for axis in self.block.axes)
        return next(((axis, packed) for axis, packed in found if packed is not None), None)

    def _packed_along(self, axis: Axis, apart: int) -> tuple[Load, ...] | None:
        """Returns the operands to pack if an axis is vectorized; None if it cannot be."""
        if not 1 <= coefficient(self.block.place, axis) <= apart:
            return None
        if any(coefficient(load.place, axis) not in (0, 1) for load in loads_in(self.block.value)):
            return None
        packed = []
        for load in self.loads:
            step = coefficient(load.place, axis)
            if load.buffer.role is Role.CONSTANT and step:
                packed.append(load)
            elif step not in (0, 1):
                if 8 * prod(a.likely for a in self._axes_of(load)) > self.steps:
                    return None
                packed.append(load)
        return tuple(packed)

    def _axes_of(self, load: Load) -> list[Axis]:
        axes = (*self.block.around, *self.block.axes, *self.joined.axes)
        return [a for a in axes if coefficient(load.place, a)]

    def made(self) -> ScheduledBlock:
        return self.apply(self.decide())

    def decide(self) -> TilingDecision:
        """Chooses the rows and the size of a tile."""
        place = self.block.place
        others = [axis for axis in self.block.axes if axis != self.columns]
        kept = {axis: sum(not coefficient(load.place, axis) for load in self.loads) for axis in others}
        best = sorted(filter(self._may_be_rows, others), key=lambda axis: (-kept[axis], abs(coefficient(place, axis))))
        found = best[:1]
        widths = self._widths()
        if len(best) > 1 and kept[best[0]] == kept[best[1]] and 2 * best[0].size < self.machine.registers:
            if self._fits(best[0].size, min(widths)):
                found = best[1::-1]  # whole rows of a small image, several per tile
        rows, unit = (*(max(1, int(axis.likely)) for axis in found), 1, 1)[:2]
        return TilingDecision(self.columns, self.packed, tuple(found), *self._best_shape(rows, unit, widths))

    def apply(self, decision: TilingDecision) -> ScheduledBlock:
        """Returns the loops of the tiles."""
        self.rows = decision.rows
        self.pieces = pieces_of(self.columns.size, decision.width, self.lanes, self.least)
        self._order_sum()
        self._pack_rows(decision.height)
        outer = [axis for axis in self.block.axes if axis not in (self.columns, *self.rows)]
        return ScheduledBlock(self._around(outer, decision.height), (*self.packings.values(), *self.of_rows.values()))

    def _may_be_rows(self, _: Axis) -> bool:
        """True if an axis other than the columns can be the rows of a tile."""
        return True

    @property
    def _row_size(self) -> int:
        """Returns the unit of a tile's height, in rows that are always together."""
        return self.rows[1].size if len(self.rows) > 1 else 1

    @property
    def _step(self) -> Index:
        """Returns the index of the reduction step."""
        return flattened([at(axis) for axis in self.sum], [axis.size for axis in self.sum])

    def _widths(self) -> tuple[int, ...]:
        """Returns the widths that tiles may have; packed operands that several blocks share need the same one."""
        is_piece = any(axis.limit for axis in (*self.block.around, *self.block.axes))
        return (width_of(self.machine),) if is_piece and self.packed else (1, 2, 3, 4)

    def _fits(self, rows: int, width: int) -> bool:
        return self._registers(rows * width, width) <= self.machine.registers

    def _best_shape(self, rows: int, unit: int, widths: Sequence[int]) -> tuple[int, int]:
        """Returns the height and width for a number of rows that take the fewest predicted cycles."""
        depth = -(-prod(axis.size for axis in self.joined.axes) // self.at_once)

        def cycles(shape: tuple[int, int]) -> float:
            height, width = shape
            total = 0.0
            for _, own, tiles in rows_of(rows, height):
                for _, _, vectors, times in pieces_of(self.columns.size, width, self.lanes, self.least):
                    sums = own * unit * vectors
                    loads = (own * unit + vectors) / self.machine.loads
                    step = max(sums / self.rate, loads, float(self.machine.latency))
                    total += tiles * times * (depth * step + 20 + 2 * sums)
            return total

        shapes = [
            (height, width)
            for width in widths
            for height in range(1, min(rows, self.machine.registers) + 1)
            if self._fits(height * unit, width)
        ]
        return min(shapes, key=cycles)

    @property
    def rate(self) -> float:
        """Returns the accumulator vectors that are updated in a cycle."""
        return self.machine.products

    def _beside(self, width: int) -> int:
        """Returns the registers that a step needs besides the accumulators."""
        return width + 1

    def _registers(self, sums: int, width: int) -> int:
        """Returns the registers of a tile with `sums` accumulators, `width` of them in a row."""
        return sums + self._beside(width)

    @property
    def in_blocks(self) -> bool:
        """True if a packed operand may be the same for a block of steps: a scale of a block is packed once."""
        return self.at_once == 1

    def _order_sum(self) -> None:
        """Sets the order of the reduction axes by the strides of unpacked operands, merges them, and sets packings."""
        free = [load for load in self.loads if load not in self.packed]
        indices = [load.place for load in free]
        axes = [axis for axis in self.joined.axes if axis.is_loop]
        once = [n.place for n in self.packed if self.in_blocks and not all(coefficient(n.place, a) for a in axes)]
        groups = merged([*indices, *once], axes)
        groups.sort(key=lambda group: -max((abs(coefficient(i, group[-1])) for i in indices), default=0))
        self.groups = groups
        self.sum, self.at_sum = joined_axes(groups, self.axes)
        self.packings = {load: self._packing(load, self._inner(load), i) for i, load in enumerate(self.packed)}

    def _depends(self, load: Load, group: Sequence[Axis]) -> bool:
        """True if a packed operand has steps along reduction axes."""
        return not self.in_blocks or any(coefficient(load.place, axis) for axis in group)

    def _inner(self, load: Load) -> list[Axis]:
        """Returns the reduction axes along which a packed operand has steps."""
        return [axis for group in self.groups if self._depends(load, group) for axis in group]

    def _steps_of(self, load: Load) -> Index:
        """Returns the index of the step of a packed operand."""
        own = [axis for axis, group in zip(self.sum, self.groups, strict=True) if self._depends(load, group)]
        return flattened([at(axis) for axis in own], [axis.size for axis in own])

    def _pack_rows(self, height: int) -> None:
        """Chooses the operands, read one element per row and step, that are packed in the order of tiles of rows."""
        if len(self.rows) != 1 or self.at_once > 1 or self.block.around or self.rows[0].limit:
            return
        (rows,), inner = self.rows, [axis for group in self.groups for axis in group]
        found, panels = [load for load in self.loads if load not in self.packed], sum(n for *_, n in self.pieces)
        for load in packed_for_rows(found, self.block, self.columns, rows, inner, panels, self.machine):
            pieces, number = rows_of(rows.size, height), len(self.packings) + len(self.of_rows)
            self.of_rows[load] = packing_of(self.block, rows, pieces, load, inner, number)

    def _packing(self, load: Load, inner: Sequence[Axis], number: int) -> Packing:
        pieces = [(begin, lanes * vectors, times) for begin, lanes, vectors, times in self.pieces]
        aligned = prod(axis.size for axis in inner) % HALF == 0  # of panels, which are of whole vectors
        return packing_of(self.block, self.columns, pieces, load, inner, number, aligned)

    def _around(self, outer: Sequence[Axis], height: int) -> list[Statement]:
        """Returns the loops around all tiles, in the order with the fewest predicted bytes from beyond the L2 cache."""
        columns, panels = self.columns, sum(times for *_, times in self.pieces)
        packed = sum(
            bytes_assumed(packing.buffer, self.machine) // self._times(load) for load, packing in self.packings.items()
        )
        shared = [axis for axis in outer if not any(coefficient(load.place, axis) for load in self.packings)]
        grouped = [axis for axis in outer if axis not in shared]
        row_pieces = tiles_of_rows(self.rows, height)
        tiles = prod(a.size for a in outer) * sum(times for *_, times in row_pieces)
        few = is_open(tiles) or tiles < min(LEAST_AT_ONCE, panels)
        near = packed <= self.machine.l2 // 2 * prod(a.size for a in grouped) and not few
        if not self.packings and not outer and near:
            near = is_near(self.loads, columns, sum(times for *_, times in row_pieces), panels, self.machine)
        pairs: list[tuple[list[Axis], list[Statement]]] = []
        if near:
            for rows in row_pieces:
                axis, inner = Axis(next(self.axes), rows[-1]), []
                for piece in self.pieces:
                    panel = Axis(next(self.axes), piece[-1])
                    position = (
                        position_in_panel(shared, row_pieces, rows, axis, True)
                        if any(a.size > 1 for a in grouped)
                        else None
                    )
                    inner += around([panel], self._tile(rows, axis, piece, panel, position))
                pairs.append(([axis], inner))
        else:
            for piece in self.pieces:
                panel, inner = Axis(next(self.axes), piece[-1]), []
                alone = all(a.size == 1 for a in (panel, *outer))  # parallelize over its tiles
                steps = self.steps * piece[1] * piece[2] // columns.size if alone else 0
                single = alone or (is_open(tiles) and self.rows[0].limit > 1)
                self.copied = {} if single else self._copied(piece, sum(times for *_, times in row_pieces))
                of_rows = with_first_alone(row_pieces) if self.copied else row_pieces
                for rows in of_rows:
                    axis = axis_of(next(self.axes), rows[-1])
                    position = position_in_panel(shared, of_rows, rows, axis, False)
                    inner += spread([axis], self._tile(rows, axis, piece, panel, position, copies=not inner), steps)
                pairs.append(([panel], inner))
        if near:
            whole = [*grouped, *shared]
            if any(a.size > 1 for a in whole):
                return spread(whole, [s for axes, body in pairs for s in around(axes, body)], self.steps)
            return [s for axes, body in pairs for s in spread(axes, body, self.steps)]
        if grouped:
            bodies = [around([*axes, *shared], body) for axes, body in pairs]
            return spread(grouped, [s for body in bodies for s in body], self.steps)
        return [s for axes, body in pairs for s in spread([*axes, *shared], body, self.steps)]

    def _copied(self, piece: tuple[int, int, int, int], tiles: int) -> dict[Formula, Buffer]:
        """Returns operand -> scratch buffer, for panels that the first of `tiles` tiles copies, or converts and scales,
        for the others.
        """
        if self.at_once > 1 or not self.groups:
            return {}
        size = Dims((prod(axis.size for axis in self.sum), piece[1] * piece[2]))
        free = [n for n in self.loads if n not in (*self.packings, *self.of_rows) and n.dtype == self.dtype]
        found = panels_copied(free, self.columns, self.rows, self.groups[-1][-1], size, tiles, self.machine)
        return found | panels_computed(self._scaled(self.joined.element), size, tiles, self.machine)

    def _scaled(self, formula: Formula) -> list[Formula]:
        """Returns the largest parts of a formula that convert or scale packed operands: the same for all rows."""
        if not isinstance(formula, Apply | Convert) or formula.dtype != self.dtype:
            return []
        loads = loads_in(formula)
        if loads and all(
            load in self.packings and not any(coefficient(load.place, r) for r in self.rows) for load in loads
        ):
            return [formula]
        inner = formula.operands if isinstance(formula, Apply) else (formula.formula,)
        return [part for operand in inner for part in self._scaled(operand)]

    def _times(self, load: Load) -> int:
        """Returns how many different parts of an operand the enclosing loops read."""
        return prod(max(1, axis.size) for axis in self.block.around if coefficient(load.place, axis))

    def _tile(
        self,
        row_piece: tuple[int, int, int],
        row_axis: Axis,
        piece: tuple[int, int, int, int],
        panel: Axis,
        position: TilePosition | None,
        copies: bool = False,
    ) -> list[Statement]:
        """Returns a tile; with a long reduction it also prefetches its own operands and its share of the next panel."""
        begin, lanes, vectors, _ = piece
        row, unit, lane = (Axis(next(self.axes), n) for n in (row_piece[1] * self._row_size, vectors, lanes))
        at_row = at(row)
        places = dict(self.at_sum)
        registers = Buffer(f"tile{next(self.axes)}", Dims((row.size, vectors * lanes)), self.dtype, Role.REGISTER)
        tile = Tile(registers, row, unit, lane, begin, panel, places, row_piece, row_axis, copies)
        places[self.columns] = at(panel) * tile.width + tile.column + begin
        if self.rows:
            places[self.rows[0]] = at(row_axis) * row_piece[1] + at_row // self._row_size + row_piece[0]
            places |= {axis: at_row % axis.size for axis in self.rows[1:]}
        start = tile.each(Store(registers, tile.own, self.joined.start))
        summed = [*start, *self._summed(tile, position), Fence()]
        here = self._sum(tile)
        value = with_local(changed(self.block.value, tile.change), self.joined.local, here)
        result = Load(self.block.buffer, tile.change(self.block.place))
        if not is_long(self.block.value) or self.dtype != self.block.buffer.dtype:
            return [*summed, *tile.each(Store(result.buffer, result.place, value))]
        value = with_local(changed(self.block.value, tile.change), self.joined.local, result)
        last = tile.each(Store(result.buffer, result.place, value))
        if isinstance(last[0], For) and last[0].axis == row:
            last = [replace(last[0], way=Way.APART)]
        return [*summed, *tile.each(Store(result.buffer, result.place, here)), *last]

    def _sum(self, tile: Tile) -> Formula:
        """Returns a finished accumulator."""
        return Load(tile.registers, tile.own)

    def _summed(self, tile: Tile, position: TilePosition | None) -> list[Statement]:
        """Returns the reduction loops of a tile."""
        element = self._element(self.joined.element, tile, tile.change, tile.column)
        steps = tile.each(Store(tile.registers, tile.own, self._joined(Load(tile.registers, tile.own), element)))
        for load, panel in self.copied.items() if tile.copies else ():
            kept = Store(
                panel, self._step * tile.width + tile.column, self._element(load, tile, tile.change, tile.column)
            )
            steps += tile.each(kept, rows=False)
        if self.sum and self.sum[-1].size > _UNROLLED:
            steps = [*self._asked(tile, position), *steps]
        written = 1
        for axis in reversed(self.sum):
            written *= axis.size
            steps = self.stepped(axis, steps, written, tile)
        return steps

    def stepped(self, axis: Axis, steps: list[Statement], written: int, tile: Tile) -> list[Statement]:
        """Returns a loop over an axis around steps: unrolled if `written`, the unrolled steps in all, is small."""
        if axis.size == 1:
            return steps
        small = written <= _UNROLLED and written * tile.row.size * tile.unit.size <= 100
        if small:
            return [For(axis, (Fence(), *steps), Way.UNROLLED)]
        if axis not in self.sum[:-1] or len(self.rows) != 1:
            return [For(axis, tuple(steps))]
        inner = self.sum[self.sum.index(axis) + 1 :]
        loads = [load for load in self.loads if load not in self.packed and load not in self.of_rows]
        return [For(axis, (*next_tile(axis, inner, tile, loads, self.machine), *steps))]

    def _asked(self, tile: Tile, position: TilePosition | None) -> list[Statement]:
        """Returns the prefetches of a step: for later steps of this tile, and this tile's share for the next one."""
        found: list[Statement] = []
        several = sum(times for *_, times in self.pieces) > 1
        first = {axis: substituted(place, {tile.row: Index()}) for axis, place in tile.places.items()}
        depth = prod(axis.size for axis in self.sum)
        once = {} if tile.copies else {n: panel for part, panel in self.copied.items() for n in loads_in(part)}
        for panel in dict.fromkeys(once.values()):
            found += run_ahead(Load(panel, self._step * tile.width), tile.width)
        for load in (load for load in self.loads if load not in once):
            if load in self.packings and several and all(self._depends(load, group) for group in self.groups):
                here = self._element(load, tile, partial(substituted, places=first), Index())
                found += asked_of_packed(here, self._step, depth, tile.width, self.columns.size, position, self.machine)
            elif load in self.of_rows and load.buffer.role is not Role.CONSTANT:
                here = self._element(load, tile, partial(substituted, places={**first, tile.row: Index()}), Index())
                found += run_ahead(here, tile.row.size)
            elif (reads := self._reads(load, tile)) is not None:
                found += reads.strided_ahead() if bytes_assumed(load.buffer, self.machine) > self.machine.l1 else []
        return found

    def _reads(self, load: Load, tile: Tile) -> Reads | None:
        """Returns the reads of an unpacked operand along the last reduction axis, or None.

        The operand must depend on either rows or columns, not both.
        """
        inner, rows = self.sum[-1], self.rows[:1]
        of_columns, of_rows = (any(coefficient(load.place, a) for a in own) for own in ([self.columns], self.rows))
        if of_columns == of_rows or len(self.rows) > 1 or load.picked or load in (*self.packings, *self.of_rows):
            return None
        count, apart = (tile.width, 1) if of_columns else (tile.row.size, coefficient(load.place, rows[0]))
        begin = dict.fromkeys((tile.row, tile.unit, tile.lane, inner), Index())
        first, along = substituted(tile.change(load.place), begin), self.groups[-1][-1]
        stride = coefficient(load.place, along)
        return Reads(load.buffer, first, at(inner), count, apart, stride)

    def _joined(self, sum_: Formula, element: Formula) -> Formula:
        """Returns an accumulator combined with an element."""
        return apply(self.joined.combine, sum_, element)

    def _element(self, formula: Formula, tile: Tile, change: Change, column: Index) -> Formula:
        """Returns the element that a step accumulates, with packed operands read from their packed copies."""
        if formula in self.copied and not tile.copies:
            return Load(self.copied[formula], change(self._step * tile.width + column))
        if isinstance(formula, Load):
            packing, along = self.packings.get(formula), self.columns
            begin, panel, width = tile.begin, tile.panel, tile.width
            if packing is None:
                packing = self.of_rows.get(formula)
                if packing is None:
                    return changed(formula, change)
                (begin, width, _), panel, column, along = tile.rows, tile.row_axis, at(tile.row), self.rows[0]
            depth = prod(n for n, _ in packing.inner)
            place = Index()
            for axis in (*self.block.around, *self.block.axes):
                if axis != along and coefficient(formula.place, axis):
                    place = place * axis.size + at(axis)
            within = self._step if along != self.columns else self._steps_of(formula)
            place = place * (depth * along.size) + begin * depth + (at(panel) * depth + within) * width + column
            return Load(packing.buffer, change(place))
        if isinstance(formula, Convert):
            return replace(formula, formula=self._element(formula.formula, tile, change, column))
        if isinstance(formula, Apply):
            return replace(formula, operands=tuple(self._element(o, tile, change, column) for o in formula.operands))
        return changed(formula, change)
