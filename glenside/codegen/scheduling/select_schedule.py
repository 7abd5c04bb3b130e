"""Selects the schedule of a block: register tiles, a reduction in vector lanes, or elementwise loops."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import count
from math import prod

from glenside.codegen.cost.count_work import predicted_time_alone
from glenside.codegen.loop_ir.affine_analysis import (
    affine,
    all_indices,
    at,
    coefficient,
    is_affine,
    is_direct,
    loads_in,
    substituted,
    with_loads,
    with_merged,
    with_places,
)
from glenside.codegen.loop_ir.compute_block import Block, ScheduledBlock
from glenside.codegen.loop_ir.intrinsics import MAX_INTERLEAVE
from glenside.codegen.loop_ir.ir import Load, Nest, Packing, Role, Statement, Store
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.structural_hash import Like
from glenside.codegen.loop_ir.substitute_buffers import with_buffers_of
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.amx_tiles import MatrixTiles
from glenside.codegen.scheduling.dot_product_tiles import PairTiles
from glenside.codegen.scheduling.index_set_splitting import in_pieces
from glenside.codegen.scheduling.integer_tiles import IntegerTiles
from glenside.codegen.scheduling.open_pieces import CHUNK, in_open_pieces
from glenside.codegen.scheduling.operand_packing import packing_of, with_float_copies
from glenside.codegen.scheduling.quantized_tiles import BlockTiles
from glenside.codegen.scheduling.reduction_lane_tiles import LaneTiles
from glenside.codegen.scheduling.register_tiling import Tiles
from glenside.codegen.scheduling.vectorize import evenly, in_vectors, joined_in_lanes, lanes_in, run, runs_along, spread
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index, flattened

_AMX_MAX_TIME_RATIO = 0.8
"""Use AMX only if its predicted time is below this fraction of the vector loops' predicted time: AMX is slower in some
hours than in others. With 0.75, under higher unit costs, BERT-base took 1.3x the time on a Xeon, MobileNetV1 1.18x.
"""
_BEHIND = 100
"""The first number of packed operands that are read after a reduction; those of the reduction have smaller ones."""
_SQUARE = 16
"""Side of the square blocks in which a transposed operand is read, in elements: a cache line on most processors."""


def scheduled(block: Block, axes: Iterator[int], machine: Machine) -> ScheduledBlock | None:
    """Schedules a block with at most one reduction for a machine; returns None if no schedule is known.

    Memoized over structurally equal blocks: a search lowers a program again for each variant of one layer.
    """
    exact = tuple(joined.exact for joined in block.joined)
    own = Like.of(block.plain())
    known = _known(_Asked(own, exact, block.around, next(axes), block), machine)
    while next(axes) < known.end:  # skip the numbers of its loops
        pass
    return known.made and with_buffers_of(known.made, known.like.names(own))


@dataclass(frozen=True)
class _Asked:
    """The memo key of a schedule: the structure of a block, and the number of the first new loop.

    block  the block itself, which does not take part in comparison
    """

    like: Like
    exact: tuple[bool, ...]
    around: tuple[Axis, ...]
    first: int
    block: Block = field(compare=False)


@dataclass(frozen=True)
class _Known:
    """A memoized schedule, the block that it was built for, and the first number that its loops leave free."""

    made: ScheduledBlock | None
    like: Like
    end: int


@lru_cache(maxsize=512)  # ResNet-50 has 431, in 10 variants of it; they keep their loops
def _known(asked: _Asked, machine: Machine) -> _Known:
    axes = count(asked.first)
    made = _made(asked.block, axes, machine)
    return _Known(made, asked.like, next(axes))


def _made(block: Block, axes: Iterator[int], machine: Machine) -> ScheduledBlock | None:
    found = affine(block, axes)
    every = [*block.axes, *(axis for joined in block.joined for axis in joined.axes)]
    if len(block.joined) > 1 or not all(axis.size for axis in every) or (found is None and block.joined):
        return None
    found = found or block  # elementwise blocks need no affine indices
    joins = [replace(j, axes=tuple(axis for axis in j.axes if axis.is_loop)) for j in found.joined]
    found = replace(found, axes=tuple(axis for axis in found.axes if axis.is_loop), joined=tuple(joins))
    if not found.joined:
        return _elementwise(found, axes, machine)
    if any(axis.limit for axis in found.axes):
        return in_open_pieces(with_merged(found, axes), axes, machine, lambda piece: _of_sum(piece, axes, machine))
    if any(axis.limit for axis in (*found.around, *found.joined[0].axes)):
        return _of_sum(found, axes, machine)
    found, copies = with_float_copies(found, machine)
    made = _of_sum(found, axes, machine)
    return made and replace(made, packings=(*copies, *made.packings))


def _of_sum(found: Block, axes: Iterator[int], machine: Machine) -> ScheduledBlock | None:
    """Schedules a block with a reduction, whose axes (but for those of the reduction) have fixed sizes."""
    in_lanes = LaneTiles(found, axes, machine)
    is_open = any(axis.limit for axis in (*found.around, *found.axes, *found.joined[0].axes))
    kinds = (IntegerTiles, PairTiles, BlockTiles, Tiles)
    for kind in (Tiles,) if any(axis.limit for axis in found.joined[0].axes) else kinds:
        tiles = kind(found, axes, machine)
        if tiles.is_possible:
            if any(axis.limit for axis in found.axes):
                decision = tiles.decide()
                rows = decision.rows == tuple(axis for axis in found.axes if axis.limit)
                return tiles.apply(decision) if rows and not in_lanes.is_better(tiles.columns.size) else None
            made = in_lanes.made() if in_lanes.is_better(tiles.columns.size) else tiles.made()
            return made if is_open else _better(found, made, axes, machine)
    if any(axis.limit for axis in found.axes):
        return None
    if in_lanes.is_possible:
        return in_lanes.made()
    for along in () if is_open else reversed(found.axes):
        moved, packings = _with_operands_along(found, along, (Role.CONSTANT, Role.INPUT, Role.TEMPORARY, Role.RESULT))
        tiles = Tiles(moved, axes, machine)
        if packings and tiles.is_possible:
            made = _better(moved, tiles.made(), axes, machine)
            return replace(made, packings=(*packings, *made.packings))
    (joined,) = found.joined
    before = joined_in_lanes(joined, axes, machine)
    if before is None:
        return in_lanes.made_of_numbers() if in_lanes.is_possible_of_numbers else None
    steps = prod(axis.size for axis in (*found.axes, *joined.axes))
    return ScheduledBlock(spread(found.axes, [*before, Store(found.buffer, found.place, found.value)], steps))


def _better(block: Block, made: ScheduledBlock, axes: Iterator[int], machine: Machine) -> ScheduledBlock:
    """Returns the better of a schedule and the AMX schedules of a block, by predicted time."""
    matrix = MatrixTiles(block, axes, machine)
    if not matrix.is_possible:
        return made
    orders = [matrix.made(apart) for apart in matrix.orders]
    own, *others = (predicted_time_alone(_nests_of(block, of), machine) for of in (made, *orders))
    others = [own + _passed(block, of, machine) for own, of in zip(others, orders, strict=True)]
    return made if min(others) >= _AMX_MAX_TIME_RATIO * own else orders[others.index(min(others))]


def _passed(block: Block, made: ScheduledBlock, machine: Machine) -> float:
    """Returns the predicted nanoseconds of cache-to-cache transfers if threads divide a matrix by columns.

    All threads read all packed rows; each thread has packed some of them. They also fetch results, because the next
    nest is likely to be divided by rows.
    """
    packed = sum(p.buffer.bytes for p in made.packings if p.source.role is not Role.CONSTANT)
    stored = prod(axis.size for axis in block.axes) * RECORDS[block.buffer.dtype].numpy.itemsize
    return (machine.threads - 1) * (packed + stored) * machine.nanoseconds.far if packed else 0.0


def _nests_of(block: Block, made: ScheduledBlock) -> list[Nest]:
    """Returns the nest of a block, after the nests that pack its non-constant operands."""
    packed = [p for p in made.packings if p.source.role is not Role.CONSTANT]
    nests = [Nest("packed", p.buffer, p.statements()) for p in packed]
    return [*nests, Nest("", block.buffer, tuple(made.statements))]


def _elementwise(block: Block, axes: Iterator[int], machine: Machine) -> ScheduledBlock:
    """Schedules a block without reductions, cut into pieces without guards where that is possible."""
    steps = prod(axis.size for axis in block.axes)
    block, packings = _with_operands_along(block, block.axes[-1] if block.axes else None, {Role.CONSTANT})
    pieces = in_pieces(block, axes) or [block]
    return ScheduledBlock(
        [statement for piece in pieces for statement in _whole(piece, steps, axes, machine)], packings
    )


def _with_operands_along(
    block: Block, along: Axis | None, roles: Collection[Role]
) -> tuple[Block, tuple[Packing, ...]]:
    """Packs operands of the given roles that the block's values read across an axis, to be contiguous along it.

    Returns the block and the packings.
    """
    every = [block.value, *(value for _, value in block.beside)]
    if along is None or along.size < 2 or block.around or not all(map(is_affine, all_indices(block))):
        return block, ()
    found: dict[Load, Packing] = {}
    for load in (load for value in every for load in loads_in(value)):
        across = load.buffer.role in roles and coefficient(load.place, along) not in (0, 1)
        least, most = load.place.bounds  # an element outside the buffer may be read under a guard
        if (
            across
            and least >= 0
            and most < load.buffer.dims.product()
            and not load.picked
            and coefficient(block.place, along) == 1
            and load not in found
        ):
            found[load] = packing_of(block, along, [(0, along.size, 1)], load, [], _BEHIND + len(found))

    def moved(load: Load) -> Load:
        if load not in found:
            return load
        own = [axis for axis in block.axes if axis != along and coefficient(load.place, axis)]
        place = flattened([at(axis) for axis in own], [axis.size for axis in own]) * along.size + at(along)
        return Load(found[load].buffer, place)

    if not found:
        return block, ()
    beside = tuple((place, with_loads(value, moved)) for place, value in block.beside)
    return replace(block, value=with_loads(block.value, moved), beside=beside), tuple(found.values())


def _whole(block: Block, of: int, axes: Iterator[int], machine: Machine) -> list[Statement]:
    """Schedules one piece of a block: vectorized where elements are contiguous, outermost axis parallel.

    of  steps of all pieces together, which decide whether threads are worth it
    """
    if all(map(is_affine, all_indices(block))):
        block = with_merged(block, axes)
    steps = prod(axis.size for axis in block.axes)
    if len(block.axes) == 1 and (steps >= 2 * CHUNK or block.axes[0].limit):  # cut it, for a parallel outer loop
        (axis,) = block.axes
        parts = []
        for begin, size, times in _cut(axis, CHUNK):
            high, low = _high_and_low(axis, size, times, CHUNK, axes)
            place = {axis: at(high) * size + at(low) + begin}
            part = with_places(block, partial(substituted, places=place))
            parts += spread([high], _run(replace(part, axes=(low,)), axes, machine), of)
        return parts
    if _is_repeated(block):
        along, repeated = block.axes[-2:]

        def each(place: Index) -> list[Statement]:
            own = [{along: place, repeated: Index() + n} for n in range(repeated.size)]
            return [s for places in own for s in with_places(block, partial(substituted, places=places)).stores()]

        return spread(evenly(block.axes[:-2]), run(along, axes, lanes_in([block.value], machine), each), of)
    across = _across(block)
    if across is not None:
        return _squares(block, across, of, axes)
    outer, inner = block.axes[:-1], replace(block, axes=block.axes[-1:])
    return spread(evenly(outer), _run(inner, axes, machine), of)


def _is_repeated(block: Block) -> bool:
    """True if vectors are stored with each lane several times in consecutive elements, as by a nearest resize."""
    if len(block.axes) < 2 or block.beside or block.buffer.dtype != "float32" or block.around:
        return False
    along, times = block.axes[-2:]
    loads = list(loads_in(block.value))
    return (
        not times.limit
        and 1 < times.size <= MAX_INTERLEAVE
        and all(map(is_affine, all_indices(block)))
        and in_vectors(block.value, block.buffer.dtype)
        and (coefficient(block.place, along), coefficient(block.place, times)) == (times.size, 1)
        and not any(coefficient(load.place, times) for load in loads)
        and any(coefficient(load.place, along) for load in loads)
        and runs_along(block.value, along)
    )


def _across(block: Block) -> Axis | None:
    """Returns the axis along which the largest operand is contiguous, if it is not the axis of the stores, or None."""
    if len(block.axes) < 2 or not all(map(is_affine, all_indices(block))):
        return None
    loads = (load for value in (block.value, *(value for _, value in block.beside)) for load in loads_in(value))
    load = max(loads, key=lambda load: load.buffer.dims.product(), default=None)
    if load is None or load.picked or coefficient(load.place, block.axes[-1]) in (0, 1):
        return None
    found = next((axis for axis in block.axes[:-1] if coefficient(load.place, axis) == 1), None)
    return found if found and min(found.size, block.axes[-1].size) > 2 else None


def _squares(block: Block, across: Axis, of: int, axes: Iterator[int]) -> list[Statement]:
    """Blocks two axes into squares, so that all of a cache line is used while it is in cache."""
    along = block.axes[-1]
    others = [axis for axis in block.axes if axis not in (across, along)]
    made: list[Statement] = []
    for first in _cut(across, _SQUARE):
        for second in _cut(along, _SQUARE):
            pieces = (across, *first), (along, *second)
            both = [_high_and_low(axis, size, times, _SQUARE, axes) for axis, _, size, times in pieces]
            high, low = zip(*both, strict=True)
            places = {p[0]: at(h) * p[2] + at(w) + p[1] for p, h, w in zip(pieces, high, low, strict=True)}
            stores = with_places(block, partial(substituted, places=places)).stores()
            made += spread([*others, *high], around(low, stores), of)
    return made


def _high_and_low(axis: Axis, size: int, times: int, length: int, axes: Iterator[int]) -> tuple[Axis, Axis]:
    """Returns the axes that count pieces, and elements of a piece: whole ones of a length, or the remainder."""
    is_rest = axis.limit > 0 and size < length
    return Axis(next(axes), times, axis.limit * (not is_rest)), Axis(next(axes), size, length * is_rest)


def _cut(axis: Axis, length: int) -> list[tuple[int, int, int]]:
    """Cuts an axis into (first, size, times): whole pieces of a length, and the remainder."""
    size = axis.size
    whole = size - size % length
    if axis.limit:
        return [(0, length, whole // length), (whole, size - whole, 1)]
    return [piece for piece in ((0, length, whole // length), (whole, size - whole, 1)) if piece[1] and piece[2]]


def _run(block: Block, axes: Iterator[int], machine: Machine) -> list[Statement]:
    """Returns the loops of a block with at most one axis: vectorized where possible."""
    dtype = block.buffer.dtype
    stores = [(block.place, block.value), *block.beside]
    vectors = block.axes and all(
        in_vectors(value, dtype)
        and coefficient(place, block.axes[0]) == 1
        and is_direct(place, block.axes[0])
        and runs_along(value, block.axes[0])
        for place, value in stores
    )
    if not vectors:
        return around(block.axes, block.stores())

    def one(place: Index) -> list[Statement]:
        return with_places(block, partial(substituted, places={block.axes[0]: place})).stores()

    return run(block.axes[0], axes, lanes_in([value for _, value in stores], machine), one)
