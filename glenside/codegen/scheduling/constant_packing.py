"""Packs constants in the order in which tiles read them, into one allocation."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from contextlib import suppress
from math import prod
from typing import Any, Protocol

import numpy as np

from glenside.codegen.loop_ir.bf16_split_matmul import PartPacking
from glenside.codegen.loop_ir.block_packing import OffsetPacking
from glenside.codegen.loop_ir.ir import Buffer, Packing, Role
from glenside.ir.dtypes import RECORDS
from glenside.ir.operand import Array

_LARGE_PAGE = 1 << 21
_LINE = 64


class Memory:
    """Arrays in one allocation, each aligned to a cache line. Raises MemoryError.

    From `large` bytes on, the memory is mapped anew in large pages, where the system has them, for fewer TLB misses:
    memory that an allocator reuses is in small pages.
    """

    def __init__(self, sizes: Iterable[int], large: int = _LARGE_PAGE) -> None:
        size = sum(-(-size // _LINE) * _LINE for size in sizes)
        page = _LARGE_PAGE if size >= large else _LINE
        own = np.frombuffer(_mapped(size + page), np.uint8) if page > _LINE else np.empty(size + page, np.uint8)
        self._bytes, self._end = own, -own.ctypes.data % page

    def array(self, size: int, dtype: Any) -> Array:
        """Allocates an array of `size` elements."""
        item = np.dtype(dtype).itemsize
        first, self._end = self._end, self._end + -(-size * item // _LINE) * _LINE
        return self._bytes[first : first + size * item].view(dtype)


def _mapped(size: int) -> mmap.mmap:
    """Maps private pages: shared pages, the default, are small on most systems."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        found = mmap.mmap(-1, size, **private)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(*error.args) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the system may have no large pages
            found.madvise(mmap.MADV_HUGEPAGE)
    return found


class Sources(Protocol):
    """The arrays of buffers; each may be made when it is read."""

    def __getitem__(self, buffer: Buffer, /) -> Array: ...


def packed_constants(packings: Iterable[Packing], sources: Sources) -> dict[Buffer, Array]:
    """Returns packed buffer -> array, for the packings of constants: as C reads them, where `nibbles` two in a byte."""
    found = [packing for packing in packings if packing.buffer.role is Role.CONSTANT]
    memory = Memory(packing.buffer.bytes for packing in found)
    return {p.buffer: _packed(p, sources[p.source], memory) for p in found}


def elements_at(buffer: Buffer, array: Array, places: Array) -> Array:
    """Returns elements of a packed constant at indices."""
    half = buffer.nibbles
    if not half:
        return np.asarray(array.reshape(-1)[places])
    bits = array[places // (2 * half) * half + places % half] >> (places // half % 2 * 4).astype(np.uint8) & 15
    sign = 8 if buffer.dtype == "int4" else 0
    return np.asarray(((bits ^ sign).astype(np.int8) - sign).astype(RECORDS[buffer.dtype].numpy))


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
    if isinstance(packing, OffsetPacking):
        parts = [packing.packed(part) for part in parts]
    if half := packing.buffer.nibbles:
        halves = np.concatenate(parts, axis=1).view(np.uint8).reshape(-1, 2, half)
        packed = memory.array(packing.buffer.bytes, np.uint8)
        np.bitwise_or(halves[:, 0] & 15, halves[:, 1] << 4, out=packed.reshape(-1, half))
        return packed
    packed = memory.array(groups * depth * columns, RECORDS[packing.buffer.dtype].numpy)
    np.concatenate(parts, axis=1, out=packed.reshape(groups, -1))
    return packed
