"""Prefetches operands of tiles: lines of later steps, and a share of the next panel of a packed operand.

The hardware prefetcher follows consecutive lines. It does not follow strided rows of which a step reads a few columns,
and it starts again with each tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glenside.codegen.loop_ir.affine_analysis import coefficient, substituted
from glenside.codegen.loop_ir.ir import Buffer, Formula, Load, Prefetch, Role, Statement
from glenside.codegen.loop_ir.open_axes import bytes_assumed
from glenside.codegen.memory.buffer_arena import LINE, in_line
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.tile_partition import Tile, TilePosition
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index

_AHEAD = 16
"""Prefetch distance in reduction steps."""
_NEAR = 16
"""Operands of at most this fraction (1 / 16) of the L2 cache are not prefetched: they arrive in time."""
_MOST = 4
"""The most cache lines that a step prefetches of an operand: each costs a load."""
_PAGE = 4096
"""Bytes of a page: hardware prefetchers do not cross pages."""


@dataclass(frozen=True)
class Reads:
    """The reads of a buffer by the reduction steps of a tile: `count` elements a step, with stride `apart`.

    first   index of the first element of the first step
    step    index of the step
    stride  elements from one step to the next
    """

    buffer: Buffer
    first: Index
    step: Index
    count: int
    apart: int
    stride: int

    def _lines(self) -> list[int]:
        """Returns the offsets of the cache lines of one step from its first element."""
        line = in_line(self.buffer.dtype)
        if self.apart >= line:
            return [n * self.apart for n in range(self.count)]
        last = (self.count - 1) * self.apart
        lines = list(range(0, last + 1, line))
        places = (self.first.constant, self.stride, *(factor for _, factor in self.first.terms))
        begins = self.buffer.role not in (Role.INPUT, Role.RESULT) and not any(n % line for n in places)
        return lines if begins else list(dict.fromkeys((*lines, last)))

    def ahead(self) -> list[Prefetch]:
        """Prefetches the lines of a later step."""
        place = self.first + (self.step + _AHEAD) * self.stride
        return [Prefetch(self.buffer, place + far) for far in self._lines()]

    def strided_ahead(self) -> list[Prefetch]:
        """Prefetches later lines if the stride of a step is a line or more and a step reads few lines."""
        few = abs(self.stride) >= in_line(self.buffer.dtype) and len(self._lines()) <= _MOST
        return self.ahead() if few else []


def run_ahead(here: Formula, count: int) -> list[Prefetch]:
    """Prefetches the `count` elements that a later step reads of a packed operand; `here` is the first of this step.

    A line that begins within a step is prefetched by the next step.
    """
    assert isinstance(here, Load), "what is packed is read"
    return [Prefetch(here.buffer, here.place + _AHEAD * count + n) for n in range(0, count, in_line(here.dtype))]


def asked_of_packed(
    here: Formula, step: Index, depth: int, width: int, columns: int, position: TilePosition | None, machine: Machine
) -> Iterator[Statement]:
    """Prefetches later steps of a packed operand, and a share of the next tile's panel.

    here  the first element of the step
    """
    assert isinstance(here, Load), "what is packed is read"
    first, line = here.place - step * width, in_line(here.dtype)
    alone = position is not None and position.count == 1  # it reads nothing that another tile has read
    if alone or bytes_assumed(here.buffer, machine) > machine.l2 // _NEAR:
        yield from Reads(here.buffer, first, step, width, 1, width).ahead()
    if position is not None and not alone:
        share = -(-width // position.count)
        next_panel = first + depth * (columns if position.grouped else width)
        begin = next_panel + (position.place * depth + step) * share
        yield from (Prefetch(here.buffer, begin + n) for n in range(0, share, line))


def next_tile(
    axis: Axis, inner: Sequence[Axis], tile: Tile, loads: Sequence[Load], machine: Machine
) -> Iterator[Prefetch]:
    """Prefetches operands of the next tile that are in a new page for each step of a reduction axis.

    The operand is contiguous along rows, then the last line is prefetched, or along columns, then each line. Indices
    are those of the last step of the loops over `inner`.
    """
    ends = {other: Index() + (other.size - 1) for other in inner}
    for load in loads:
        place, size = tile.change(load.place), RECORDS[load.dtype].numpy.itemsize
        if abs(coefficient(place, axis)) * size < _PAGE or bytes_assumed(load.buffer, machine) <= machine.l2:
            continue
        row, column = (coefficient(place, a) for a in (tile.row, tile.lane))
        if row == 1 and not column:
            yield Prefetch(load.buffer, substituted(place, {tile.row: Index() + (2 * tile.row.size - 1), **ends}))
        elif column == 1 and not row:
            start = substituted(place, {tile.lane: Index(), tile.unit: Index(), **ends}) + tile.width
            line = LINE // size
            yield from (Prefetch(load.buffer, start + n) for n in range(line - 1, tile.width, line))
