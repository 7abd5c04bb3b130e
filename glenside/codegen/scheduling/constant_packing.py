"""Packs constants in the order in which tiles read them, into one allocation."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
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


_AT_ONCE = 1 << 20
"""The elements that are packed at a time, as they are copied several times."""


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
    groups, half = prod(n for n, _ in packing.outer), packing.buffer.nibbles
    kind = np.dtype(np.uint8 if half else RECORDS[packing.buffer.dtype].numpy)
    packed = memory.array(packing.buffer.bytes // kind.itemsize, kind)
    into, begin = packed.reshape(groups, -1), 0
    for pieces in _in_parts(packing):
        elements = _elements(packing, found, pieces)
        if half:
            halves = elements.view(np.uint8).reshape(-1, 2, half)
            elements = ((halves[:, 0] & 15) | (halves[:, 1] << 4)).reshape(groups, -1)
        into[:, begin : begin + elements.shape[1]] = elements
        begin += elements.shape[1]
    return packed


def _in_parts(packing: Packing) -> Iterator[Sequence[tuple[int, int, int]]]:
    """Yields the pieces of a packing, those of many panels cut into parts: what is packed at a time."""
    both = 2 * packing.buffer.nibbles
    if both and any(packing.depth * width % both for _, width, _ in packing.pieces):
        yield packing.pieces
        return
    for first, width, count in packing.pieces:
        panel = max(1, prod(n for n, _ in packing.outer) * packing.depth * width)
        step = max(1, _AT_ONCE // panel)
        for begin in range(0, count, step):
            yield [(first + begin * width, width, min(step, count - begin))]


def _elements(packing: Packing, found: Array, pieces: Sequence[tuple[int, int, int]]) -> Array:
    """Returns the packed elements of pieces, (groups)(elements); `found` is the source as (outer)(inner)(columns)."""
    groups, depth, deep = prod(n for n, _ in packing.outer), packing.depth, packing.deep
    cut = prod(n for n, _ in packing.inner[: len(packing.inner) - packing.together])
    parts = []
    for begin, width, count in pieces:
        whole = found[..., begin : begin + count * width].reshape(groups * cut, -1, count * width)
        if missing := depth // cut - whole.shape[1]:
            whole = np.pad(whole, ((0, 0), (0, missing), (0, 0)))
        apart = whole.reshape(groups, depth // deep, deep, count, width).transpose(0, 3, 1, 4, 2).reshape(groups, -1)
        parts.append(packing.packed(apart) if isinstance(packing, OffsetPacking) else apart)
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
