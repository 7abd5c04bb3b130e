"""Constants in the order in which tiles read them, beside each other in one piece of memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from glenside.codegen.loops import Buffer, Packing, Role
from glenside.ir.operand import Array

_LARGE_PAGE = 1 << 21
_LINE = 64


class Memory:
    """Arrays in one piece of memory, each from the begin of a line of the cache on. Large pages hold it where the
    system has them, so that fewer of its addresses are looked up.
    """

    def __init__(self, sizes: Iterable[int]) -> None:
        self._bytes = np.empty(sum(-(-size // _LINE) * _LINE for size in sizes) + _LARGE_PAGE, np.uint8)
        self._end = -self._bytes.ctypes.data % _LARGE_PAGE

    def array(self, size: int, dtype: Any) -> Array:
        """The next so many elements."""
        item = np.dtype(dtype).itemsize
        first, self._end = self._end, self._end + -(-size * item // _LINE) * _LINE
        return self._bytes[first : first + size * item].view(dtype)


def packed_constants(packings: Iterable[Packing], sources: Mapping[Buffer, Array]) -> dict[Buffer, Array]:
    """The packed copies of constants."""
    found = [packing for packing in packings if packing.buffer.role is Role.CONSTANT]
    memory = Memory(p.buffer.bytes for p in found)
    return {p.buffer: _packed(p, sources[p.source], memory) for p in found}


def _packed(packing: Packing, source: Array, memory: Memory) -> Array:
    sizes = [*(n for n, _ in packing.outer), *(n for n, _ in packing.inner)]
    steps = [*(s for _, s in packing.outer), *(s for _, s in packing.inner), packing.stride]
    columns = sum(width * times for _, width, times in packing.pieces)
    flat = source.reshape(-1)[packing.first :]
    strides = [step * source.itemsize for step in steps]
    found = np.lib.stride_tricks.as_strided(flat, (*sizes, columns), strides, writeable=False)
    groups, depth, deep = prod(n for n, _ in packing.outer), packing.depth, packing.deep
    cut = [n for n, _ in packing.inner[: len(packing.inner) - packing.together]]
    whole = found.reshape(groups * prod(cut), -1, columns)
    if missing := depth // prod(cut) - whole.shape[1]:
        whole = np.pad(whole, ((0, 0), (0, missing), (0, 0)))
    apart = whole.reshape(groups, depth // deep, deep, columns)
    parts = [
        apart[..., begin : begin + n * width]
        .reshape(groups, depth // deep, deep, n, width)
        .transpose(0, 3, 1, 4, 2)
        .reshape(groups, -1)
        for begin, width, n in packing.pieces
    ]
    packed = memory.array(groups * depth * columns, source.dtype)
    np.concatenate(parts, axis=1, out=packed.reshape(groups, -1))
    return packed
