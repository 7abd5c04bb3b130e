"""Assigns the axis order (layout) of a buffer, so that elements computed together are contiguous.

The last axis is vectorized. It is the channel axis of a product with constant weights (only the weights vary along it)
if the channels fill half of a vector. Otherwise it is the axis along which most operands are contiguous already. A
small image or window has short vectors along that axis: then another axis is last, if packing its strided operands
costs less time than the short vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from glenside.codegen.loop_ir.affine_analysis import coefficient, is_direct, loads_in, substituted
from glenside.codegen.loop_ir.compute_block import Block, Joined
from glenside.codegen.loop_ir.ir import Formula, Load, Role
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.tile_partition import least_lanes
from glenside.codegen.scheduling.vectorize import lanes_of
from glenside.ir.dtypes import FLOATS
from glenside.ir.index_map import Axis, Index

_VECTOR_MACS_PER_CYCLE = 2
"""Vector multiply-adds per cycle, as on most processors."""
_COPY_CYCLES_PER_ELEMENT = 2
"""Cycles to copy one element, without vectors."""


def best_order(axes: Sequence[Axis], joined: Sequence[Joined], value: Formula, lanes: int = 1) -> tuple[int, ...]:
    """Returns the best order of the axes of a buffer: the vectorized axis last, the others as its operands are read.

    `lanes`: elements of a vector.
    """
    if not axes:
        return ()
    within = [load for own in joined for load in loads_in(own.element)]
    loads = [load for load in (*within, *loads_in(value)) if load.buffer.role is not Role.CONSTANT]

    taken = _cycles_in_vectors(axes, joined[0], lanes) if len(joined) == 1 and lanes > 1 else {}
    packed = min(taken, key=lambda axis: (taken[axis], -axes.index(axis)), default=None)

    def score(axis: Axis) -> tuple[int, int]:
        if axis.size == 1:
            return -1, 0
        moved = [coefficient(load.place, axis) for load in within if load.buffer.role is not Role.CONSTANT]
        weights = any(coefficient(load.place, axis) for load in within if load.buffer.role is Role.CONSTANT)
        if weights and not any(moved):
            return (2 if _is_short(axis, lanes) else 4), axis.size
        if axis == packed:
            return 3, axis.size
        if moved and all(step in (0, 1) for step in moved) and any(moved):
            return 2, axis.size
        return 1, 0 if within else sum(
            load.buffer.dims.product() for load in loads if _first_step(load.place, axis) == 1
        )

    last = max(range(len(axes)), key=lambda i: (score(axes[i]), i), default=0)
    largest = max(loads, key=lambda load: load.buffer.dims.product(), default=None)
    rest = [i for i in range(len(axes)) if i != last]
    if largest is not None and score(axes[last])[0] < 4:
        rest.sort(key=lambda i: -_step(largest, axes[i]))
    return (*rest, last)


def _cycles_in_vectors(axes: Sequence[Axis], joined: Joined, lanes: int) -> dict[Axis, float]:
    """Returns the cycles of sums vectorized along an axis, packing of strided operands included.

    Contains only axes with fewer cycles than every axis along which operands are contiguous; empty if such an axis
    fills a vector.
    """
    every, loads = (*axes, *joined.axes), [*loads_in(joined.element)]
    places, steps = [load.place for load in loads], prod(axis.size for axis in every)
    if any(load.picked for load in loads) or not all(is_direct(place, axis) for place in places for axis in every):
        return {}
    if not steps:  # an axis has no elements
        return {}

    def cycles(axis: Axis) -> float:
        return steps / (_VECTOR_MACS_PER_CYCLE * _vector_length(axis, joined.local.dtype, lanes))

    beside = [axis for axis in axes if {coefficient(place, axis) for place in places} == {0, 1}]
    if any(axis.size >= lanes for axis in beside):
        return {}
    least = min(map(cycles, beside), default=steps / _VECTOR_MACS_PER_CYCLE)
    found = {}
    for axis in axes:
        apart = [place for place in places if coefficient(place, axis) not in (0, 1)]
        packed = [prod(own.size for own in every if coefficient(place, own)) for place in apart]
        if axis.size > 1 and packed and all(8 * size <= steps for size in packed):
            found[axis] = cycles(axis) + _COPY_CYCLES_PER_ELEMENT * sum(packed)
    return {axis: own for axis, own in found.items() if own < least}


def _vector_length(axis: Axis, dtype: str, lanes: int) -> int:
    """Returns the elements per vector along an axis: half vectors are used too, down to the shortest that exists."""
    while lanes > axis.size:
        lanes = lanes // 2 if lanes > least_lanes(dtype) else 1
    return lanes


def lanes_to_fill(joined: Sequence[Joined], dtype: str, machine: Machine) -> int:
    """Returns the vector length for `best_order`: channels that fill less than half of it are not the last axis.

    1 for sums of bytes: these add four products at a time along channels, so that few channels are enough.
    """
    return lanes_of(dtype, machine) if all(own.local.dtype in FLOATS for own in joined) else 1


def is_narrow(block: Block, machine: Machine) -> bool:
    """True if vectors along the last axis of a block are short, but would be longer along all axes of weights only."""
    loads = [load for joined in block.joined for load in loads_in(joined.element)]
    moved = [load.place for load in loads if load.buffer.role is not Role.CONSTANT]
    alone = [
        axis
        for axis in block.axes
        if any(coefficient(load.place, axis) for load in loads) and not any(coefficient(p, axis) for p in moved)
    ]
    last = next((axis for axis in block.axes if coefficient(block.place, axis) == 1), None)
    if last is None or last not in alone or not _is_short(last, lanes_of(block.joined[0].local.dtype, machine)):
        return False
    return prod(axis.size for axis in alone) > last.size


def _is_short(axis: Axis, lanes: int) -> bool:
    """True if more than half of a vector along an axis would be empty."""
    return 2 * axis.size < lanes


def _first_step(place: Index, axis: Axis) -> int:
    """Returns the elements from index 0 to index 1 of an axis, which may be cut into several of the buffer."""
    first, second = (substituted(place, {axis: Index() + n}) for n in (0, 1))
    return 0 if (second - first).terms else (second - first).constant


def _step(load: Load, axis: Axis) -> int:
    return abs(coefficient(load.place, axis))
