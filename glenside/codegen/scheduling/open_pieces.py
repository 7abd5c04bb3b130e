"""Cuts blocks whose axes have open sizes into pieces of fixed sizes, in loops whose bounds depend on the sizes.

An axis of n elements becomes n // T pieces of T elements, then smaller pieces for the rest, down to single elements. A
piece is scheduled like any block. So its tiles do not depend on the sizes: bounds and strides alone do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

from glenside.codegen.loop_ir.affine_analysis import at, changed, coefficient, loads_in, substituted, with_places
from glenside.codegen.loop_ir.compute_block import Block, ScheduledBlock
from glenside.codegen.loop_ir.ir import For, Packing, Role, Statement, Way
from glenside.codegen.loop_ir.open_axes import at_least, bytes_assumed, is_open
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.tile_partition import least_lanes
from glenside.codegen.scheduling.vectorize import joined_in_lanes, lanes_of, spread
from glenside.ir.index_map import Axis, Index

CHUNK = 8192
"""Elements of a thread's chunk of an axis without other loops."""
_VECTORS = 4
"""Vectors of the columns of a tile; half as many with few registers."""
_FEW = 8
"""The fewest rows for which columns are packed: packing costs what sums in lanes cost for about as many rows."""
_FEW_IN_TILE = 2
"""The most rows of tiles that have more columns than others, for they have registers left."""
_TILES = 8
"""Tiles of rows in the largest piece, which read the same panels of columns from near caches."""

Piece = tuple[int, int, int, int]
"""The first element, the number of elements of a piece, how many pieces, and the most of these (1: any number).

The last number of a single piece of an open number of elements is the most of these.
"""


def width_of(machine: Machine) -> int:
    """Returns the vectors of the columns of a tile."""
    return _VECTORS if machine.registers >= 32 else _VECTORS // 2


def height_of(machine: Machine) -> int:
    """Returns the rows of a tile with columns of `width_of` vectors."""
    width = width_of(machine)
    return (machine.registers - width - 1) // width


