"""Constants in the order in which tiles read them, beside each other in one piece of memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.bf16_split_matmul import PartPacking
from glenside.codegen.loop_ir.ir import Buffer, Packing, Role
from glenside.ir.dtypes import RECORDS
from glenside.ir.operand import Array

_LARGE_PAGE = 1 << 21
_LINE = 64


class Memory:
    """Arrays in one piece of memory, each from the begin of a line of the cache on. Large pages hold it where the
    system has them, so that fewer of its addresses are looked up: it is the system's own, since what a process used
    before, and is given again, lies in small ones. Raises MemoryError.

    large  bytes from which on large pages are taken
    """

    def __init__(self, sizes: Iterable[int], large: int = _LARGE_PAGE) -> None:
        size = sum(-(-size // _LINE) * _LINE for size in sizes)
        page = _LARGE_PAGE if size >= large else _LINE
        own = np.frombuffer(_mapped(size + page), np.uint8) if page > _LINE else np.empty(size + page, np.uint8)
        self._bytes, self._end = own, -own.ctypes.data % page

    def array(self, size: int, dtype: Any) -> Array:
        """The next so many elements."""
        item = np.dtype(dtype).itemsize
        first, self._end = self._end, self._end + -(-size * item // _LINE) * _LINE
        return self._bytes[first : first + size * item].view(dtype)


def _mapped(size: int) -> mmap.mmap:
    """Pages of its own: those that are shared, which are the default, are small ones on most systems."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        found = mmap.mmap(-1, size, **private)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(*error.args) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system may have none
            found.madvise(mmap.MADV_HUGEPAGE)
    return found


def packed_constants(packings: Iterable[Packing], sources: Mapping[Buffer, Array]) -> dict[Buffer, Array]:
    """The packed copies of constants."""
    found = [packing for packing in packings if packing.buffer.role is Role.CONSTANT]
    memory = Memory(p.buffer.bytes for p in found)
    return {p.buffer: _packed(p, sources[p.source], memory) for p in found}


def _packed(packing: Packing, source: Array, memory: Memory) -> Array:
    if isinstance(packing, PartPacking):
        packed = memory.array(packing.buffer.dims.product(), RECORDS[packing.buffer.dtype].numpy)
        packing.fill(packed, source)
        return packed
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
