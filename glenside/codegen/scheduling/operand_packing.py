"""Chooses the layout of operands of tiles: packed for all tiles, copied per panel by its first tile, or unpacked.

A copy per panel is for strided rows: the hardware prefetcher does not follow them, each row is in another page, and
vectors are not aligned to cache lines. The first tile of a panel keeps a contiguous copy for the tiles after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from glenside.codegen.emit_c.nibbles import HALF, NIBBLES
from glenside.codegen.loop_ir.affine_analysis import at, changed, coefficient, loads_in, substituted
from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Convert,
    For,
    Formula,
    Load,
    Nest,
    Packing,
    Role,
    Statement,
    Store,
    Way,
)
from glenside.codegen.loop_ir.open_axes import at_least, bytes_assumed, is_open
from glenside.codegen.memory.buffer_arena import in_line
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.tile_partition import pieces_of
from glenside.codegen.scheduling.vectorize import LEAST_AT_ONCE, lanes_of, shared
from glenside.ir.dtypes import HALVES
from glenside.ir.index_map import Axis, Index, flattened
from glenside.ir.term import Term
from glenside.ir.types import Dims

_LEAST_TILES = 4
"""The fewest tiles that read a panel for which the panel is copied: the first tile pays for the copy."""
_LEAST_PANELS = 16
"""The fewest panels that read rows for which the rows are packed: packing costs as much as about eight panels save."""
_LEAST_READS = 16
"""The fewest reads of each element of an operand of 16 bits for which it is copied as float32."""
_PART = 4
"""A copied panel takes at most this fraction (1 / 4) of the L2 cache, beside the rows and the results of the tiles."""


def packing_of(
    block: Block,
    along: Axis,
    pieces: Sequence[tuple[int, int, int]],
    load: Load,
    inner: Sequence[Axis],
    number: int,
    aligned: bool = False,
    half: int = HALF,
) -> Packing:
    """Returns the packing of an operand: cut along `along` into pieces, with the `inner` axes as reduction steps.

    aligned  True if each vector, of at most `half` elements, begins at a multiple of its size: then it is in one half
             of bytes, if two elements are in a byte
    """
    outer = [a for a in (*block.around, *block.axes) if a != along and coefficient(load.place, a)]
    role = Role.CONSTANT if load.buffer.role is Role.CONSTANT else Role.TEMPORARY
    name = f"{load.buffer.name}.packed" + (f".{number + 1}" if number else "")
    dims = Dims((prod(axis.size for axis in (*outer, *inner, along)),))
    whole = dims.product() % (2 * half) == 0
    nibbles = role is Role.CONSTANT and load.dtype in NIBBLES and aligned and whole
    return Packing(
        Buffer(name, dims, load.dtype, role, half if nibbles else 0),
        load.buffer,
        load.place.constant,
        tuple((axis.size, coefficient(load.place, axis)) for axis in outer),
        tuple((axis.size, coefficient(load.place, axis)) for axis in inner),
        coefficient(load.place, along),
        tuple(pieces),
        limits=tuple(axis.limit for axis in outer),
    )


def packed_for_rows(
    loads: Iterable[Load],
    block: Block,
    columns: Axis,
    rows: Axis,
    inner: Sequence[Axis],
    panels: int,
    machine: Machine,
) -> Iterator[Load]:
    """Yields the operands that are packed in the order of tiles of rows.

    Constants: if their rows are strided and they are larger than L1. Others: if contiguous along rows, with a stride of
    at least a cache line along the last reduction axis, larger than L1 and at most L2. Each step of such an operand
    reads parts of other lines, which map to few cache sets of L1 and evict each other.

    panels  number of panels that read the rows
    """
    for load in loads if inner else ():
        along, constant = coefficient(load.place, rows), load.buffer.role is Role.CONSTANT
        below = along == 1 and abs(coefficient(load.place, inner[-1])) >= in_line(load.dtype)
        large = bytes_assumed(load.buffer, machine) > machine.l1
        others = [axis.size for axis in block.axes if axis != columns and not coefficient(load.place, axis)]
        often = panels * prod(others) >= _LEAST_PANELS and not coefficient(load.place, columns)
        fits = large and bytes_assumed(load.buffer, machine) <= machine.l2
        if (constant and large and along > 1) or (below and often and fits and not (constant or load.picked)):
            yield load


@dataclass(frozen=True)
class FloatCopy(Packing):
    """A copy of floats of 16 bits as float32, in the same order of axes."""

    def value(self, load: Load) -> Formula:
        return Convert(load, self.buffer.dtype)


@dataclass(frozen=True)
class _Box:
    """The part of a buffer that loads read: for each axis of the buffer, its stride, first index and size."""

    strides: tuple[int, ...]
    first: tuple[int, ...]
    sizes: tuple[int, ...]

    def within(self, place: Index) -> Index:
        """Returns the index in a copy of the box for an index in the buffer."""
        parts = _parts(place, self.strides) or []
        return flattened([part - n for part, n in zip(parts, self.first, strict=True)], self.sizes)


def _parts(place: Index, strides: Sequence[int]) -> list[Index] | None:
    """Returns an affine index as one for each axis of a buffer with these strides, or None."""
    parts, left = [Index() for _ in strides], place.constant
    for number, stride in enumerate(strides):
        own, left = divmod(left, stride)
        parts[number] += own
    for axis, factor in place.terms:
        along = next((i for i, stride in enumerate(strides) if stride <= factor), None)
        if not isinstance(axis, Axis) or along is None or factor % strides[along]:
            return None
        parts[along] += at(axis) * (factor // strides[along])
    return parts


def _box(loads: Sequence[Load]) -> _Box | None:
    """Returns the part of a buffer that affine loads read, or None if that is no box."""
    dims = [size for size in loads[0].buffer.dims if size != 1]
    strides = tuple(prod(dims[place + 1 :]) for place in range(len(dims)))
    found = [_parts(load.place, strides) for load in loads]
    each = [[part.bounds for part in parts] for parts in found if parts is not None]
    if len(each) < len(found):
        return None
    first = tuple(min(bounds[axis][0] for bounds in each) for axis in range(len(dims)))
    last = tuple(max(bounds[axis][1] for bounds in each) for axis in range(len(dims)))
    if any(low < 0 or high >= size for low, high, size in zip(first, last, dims, strict=True)):
        return None
    return _Box(strides, first, tuple(high - low + 1 for low, high in zip(first, last, strict=True)))


def with_float_copies(block: Block, machine: Machine) -> tuple[Block, tuple[Packing, ...]]:
    """Reads operands of a reduction from float32 copies, if they are floats of 16 bits that are read often.

    Constants stay small, and operands of bfloat16 are left to instructions that take them. Returns the block and the
    copies.
    """
    (joined,) = block.joined
    steps = prod(axis.size for axis in (*block.around, *block.axes, *joined.axes))
    copies: dict[Buffer, tuple[_Box, FloatCopy]] = {}
    loads = [load for load in loads_in(joined.element) if load.dtype in HALVES]
    for buffer in dict.fromkeys(load.buffer for load in loads):
        own = [load for load in loads if load.buffer == buffer]
        left = buffer.dtype == "bfloat16" and (machine.pairs or machine.matrix)
        box = None if left or buffer.role is Role.CONSTANT or any(load.picked for load in own) else _box(own)
        if box is None or steps < _LEAST_READS * prod(box.sizes):
            continue
        name = f"{buffer.name}.floats" + (f".{len(copies) + 1}" if copies else "")
        dims = Dims((prod(box.sizes),))
        first = sum(n * stride for n, stride in zip(box.first, box.strides, strict=True))
        *outer, (size, stride) = zip(box.sizes or (1,), box.strides or (1,), strict=True)
        copy = Buffer(name, dims, "float32", Role.TEMPORARY)
        copies[buffer] = box, FloatCopy(copy, buffer, first, tuple(outer), (), stride, ((0, size, 1),))

    def read(formula: Formula) -> Formula:
        if isinstance(formula, Convert):
            inner = formula.formula
            if isinstance(inner, Load) and inner.buffer in copies and formula.dtype == "float32":
                box, copy = copies[inner.buffer]
                return Load(copy.buffer, box.within(inner.place))
            return replace(formula, formula=read(inner))
        if isinstance(formula, Apply):
            return replace(formula, operands=tuple(map(read, formula.operands)))
        return formula

    element = read(joined.element)
    used = {load.buffer for load in loads_in(element)}
    kept = tuple(copy for _, copy in copies.values() if copy.buffer in used)
    return replace(block, joined=(replace(joined, element=element),)), kept


def filling(packing: Packing, terms: tuple[Term, ...], machine: Machine) -> Nest:
    """Returns the nest that packs an operand that is not constant."""
    loops = _in_runs(packing.statements(), lanes_of(packing.buffer.dtype, machine))
    return Nest(f"{packing.source} packed", packing.buffer, tuple(shared(loops, packing.buffer.dims.product())), terms)


def _in_runs(statements: Iterable[Statement], lanes: int) -> list[Statement]:
    """Vectorizes copy loops where both sides are contiguous, with vectors of at most `lanes` lanes."""
    found: list[Statement] = []
    for loop in statements:
        if not isinstance(loop, For):
            found.append(loop)
            continue
        (inner, *others), axis = loop.body, loop.axis
        copied = inner.formula if isinstance(inner, Store) else None
        read = copied.formula if isinstance(copied, Convert) else copied
        if others or not isinstance(inner, Store) or not isinstance(read, Load):
            found.append(replace(loop, body=tuple(_in_runs(loop.body, lanes))))
        elif coefficient(inner.place, axis) == coefficient(read.place, axis) == 1:
            found += _by_vectors(axis, inner, lanes)
        else:
            found.append(loop)
    return found


def _by_vectors(axis: Axis, store: Store, lanes: int) -> list[Statement]:
    """Returns the vector statements of a copy that is contiguous along an axis."""
    found: list[Statement] = []
    for number, (begin, width, vectors, times) in enumerate(pieces_of(axis.size, 1, lanes, 2)):
        lane, count = Axis(axis.number + 2 * number + 1, width), Axis(axis.number + 2 * number + 2, vectors * times)
        change = partial(substituted, places={axis: at(count) * width + at(lane) + begin})
        copied: Statement = replace(store, place=change(store.place), formula=changed(store.formula, change))
        copied = For(lane, (copied,), Way.VECTOR) if width > 1 else copied
        found.append(For(count, (copied,), Way.UNROLLED) if count.size > 1 else copied)
    return found


def panels_copied(
    loads: Sequence[Load],
    columns: Axis,
    rows: Sequence[Axis],
    last: Axis,
    size: Dims,
    tiles: int,
    machine: Machine,
) -> dict[Formula, Buffer]:
    """Returns operand -> scratch buffer, for operands of which a panel is copied.

    Such an operand is the same for all rows, contiguous along the columns, with a stride of at least a cache line
    along `last`, the last reduction axis, and larger than half of the L2 cache.

    size   (reduction steps, columns of the panel)
    tiles  number of tiles that read the panel
    """
    found: dict[Formula, Buffer] = {}
    for load in loads if tiles >= _LEAST_TILES else ():
        below = coefficient(load.place, columns) == 1 and abs(coefficient(load.place, last)) >= in_line(load.dtype)
        if load.picked or not below or any(coefficient(load.place, row) for row in rows):
            continue
        name = f"{load.buffer}.panel" + (f".{len(found) + 1}" if found else "")
        panel = Buffer(name, size, load.dtype, Role.SCRATCH)
        if _PART * panel.bytes <= machine.l2 < 2 * bytes_assumed(load.buffer, machine):
            found[load] = panel
    return found


def panels_computed(parts: Sequence[Formula], size: Dims, tiles: int, machine: Machine) -> dict[Formula, Buffer]:
    """Returns scaled operand -> scratch buffer: the first of many tiles computes the panel for the others.

    A panel that fills the L2 cache takes a quarter less time than one that each tile computes: measured on a Xeon.
    """
    found: dict[Formula, Buffer] = {}
    for part in dict.fromkeys(parts) if tiles >= _LEAST_TILES else ():
        panel = Buffer(f"panel.{len(found) + 1}", size, part.dtype, Role.SCRATCH)
        if panel.bytes <= machine.l2:
            found[part] = panel
    return found


def with_first_alone(rows: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Splits pieces of rows, (first, height, times), so that the first piece is a single tile."""
    (begin, height, times), *others = rows
    first = at_least(times, 1) if is_open(times) else 1
    return [(begin, height, first), *([(begin + height, height, times - first)] if times > 1 else []), *others]


def is_near(loads: Sequence[Load], columns: Axis, tiles: int, panels: int, machine: Machine) -> bool:
    """True if panels as the inner loop read fewer bytes from beyond L2 than tiles of rows as the inner loop.

    For unpacked operands. Ties: the axis of the larger operand is the outer loop, which is parallelized.
    """
    along = [load for load in loads if coefficient(load.place, columns)]
    of_columns = sum(bytes_assumed(load.buffer, machine) for load in along)
    of_rows = sum(bytes_assumed(load.buffer, machine) for load in loads if load not in along)
    room = machine.l2 // 2
    near = of_rows + of_columns * (tiles if of_columns > room else 1)
    far = of_columns + of_rows * (panels if of_rows > room else 1)
    return near < far or (near == far and (of_columns < of_rows or panels < min(LEAST_AT_ONCE, tiles)))
