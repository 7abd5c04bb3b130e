"""Bytes to and from lanes as a memory of rows of R bytes: patterns of bytes that move in one cycle, and their loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.fields import Address
from glenside.npu.lowering.distinct import distinct
from glenside.npu.lowering.filling import Table
from glenside.npu.nests import Nest, nests

_TIMES = 2
"""How often patterns of cells are put together that are there already."""


def carried(source: Array, select: Array, cells: Array, lanes: int, more: Array) -> Iterator[tuple[Table, Nest]]:
    """Bytes from sources, beats or rows of sums, each of its place in that and to a cell of the lanes, (n) each: by
    lanes what each takes, and loops over the first cell, and what goes with a source, (sources)(k).

    A source comes as often as the lane needs that takes most of its bytes.
    """
    if not len(source):
        return
    order = np.lexsort((cells, source))
    source, select, cells = source[order], select[order], cells[order]
    times = _times(source, cells % lanes)
    if times.any():
        order = np.lexsort((cells, times, source))
        source, select, cells, times = source[order], select[order], cells[order], times[order]
    begins = np.flatnonzero(np.append(True, (source[1:] != source[:-1]) | (times[1:] != times[:-1])))
    sizes = np.diff(np.append(begins, len(source)))
    first = cells[begins]  # the least one
    entries = np.stack([select, cells - np.repeat(first, sizes)], axis=1)
    places = np.concatenate([first[:, None], more[source[begins]]], axis=1)
    found: dict[bytes, list[int]] = {}
    for step, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
        found.setdefault(entries[begin : begin + size].tobytes(), []).append(step)
    for steps in found.values():
        begin = begins[steps[0]]
        own = entries[begin : begin + sizes[steps[0]]].tolist()
        table = Table(tuple(sorted((apart % lanes, which, apart // lanes) for which, apart in own)))
        yield from ((table, nest) for nest in nests(places[steps]))


def _times(source: Array, lane: Array) -> Array:
    """How often a lane took of a source before, (n)."""
    order = np.lexsort((lane, source))
    fresh = np.append(True, (source[order][1:] != source[order][:-1]) | (lane[order][1:] != lane[order][:-1]))
    starts = np.flatnonzero(fresh)
    found = np.zeros(len(source), np.int64)
    found[order] = np.arange(len(source)) - starts[np.cumsum(fresh) - 1]
    return found


def gone_on(cells: Address, lanes: int) -> tuple[Address, Address]:
    """Cells as rows of lanes and turns, which go on from one row to the next."""
    row, turn = zip(*(divmod(own, lanes) for own in (cells.base, *cells.strides)), strict=True)
    return Address(row[0], row[1:]), Address(turn[0], turn[1:])


def blank(cells: Array, lanes: int, byte: int, beats: int = 1) -> Iterator[tuple[Table, Nest]]:
    """What puts a byte into cells, (n): runs of them, as many at a time as are in distinct lanes; then as many of these
    at a time as are, where that spares more cycles than it takes beats of tables.
    """
    if not len(cells):
        return
    starts, sizes = _runs(distinct(cells), lanes)
    every = {tuple(range(size)): starts[sizes == size] for size in distinct(sizes).tolist()}
    ways = [_abreast(every, lanes)]
    for _ in range(_TIMES):
        ways.append(_abreast(ways[-1], lanes))
    for pattern, firsts in min(ways, key=lambda own: sum(map(len, own.values())) + beats * len(own)).items():
        table = Table(tuple(sorted((place % lanes, byte, place // lanes) for place in pattern)))
        yield from ((table, nest) for nest in nests(firsts[:, None]))


def _abreast(patterns: Mapping[tuple[int, ...], Array], lanes: int) -> dict[tuple[int, ...], Array]:
    """Patterns of cells, and where each begins, in order: those that are equally far apart as one, as many as are in
    distinct lanes.
    """
    found: dict[tuple[int, ...], list[int]] = {}
    for pattern, firsts in patterns.items():
        own = np.array(pattern)
        for begin, apart, count in _chains(firsts):
            most = _distinct_lanes(pattern, apart % lanes, lanes) if count > 1 else 1
            for at in range(0, count, most):
                every = own + np.arange(min(most, count - at))[:, None] * apart
                found.setdefault(tuple(every.reshape(-1).tolist()), []).append(begin + at * apart)
    return {pattern: np.sort(np.array(firsts)) for pattern, firsts in found.items()}


def _runs(cells: Array, most: int) -> tuple[Array, Array]:
    """Cells that follow each other: where each run of at most so many begins, and its size."""
    begins = np.flatnonzero(np.append(True, np.diff(cells) != 1))
    sizes = np.diff(np.append(begins, len(cells)))
    parts = -(-sizes // most)
    within = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    starts = np.repeat(cells[begins], parts) + most * within
    return starts, np.minimum(np.repeat(sizes, parts) - most * within, most)


def _chains(starts: Array) -> Iterator[tuple[int, int, int]]:
    """Numbers that are equally far apart, from the front on: the first, how far, and how many."""
    steps, at = np.diff(starts), 0
    changes = np.flatnonzero(np.append(np.diff(steps) != 0, True)) + 1 if len(steps) else np.zeros(0, int)
    while at < len(starts):
        if at == len(starts) - 1:
            yield int(starts[at]), 0, 1
            return
        last = int(changes[np.searchsorted(changes, at + 1)])
        yield int(starts[at]), int(steps[at]), last - at + 1
        at = last + 1


@lru_cache(maxsize=1 << 12)
def _distinct_lanes(pattern: tuple[int, ...], apart: int, lanes: int) -> int:
    """How many of a pattern, that far apart, are in distinct lanes."""
    every, taken = np.array(pattern), np.zeros(lanes, bool)
    count = 0
    while (count + 1) * len(pattern) <= lanes:
        own = (every + count * apart) % lanes
        if taken[own].any():
            break
        taken[own] = True
        count += 1
    return max(1, count)
