"""Interleaves nests whose elements alternate in one buffer, such as the phases of a transposed convolution.

Each step stores a few vectors of every nest. A nest by itself stores every n-th element, and would fetch each cache
line of the buffer from memory again. Operands that the nests share stay in cache, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count, groupby

from glenside.codegen.loop_ir.affine_analysis import at, coefficient, substituted, with_places
from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.ir import For, Nest, Packing, Role, Statement, Way
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.passes.fuse_producer_consumer import axes_of, in_turn
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.select_schedule import scheduled
from glenside.codegen.scheduling.vectorize import lanes_of
from glenside.ir.index_map import Axis

_VECTORS_PER_STEP = 2
"""Vectors of columns that each nest stores in one step."""


def interleave_phases(module: Module, machine: Machine) -> Module:
    """Interleaves nests that each store every n-th element of one buffer."""
    found: list[Nest] = []
    dropped: list[Packing] = []
    added: list[Packing] = []
    for _, group in groupby(module.nests, key=_kind):
        own = list(group)
        blocks = [nest.block for nest in own if isinstance(nest.block, Block)]
        together = _together(own, blocks, machine) if len(blocks) == len(own) > 1 else None
        if together is None:
            found += own
            continue
        nest, packings = together
        found.append(nest)
        dropped += [packing for nest in own for packing in nest.packings]
        added += packings
    return module.rescheduled(found, dropped, added)


def _kind(nest: Nest) -> object:
    """Returns a key that is equal for nests to interleave: the same buffer, the same loop sizes and strides."""
    block = nest.block
    if not isinstance(block, Block) or len(block.joined) != 1 or block.around:
        return id(nest)
    steps = [(axis.size, coefficient(block.place, axis)) for axis in block.axes]
    apart = min((step for size, step in steps if size != 1), default=1)
    return (nest.buffer, tuple(steps)) if apart > 1 else id(nest)


def _columns(block: Block) -> Axis:
    """Returns the axis along which a block stores with the smallest stride."""
    return min((axis for axis in block.axes if axis.size != 1), key=lambda axis: coefficient(block.place, axis))


def _together(nests: Sequence[Nest], blocks: Sequence[Block], machine: Machine) -> tuple[Nest, list[Packing]] | None:
    """Interleaves nests of one buffer in one nest, and returns its packings too; None if a part cannot be scheduled."""
    columns = [_columns(block) for block in blocks]
    axes = count(1 + max(axis.number for block in blocks for axis in axes_of(block)))
    width = _VECTORS_PER_STEP * lanes_of(blocks[0].joined[0].local.dtype, machine)
    whole, rest = divmod(columns[0].size, width)
    body: list[Statement] = []
    packings: list[Packing] = []
    for begin, size, times in ((0, width, whole), (whole * width, rest, 1)):
        if not size or not times:
            continue
        panel, column = Axis(next(axes), times), Axis(next(axes), size)
        inner: list[Statement] = []
        for block, axis in zip(blocks, columns, strict=True):
            place = at(panel) * width + at(column) + begin
            part = with_places(block, partial(substituted, places={axis: place}))
            part = replace(part, axes=tuple(column if a == axis else a for a in block.axes if a != axis or size > 1))
            found = scheduled(part, axes, machine)
            if found is None and size > 1:
                return None
            if found and any(packing.source.role is not Role.CONSTANT for packing in found.packings):
                return None
            inner += map(in_turn, found.statements if found else part.plain())
            packings += found.packings if found else ()
        body += [For(panel, tuple(inner), Way.PARALLEL)] if times > 1 else inner
    what = ", ".join(dict.fromkeys(nest.what for nest in nests))
    terms = tuple(dict.fromkeys(term for nest in nests for term in nest.terms))
    return Nest(f"{what} in turns", nests[0].buffer, tuple(body), terms), packings
