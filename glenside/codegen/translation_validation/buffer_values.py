"""Values of buffer elements for sampled checks: a pseudo-random function of buffer name and index.

Nothing is allocated: values are computed on demand. The contents of a packed buffer are defined here a second time,
from the description of `Packing` alone, so that loops that pack, or read packed buffers, are checked against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isfinite, prod

import numpy as np

from glenside.codegen.loop_ir.bf16_split_matmul import CHUNK, PartPacking
from glenside.codegen.loop_ir.block_packing import BlockSums, OffsetPacking
from glenside.codegen.loop_ir.ir import Buffer, Packing
from glenside.ir.dtypes import REALS, limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.semantics.loop_field import LoopField
from glenside.semantics.prime_field import function_seed

_INTEGER_BOUND = 1 << 20
"""Bound on random integers: few dtypes wrap in sums of products, and all values of an index occur."""
_AMX_COLUMNS = 16
"""Columns of one register of a matrix unit (AMX)."""


@lru_cache(maxsize=1 << 12)
def _seed(name: str) -> np.uint64:
    return function_seed(f"buffer {name}")


def origin(buffer: Buffer) -> str:
    """Returns the name that a buffer shares with its rematerialized copies."""
    return f"{buffer.role.value} {buffer.name.partition('.again')[0]}"


def scattered(name: str, places: Array) -> Array:
    """Returns pseudo-random integers below 2^32, a function of the name and of each index."""
    key = places.astype(np.uint64)
    key *= np.uint64(0x9E3779B97F4A7C15)
    key += _seed(name)
    key ^= key >> np.uint64(29)
    key *= np.uint64(0xBF58476D1CE4E5B9)
    key ^= key >> np.uint64(32)
    key *= np.uint64(0x94D049BB133111EB)
    key >>= np.uint64(32)
    return key


class Values:
    """The value of each buffer element before a nest runs.

    known  name -> array of constants of one element, which are part of the loops
    """

    def __init__(self, field: LoopField, packings: Sequence[Packing], known: Mapping[str, Array]) -> None:
        self.field = field
        self.packings = {origin(packing.buffer): packing for packing in packings}
        self.known: dict[str, Array] = {}
        for name, array in known.items():
            if not isfinite(float(array.reshape(-1)[0])):
                continue
            try:
                self.known[name] = field.encode(name, array.reshape(-1), array.dtype.name)
            except BadInput:
                continue

    def at(self, buffer: Buffer, places: Array) -> Array:
        """Returns the elements of a buffer at indices within it."""
        packing = self.packings.get(origin(buffer))
        if isinstance(packing, BlockSums):
            return packing.values(places, lambda at: self.at(packing.source, at))
        if packing is not None:
            source, is_value = source_places(packing, places)
            found = self.at(packing.source, source)
            if isinstance(packing, OffsetPacking):
                return packing.packed(found)
            return np.where(is_value, found, found.dtype.type(0))
        if buffer.name in self.known and buffer.dims.product() == 1:
            return np.broadcast_to(self.known[buffer.name][0], places.shape)
        drawn = scattered(origin(buffer), places)
        if buffer.dtype in REALS:
            drawn *= np.uint64(self.field.p)
            drawn >>= np.uint64(32)
            return drawn.astype(np.float32) - np.float32(self.field.half)
        if buffer.dtype == "bool":
            return np.asarray((drawn & np.uint64(1)).astype(bool))
        low, high = limits(buffer.dtype)
        low, high = max(low, -_INTEGER_BOUND), min(high, _INTEGER_BOUND - 1)
        return np.asarray((drawn % np.uint64(high - low + 1)).astype(np.int64) + low).astype(buffer.dtype)


def source_places(packing: Packing, places: Array) -> tuple[Array, Array]:
    """Returns the index in the source of each element of a packed buffer, and False for padding, which is zero.

    Of a number packed in bf16 parts, the first part represents the whole number, the others zeros.
    """
    if isinstance(packing, PartPacking):
        return _source_of_parts(packing, places)
    columns = sum(width * count for _, width, count in packing.pieces)
    split = len(packing.inner) - packing.together
    before, behind = [n for n, _ in packing.inner[:split]], [n for n, _ in packing.inner[split:]]
    padded = -(-prod(behind) // packing.deep) * packing.deep
    depth = prod(before) * padded
    outer, rest = np.divmod(places, max(1, depth * columns))
    source = packing.first + _strided(outer, packing.outer)
    is_value = np.zeros(places.shape, bool)
    place = np.zeros(places.shape, np.int64)
    for first, width, count in packing.pieces:
        own = rest - first * depth
        here = (own >= 0) & (own < width * count * depth)
        panel, within = np.divmod(own, depth * width)
        group, within = np.divmod(within, width * packing.deep)
        column, near = np.divmod(within, packing.deep)
        step = group * packing.deep + near
        high, low = np.divmod(step, padded)
        found = source + (first + panel * width + column) * packing.stride
        found = found + _strided(high, packing.inner[:split]) + _strided(low, packing.inner[split:])
        value = here & (low < prod(behind))
        place, is_value = np.where(value, found, place), is_value | value
    return place, is_value


def _source_of_parts(packing: PartPacking, places: Array) -> tuple[Array, Array]:
    """Same for bf16 parts, packed as [outer][block][chunk][part][line][step].

    Columns are packed as [outer][block][chunk][part][16 lines][pair][line][2].
    """
    lines, run = prod(n for n, _ in packing.lines), packing.inner[-1][0]
    in_run = -(-run // CHUNK)
    rest, step = np.divmod(places, CHUNK)
    if packing.paired:
        rest, within = np.divmod(places, _AMX_COLUMNS * CHUNK)
        pair, within = np.divmod(within, 2 * _AMX_COLUMNS)
        step = pair * 2 + within % 2
        rest = rest * _AMX_COLUMNS + within // 2
    rest, line = np.divmod(rest, packing.height)
    rest, part = np.divmod(rest, packing.parts)
    rest, chunk = np.divmod(rest, prod(n for n, _ in packing.inner[:-1]) * in_run)
    outer, block = np.divmod(rest, -(-lines // packing.height))
    line = block * packing.height + line
    above, chunk = np.divmod(chunk, in_run)
    along = chunk * CHUNK + step
    is_value = (line < lines) & (along < run) & (part == 0)
    place = packing.first + _strided(outer, packing.outer) + _strided(line, packing.lines)
    place = place + _strided(above, packing.inner[:-1]) + along * packing.inner[-1][1]
    return np.where(is_value, place, 0), is_value


def _strided(flat: Array, axes: Sequence[tuple[int, int]]) -> Array:
    """Returns the offset of a flat index in row-major order of axes, given as (size, stride)."""
    found = np.zeros_like(flat)
    for size, stride in reversed(axes):
        flat, index = np.divmod(flat, max(1, size))
        found = found + index * stride
    return found
