"""Fuses producer and consumer nests into bands: one step of a shared axis at a time, so that the operand is in cache.

A nest is fused with the producer of its operand if both have the same index along one axis of that buffer: a depthwise
convolution and the products of its pixels; Winograd's transforms and the products between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from math import prod

from glenside.codegen.loop_ir.accesses import used_buffers
from glenside.codegen.loop_ir.affine_analysis import (
    all_indices,
    at,
    coefficient,
    indices_of,
    is_affine,
    loads_in,
    substituted,
    with_loads,
    with_places,
)
from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.ir import (
    Buffer,
    For,
    Let,
    Load,
    Nest,
    Packing,
    Role,
    Statement,
    Way,
    When,
)
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.passes.prefetch_across_bands import asking_for_next
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.select_schedule import scheduled
from glenside.codegen.scheduling.softmax_template import Softmax
from glenside.ir.index_map import Axis, Index

_LEAST_BYTES = 1 << 17
"""Minimum bytes of the buffer between two nests: a smaller buffer is in cache without fusion."""
_LEAST_ROWS = 8
"""Minimum rows left for tiles in one band."""
_LEAST_BANDS = 4
"""Minimum bands, so that several threads have work."""


def fuse_producer_consumer(module: Module, machine: Machine) -> Module:
    """Fuses nests with the producers of their operands, along one axis."""
    blocks = {number: nest.block for number, nest in enumerate(module.nests) if isinstance(nest.block, Block)}
    found = list[Nest | None](module.nests)
    dropped: list[Packing] = []
    added: list[Packing] = []
    for group in _groups(module.nests, blocks, machine):
        order = sorted(group)
        own = [module.nests[i] for i in order]
        band = _band(own, [blocks[i] for i in order], [group[i] for i in order], machine)
        if band is None:
            continue
        nest, packings = band
        for i in group:
            found[i] = None
            dropped += module.nests[i].packings
        found[max(group)] = nest
        added += packings
    return module.rescheduled([nest for nest in found if nest is not None], dropped, added)


def _groups(nests: Sequence[Nest], blocks: Mapping[int, Block], machine: Machine) -> list[dict[int, Axis]]:
    """Returns the groups of nests to fuse: for each, nest number -> the axis along which it is fused."""
    users: dict[Buffer, set[int]] = {}
    makers: dict[Buffer, list[int]] = {}
    for number, nest in enumerate(nests):
        makers.setdefault(nest.buffer, []).append(number)
        for buffer in used_buffers(nest.body):
            users.setdefault(buffer, set()).add(number)
    of: dict[int, dict[int, Axis]] = {}
    for number in sorted(blocks):
        between: dict[Buffer, int] = {}
        loads = (load.buffer for load in _loads(blocks[number]) if load.buffer.role is Role.TEMPORARY)
        for buffer in dict.fromkeys(loads):  # in order: of equally large buffers, the first counts as the largest
            maker = makers.get(buffer, [])
            if len(maker) == 1 and users[buffer] == {number, maker[0]}:
                between[buffer] = maker[0]
        group = _extended_group(number, between, of, nests, blocks, machine)
        of |= dict.fromkeys(group, group)
    return list({id(group): group for group in of.values()}.values())


def _extended_group(
    number: int,
    between: Mapping[Buffer, int],
    of: Mapping[int, dict[int, Axis]],
    nests: Sequence[Nest],
    blocks: Mapping[int, Block],
    machine: Machine,
) -> dict[int, Axis]:
    """Adds a nest to the group that fills its largest operand; returns that group, or an empty one if it cannot."""
    largest = max((b for b in between if between[b] in blocks), key=lambda b: b.bytes, default=None)
    if largest is None:
        return {}
    before = between[largest]
    if not _pays((*nests[before].packings, *nests[number].packings), largest, machine):
        return {}
    group = of.get(before, {})
    for first, second in pairs(blocks[before], blocks[number], largest):
        if group.get(before, first) != first or largest.bytes // first.size > machine.l2 // 3:
            continue
        if not (_leaves_rows(blocks[before], first) and _leaves_rows(blocks[number], second)):
            continue
        own = {before: first} | group
        beside = [b for b, maker in between.items() if maker in own and b is not largest]
        if all((own[between[b]], second) in pairs(blocks[between[b]], blocks[number], b) for b in beside):
            group.update({**own, number: second})
            return group
    return {}


def _loads(block: Block | Softmax) -> Iterator[Load]:
    if isinstance(block, Softmax):
        yield from loads_in(block.element)
        return
    for formula in (block.value, *(j.element for j in block.joined), *(value for _, value in block.beside)):
        yield from loads_in(formula)


def _pays(packings: Sequence[Packing], between: Buffer, machine: Machine) -> bool:
    """True if the buffer between is too large for the cache, and the weights, which each band rereads, are not."""
    weights = sum(p.buffer.bytes for p in packings if p.buffer.role is Role.CONSTANT)
    return between.bytes >= _LEAST_BYTES and weights <= machine.l2 // 2


def _leaves_rows(block: Block, axis: Axis) -> bool:
    """True if bands along an axis leave enough rows for tiles, and all bands read the same weights, packed once."""
    weights = [load.place for load in _loads(block) if load.buffer.role is Role.CONSTANT]
    shared = [a for a in block.axes[:-1] if not any(coefficient(place, a) for place in weights)]
    rows = prod(a.size for a in shared if a != axis)
    return axis in shared and axis.size >= _LEAST_BANDS and rows >= _LEAST_ROWS


def pairs(before: Block | Softmax, after: Block | Softmax, between: Buffer) -> list[tuple[Axis, Axis]]:
    """Returns the pairs of axes along which one block fills a buffer as another reads it, outermost first."""
    stores = [before.place, *(place for place, _ in getattr(before, "beside", ()))]
    loads = [load.place for load in _loads(after) if load.buffer is between]
    found = []
    for number in range(len(between.dims)):
        first = {along(place, between, number) for place in stores}
        second = {along(place, between, number) for place in loads}
        if len(first) == len(second) == 1:
            pair = first.pop(), second.pop()
            if pair[0] is not None and pair[1] is not None and pair[0] in before.axes and pair[1] in after.axes:
                found.append((pair[0], pair[1]))
    return found


def along(place: Index, buffer: Buffer, number: int) -> Axis | None:
    """Returns the axis that alone is the index along dim `number` of a buffer; None if the index is anything else."""
    step = prod(buffer.dims[number + 1 :])
    whole = step * buffer.dims[number]
    if not is_affine(place) or place.constant < 0 or place.constant % whole >= step:
        return None
    low = place.constant % step
    found: list[tuple[Axis, int]] = []
    for axis, factor in place.terms:
        assert isinstance(axis, Axis), "the place is affine"
        if factor < 0 or (factor >= whole and factor % whole):
            return None
        if factor < step:
            low += factor * (axis.size - 1)
        elif factor < whole:
            found.append((axis, factor))
    if low >= step or len(found) != 1 or found[0][1] != step or found[0][0].size != buffer.dims[number]:
        return None
    return found[0][0]


def _band(
    nests: Sequence[Nest], blocks: Sequence[Block], own: Sequence[Axis], machine: Machine
) -> tuple[Nest, list[Packing]] | None:
    """Returns the nests fused into one parallel loop over their axes, and its packings; None if a
    nest cannot be fused.
    """
    whole = list(blocks)
    for nest, block, axis in zip(nests[:-1], whole[:-1], own, strict=False):
        blocks = _in_scratch(blocks, nest.buffer, block.place, axis)
    axes = count(1 + max(axis.number for block in blocks for axis in axes_of(block)))
    band = Axis(next(axes), own[0].size)
    blocks = [
        with_places(block, partial(substituted, places={axis: at(band)}))
        for block, axis in zip(blocks, own, strict=True)
    ]
    longest = max(blocks, key=_steps)
    body: list[Statement] = []
    packings: list[Packing] = []
    for block, axis in zip(blocks, own, strict=True):
        made = scheduled(replace(block, axes=tuple(a for a in block.axes if a != axis)), axes, machine)
        if made is None or any(p.source.role is not Role.CONSTANT for p in made.packings):
            return None
        if any(isinstance(statement, Let) for statement in made.statements):
            return None
        statements = [in_turn(statement) for statement in made.statements]
        body += asking_for_next(statements, [*_loads(blocks[0])], band, machine) if block is longest else statements
        packings += made.packings
    what = ", ".join(nest.what for nest in nests)
    terms = tuple(term for nest in nests for term in nest.terms)
    return Nest(f"bands of {what}", nests[-1].buffer, (For(band, tuple(body), Way.PARALLEL),), terms), packings


def _steps(block: Block) -> int:
    return prod(axis.size for axis in (*block.axes, *(axis for joined in block.joined for axis in joined.axes)))


def _in_scratch(blocks: Sequence[Block], buffer: Buffer, place: Index, axis: Axis) -> list[Block]:
    """Returns the blocks with a buffer between them replaced by scratch memory of one band."""
    number = next(i for i in range(len(buffer.dims)) if along(place, buffer, i) == axis)
    inner = prod(buffer.dims[number + 1 :])
    outer = inner * buffer.dims[number]
    scratch = Buffer(buffer.name, buffer.dims.remove(number), buffer.dtype, Role.SCRATCH)

    def within(place: Index) -> Index:
        terms = [(a, f if f < inner else f // outer * inner) for a, f in place.terms if not inner <= f < outer]
        return Index(tuple(terms), place.constant % inner + place.constant // outer * inner)

    def moved(load: Load) -> Load:
        return Load(scratch, within(load.place), load.picked) if load.buffer is buffer else load

    change = partial(with_loads, change=moved)
    found = []
    for block in blocks:
        fills = block.buffer is buffer
        joined = tuple(replace(j, element=change(j.element), start=change(j.start)) for j in block.joined)
        beside = tuple((within(place) if fills else place, change(value)) for place, value in block.beside)
        block = replace(block, joined=joined, value=change(block.value), beside=beside)
        found.append(replace(block, buffer=scratch, place=within(block.place)) if fills else block)
    return found


def axes_of(block: Block | Softmax) -> Iterator[Axis]:
    """Yields the axes of a block and of its operands, with duplicates."""
    if isinstance(block, Softmax):
        yield from (*block.axes, block.along)
        for index in (block.place, *indices_of(block.element)):
            yield from (atom for atom, _ in index.terms if isinstance(atom, Axis))
        return
    yield from block.axes
    for joined in block.joined:
        yield from joined.axes
    for index in all_indices(block):
        yield from (atom for atom, _ in index.terms if isinstance(atom, Axis))


def in_turn(statement: Statement) -> Statement:
    """Returns a statement with its parallel loops made serial: the thread that has the band runs them."""
    if isinstance(statement, For):
        way = Way.LOOP if statement.way is Way.PARALLEL else statement.way
        return replace(statement, body=tuple(map(in_turn, statement.body)), way=way)
    return replace(statement, body=tuple(map(in_turn, statement.body))) if isinstance(statement, When) else statement
