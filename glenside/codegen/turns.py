"""Nests whose elements take turns in one buffer, as phases of a transposed convolution do, a few vectors of each at a
time.

Each nest by itself stores every so many elements, and would bring each line of the buffer from afar again. What they
all read is near, too, when the next one reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, groupby

from glenside.codegen.affine import at, coefficient, substituted, with_places
from glenside.codegen.bands import Scheduled, axes_of, in_turn
from glenside.codegen.blocks import Block
from glenside.codegen.lanes import lanes_of
from glenside.codegen.loops import For, Nest, Packing, Role, Statement, Way
from glenside.codegen.machine import Machine
from glenside.codegen.schedule import scheduled
from glenside.ir.index_map import Axis

_VECTORS = 2
"""Of columns that all nests store before the next ones."""


def taking_turns(
    nests: Sequence[Nest], made: Iterable[Scheduled], machine: Machine
) -> tuple[list[Nest], list[Packing], list[Packing]]:
    """The nests, one instead of those that take turns; the packings that are no longer needed, and the new ones."""
    of = {id(step.nest): step for step in made}
    found: list[Nest] = []
    dropped: list[Packing] = []
    added: list[Packing] = []
    for _, group in groupby(nests, key=lambda nest: _kind(nest, of.get(id(nest)))):
        own = list(group)
        steps = [of[id(nest)] for nest in own if id(nest) in of]
        together = _together(steps, machine) if len(steps) == len(own) > 1 else None
        if together is None:
            found += own
            continue
        nest, packings = together
        found.append(nest)
        dropped += [packing for step in steps for packing in step.packings]
        added += packings
    return found, dropped, added


def _kind(nest: Nest, step: Scheduled | None) -> object:
    """The same for nests that may take turns: they are of one buffer, and go along it alike."""
    if step is None or len(step.block.joined) != 1 or step.block.around:
        return id(nest)
    steps = [(axis.size, coefficient(step.block.place, axis)) for axis in step.block.axes]
    apart = min((step for size, step in steps if size != 1), default=1)
    return (nest.buffer, tuple(steps)) if apart > 1 else id(nest)


def _columns(block: Block) -> Axis:
    """The axis along which the elements of a block are the nearest to each other."""
    return min((axis for axis in block.axes if axis.size != 1), key=lambda axis: coefficient(block.place, axis))


def _together(steps: Sequence[Scheduled], machine: Machine) -> tuple[Nest, list[Packing]] | None:
    blocks = [step.block for step in steps]
    columns = [_columns(block) for block in blocks]
    axes = count(1 + max(axis.number for block in blocks for axis in axes_of(block)))
    width = _VECTORS * lanes_of(blocks[0].joined[0].local.dtype, machine)
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
    what = ", ".join(dict.fromkeys(step.nest.what for step in steps))
    terms = tuple(dict.fromkeys(term for step in steps for term in step.nest.terms))
    return Nest(f"{what} in turns", steps[0].nest.buffer, tuple(body), terms), packings