def blocks_of(size: int, rows: int, machine: Machine) -> list[Piece]:
    """Cuts an open axis into blocks of some tiles of rows each, and the rest into tiles."""
    height = height_of(machine)
    return _pieces(size, list(dict.fromkeys((max(1, rows // height) * height, height, *_halves(height)))))


def in_open_pieces(
    block: Block, axes: Iterator[int], machine: Machine, schedule: Callable[[Block], ScheduledBlock | None]
) -> ScheduledBlock | None:
    """Schedules a block with a reduction and open axes; None if a part of it has no schedule.

    With few rows, the columns of an operand that is not contiguous along them are read as they are stored, else packed.
    """
    columns = next((axis for axis in block.axes if coefficient(block.place, axis) == 1), None)
    few = None if columns is None or not columns.limit else _FewRows.of(block, columns)
    if few is None or columns is None:
        return _in_pieces(block, columns, axes, machine, schedule)
    own = few.in_lanes(axes, machine)
    if own is None:
        return _in_pieces(block, columns, axes, machine, schedule)
    within = Axis(next(axes), columns.size * few.many, columns.limit)
    moved = with_places(block, partial(substituted, places={columns: at(within)}))
    moved = replace(moved, axes=tuple(within if axis == columns else axis for axis in block.axes))
    made = _in_pieces(moved, within, axes, machine, schedule)
    return made and replace(made, statements=[*own, *made.statements])


@dataclass(frozen=True)
class _FewRows:
    """A block in which columns are strided in one operand, and the reduction is contiguous.

    order  the axes in the order in which this operand is stored, then those along which it is the same
    many   1 if these have many steps, else 0
    """

    block: Block
    columns: Axis
    order: tuple[Axis, ...]
    many: int

    @classmethod
    def of(cls, block: Block, columns: Axis) -> _FewRows | None:
        """Returns the block, or None if it is another one, or its rows are not open."""
        (joined,) = block.joined
        loads = [load for load in loads_in(joined.element) if load.buffer.role is not Role.CONSTANT]
        packed = [load.place for load in loads if coefficient(load.place, columns) not in (0, 1)]
        shared = tuple(axis for axis in block.axes if not any(coefficient(place, axis) for place in packed))
        rows = prod(axis.size for axis in shared)
        if len(packed) != 1 or not is_open(rows):
            return None
        order = sorted(block.axes, key=lambda axis: -abs(coefficient(packed[0], axis)))
        return cls(block, columns, tuple(order), at_least(rows, _FEW))

    def in_lanes(self, axes: Iterator[int], machine: Machine) -> list[Statement] | None:
        """Returns the loops for few rows, which have no steps for many; None if sums cannot be in lanes."""
        block = self.block
        (joined,) = block.joined
        within = Axis(next(axes), self.columns.size * (1 - self.many), self.columns.limit)
        change = partial(substituted, places={self.columns: at(within)})
        before = joined_in_lanes(replace(joined, element=changed(joined.element, change)), axes, machine)
        if before is None:
            return None
        order = [within if axis == self.columns else axis for axis in self.order]
        steps = prod(axis.size for axis in (*block.axes, *joined.axes))
        return spread(order, [*before, *with_places(block, change).stores()], steps)


def _in_pieces(
    block: Block,
    columns: Axis | None,
    axes: Iterator[int],
    machine: Machine,
    schedule: Callable[[Block], ScheduledBlock | None],
) -> ScheduledBlock | None:
    """Schedules a block piece by piece; None if a piece has no schedule."""
    (joined,) = block.joined
    others = [axis for axis in block.axes if axis.limit and axis != columns]
    loads = list(loads_in(joined.element))
    kept = {axis: sum(not coefficient(load.place, axis) for load in loads) for axis in block.axes}
    rows = max(others, key=lambda axis: (kept[axis], -abs(coefficient(block.place, axis))), default=None)
    if rows is not None and (not kept[rows] or _has_fixed_rows(block, columns, kept, kept[rows], machine)):
        rows = None
    outer = [axis for axis in others if axis != rows]
    of_columns: list[tuple[Axis, Piece]] = []
    if columns is not None and columns.limit:
        of_columns = [(columns, piece) for piece in _column_pieces(columns.size, joined.local.dtype, machine)]
    of_rows: list[list[tuple[Axis, Piece]]] = [[]]
    if rows is not None:
        if of_columns:
            cuts = [_pieces(rows.size, [height_of(machine), *_halves(height_of(machine))])]
        else:
            cuts = _row_pieces(rows.size, machine, *_as_stored(block, columns, machine))
        of_rows = [[(rows, piece) for piece in own] for own in cuts]
    for apart, choice in product(dict.fromkeys((None, columns)), of_rows):
        made = _each_piece(block, outer, [own for own in (choice, of_columns) if own], axes, schedule, apart)
        if made is not None:
            return made
    return None


def _each_piece(
    block: Block,
    outer: Sequence[Axis],
    choices: Sequence[Sequence[tuple[Axis, Piece]]],
    axes: Iterator[int],
    schedule: Callable[[Block], ScheduledBlock | None],
    apart: Axis | None = None,
) -> ScheduledBlock | None:
    """Schedules a block for each choice of pieces of its axes; None if one has no schedule.

    apart  an axis whose single elements may be computed one by one, such as columns behind those of vectors
    """
    steps = prod(axis.size for axis in (*block.around, *block.axes, *block.joined[0].axes))
    packings: dict[Packing, None] = {}
    bodies: list[Statement] = []
    for chosen in product(*choices):
        cut = _Cut(block, outer, axes)
        for axis, piece in chosen:
            cut.take(axis, piece)
        own = cut.block()
        made = schedule(own)
        if made is None and any(axis == apart and size == 1 for axis, (_, size, _, _) in chosen):
            made = ScheduledBlock(own.plain())
        if made is None:
            return None
        packings |= dict.fromkeys(made.packings)
        bodies += _within(cut.loops, [_serial(statement) for statement in made.statements])
    return ScheduledBlock(spread(outer, bodies, steps) if outer else _parallel(bodies, steps), tuple(packings))


def _as_stored(block: Block, columns: Axis | None, machine: Machine) -> tuple[bool, bool]:
    """Returns whether columns are read as they are stored, and whether their panels may be copied."""
    (joined,) = block.joined
    if columns is None:
        return False, False
    along = [load for load in loads_in(joined.element) if coefficient(load.place, columns)]
    is_stored = all(load.buffer.role is not Role.CONSTANT and coefficient(load.place, columns) == 1 for load in along)
    is_fixed = not any(axis.limit for axis in joined.axes)
    return is_stored, is_fixed and any(2 * bytes_assumed(load.buffer, machine) > machine.l2 for load in along)


def _has_fixed_rows(block: Block, columns: Axis | None, kept: Mapping[Axis, int], least: int, machine: Machine) -> bool:
    """True if an axis of fixed size fills the rows of a tile, and shares as many operands as an open one would."""
    fixed = (axis for axis in block.axes if not axis.limit and axis != columns)
    return any(axis.size >= height_of(machine) and kept[axis] >= least for axis in fixed)


class _Cut:
    """A block with axes replaced by pieces of fixed size, and the loops around it."""

    def __init__(self, block: Block, outer: Sequence[Axis], axes: Iterator[int]) -> None:
        self.whole, self.outer, self.numbers = block, outer, axes
        self.loops: list[Axis] = []
        self.inner: dict[Axis, Axis] = {}
        self.places: dict[Axis, Index] = {}

    def take(self, axis: Axis, piece: Piece) -> None:
        """Replaces an axis by the elements of a piece."""
        begin, size, times, limit = piece
        if is_open(size):  # the rest, as an axis of the block
            within = self.inner[axis] = Axis(next(self.numbers), size, limit)
            self.places[axis] = at(within) + begin
            return
        loop, within = Axis(next(self.numbers), times, limit), Axis(next(self.numbers), size)
        self.loops.append(loop)
        self.inner[axis] = within
        self.places[axis] = at(loop) * size + at(within) + begin

    def block(self) -> Block:
        """Returns the block of the piece."""
        moved = with_places(self.whole, partial(substituted, places=self.places))
        own = [self.inner.get(axis, axis) for axis in self.whole.axes if axis not in self.outer]
        around = (*self.loops, *self.whole.around, *self.outer)
        return replace(moved, axes=tuple(axis for axis in own if axis.is_loop), around=around)


def _row_pieces(size: int, machine: Machine, is_stored: bool, is_copied: bool) -> list[list[Piece]]:
    """Returns how rows may be cut, the best first: several tiles, and the rest as one block, in which each panel of
    columns is read once; or a tile at a time.

    is_stored  True if columns are read as they are stored: then tiles of one or two rows have more columns
    is_copied  True if many rows together read copies of their panels
    """
    height = height_of(machine)
    found = _pieces(size, [_TILES * height, *range(height, 0, -1)])
    (_, whole, times, _), *_ = found
    first, rest, most = found[0], size - whole * times, whole - 1
    if not is_stored:
        return [[first, (whole * times, rest, 1, most)], found]
    if is_copied:
        first, rest, most = (0, size * at_least(size, 2 * height), 1, 1), size, 2 * height - 1
        rest -= first[1]
    begin, few = size - rest, rest * (1 - at_least(rest, _FEW_IN_TILE + 1))
    return [[first, (begin, rest - few, 1, most), (begin, few, 1, _FEW_IN_TILE)], found]


def _halves(height: int) -> list[int]:
    """Returns the powers of two below a height, the largest first."""
    return [1 << n for n in reversed(range((height - 1).bit_length()))]


def _column_pieces(size: int, dtype: str, machine: Machine) -> list[Piece]:
    """Returns the pieces of columns: tiles, single vectors, shorter vectors, then single columns."""
    lanes, least = lanes_of(dtype, machine), least_lanes(dtype)
    sizes = [width_of(machine) * lanes]
    while lanes >= least:
        sizes.append(lanes)
        lanes //= 2
    return _pieces(size, [*sizes, 1])


def _pieces(size: int, sizes: Sequence[int]) -> list[Piece]:
    found: list[Piece] = []
    begin, limit = 0, 1
    for own in sizes:
        times = (size - begin) // own
        found.append((begin, own, times, limit))
        begin, limit = begin + own * times, 0
        following = sizes[len(found)] if len(found) < len(sizes) else 1
        limit = max(2, -(-own // following))
    return found


def _within(loops: Sequence[Axis], body: Sequence[Statement]) -> list[Statement]:
    inner = tuple(body)
    for axis in reversed(loops):
        inner = (For(axis, inner),)
    return list(inner)


def _serial(statement: Statement) -> Statement:
    """Returns a statement without parallel loops: the loops around it are parallel."""
    if not isinstance(statement, For):
        return statement
    body = tuple(map(_serial, statement.body))
    return replace(statement, body=body, way=Way.LOOP if statement.way is Way.PARALLEL else statement.way)


def _parallel(bodies: Sequence[Statement], steps: int) -> list[Statement]:
    return [statement for body in bodies for statement in _spread_one(body, steps)]


def _spread_one(statement: Statement, steps: int) -> list[Statement]:
    if isinstance(statement, For) and statement.way is Way.LOOP:
        return spread([statement.axis], list(statement.body), steps)
    return [statement]
