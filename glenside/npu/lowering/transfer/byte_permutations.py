"""Permutes bytes to and from scratchpad cells: patterns of bytes that move in one cycle, and loops over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import add

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.isa.address_generators import generated
from glenside.npu.isa.address_loops import Nest, nests
from glenside.npu.isa.fields import Address, Counts
from glenside.npu.lowering.transfer.permutation_table_transfers import Table, in_order
from glenside.npu.lowering.util.fast_unique import distinct

_MERGE_ROUNDS = 3
"""Number of times that patterns are merged."""
_MAX_SPLIT_RUN = 4
"""Length of runs that may be split into single cells."""


def carried(source: Array, select: Array, cells: Array, lanes: int, more: Array) -> Iterator[tuple[Table, Nest]]:
    """Moves bytes from sources, which are beats or rows of sums, to scratchpad cells.

    `source`, `select` and `cells` give the source of each byte, its position there and its cell, (n) each. Yields
    tables by bank, and loops over the first cell and the values `more` of a source, (sources)(k). A source occurs as
    often as the bank that takes most of its bytes needs.
    """
    if not len(source):
        return
    bases = [int(cells[0]), *more[0].tolist()]
    moved = np.stack([source, select, cells - bases[0]]).astype(np.int64).tobytes()
    for table, nest in _carried(moved, (more - more[0]).astype(np.int64).tobytes(), more.shape[1], lanes):
        yield table, Nest(nest.counts, tuple(map(add, bases, nest.bases)), nest.strides)


@lru_cache(maxsize=1 << 10)
def _carried(moved: bytes, content: bytes, width: int, lanes: int) -> Sequence[tuple[Table, Nest]]:
    """Computes `carried` relative to the first cell and the first source, memoized: tables and loops do not depend on
    them, and most bytes of a layer move alike.
    """
    source, select, cells = np.frombuffer(moved, np.int64).reshape(3, -1)
    more = np.frombuffer(content, np.int64).reshape(-1, width)
    order = in_order(source, cells)
    source, select, cells = source[order], select[order], cells[order]
    times = _times(source, cells % lanes)
    if times.any():
        order = in_order(source, times, cells)
        source, select, cells, times = source[order], select[order], cells[order], times[order]
    begins = np.flatnonzero(np.append(True, (source[1:] != source[:-1]) | (times[1:] != times[:-1])))
    sizes = np.diff(np.append(begins, len(source)))
    first = cells[begins]  # the least one
    entries = np.stack([select, cells - np.repeat(first, sizes)], axis=1)
    places = np.concatenate([first[:, None], more[source[begins]]], axis=1)
    alike: dict[bytes, list[int]] = {}
    for step, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
        alike.setdefault(entries[begin : begin + size].tobytes(), []).append(step)
    found = list[tuple[Table, Nest]]()
    for steps in alike.values():
        begin = begins[steps[0]]
        own = entries[begin : begin + sizes[steps[0]]].tolist()
        table = Table(tuple(sorted((apart % lanes, which, apart // lanes) for which, apart in own)))
        found += ((table, nest) for nest in nests(places[steps]))
    return found


def _times(source: Array, lane: Array) -> Array:
    """Returns how many bytes of the same source the same bank took before each byte, (n)."""
    order = in_order(source, lane)
    fresh = np.append(True, (source[order][1:] != source[order][:-1]) | (lane[order][1:] != lane[order][:-1]))
    starts = np.flatnonzero(fresh)
    found = np.zeros(len(source), np.int64)
    found[order] = np.arange(len(source)) - starts[np.cumsum(fresh) - 1]
    return found


def gone_on(cells: Address, lanes: int) -> tuple[Address, Address]:
    """Splits cell addresses into rows and rotations, which carry from one row to the next."""
    row, turn = zip(*(divmod(own, lanes) for own in (cells.base, *cells.strides)), strict=True)
    return Address(row[0], row[1:]), Address(turn[0], turn[1:])


def blank(cells: Array, lanes: int, byte: int, beats: int = 1) -> Iterator[tuple[Table, Nest]]:
    """Yields fills of cells, (n), with a byte; some cells are filled twice. Runs of consecutive cells in distinct banks
    are filled at once, and runs are merged if that saves more cycles than a table costs; `beats` are those of a table.
    """
    if not len(cells):
        return
    starts, sizes = _runs(distinct(cells), lanes)
    runs = {size: starts[sizes == size] for size in distinct(sizes).tolist()}
    ways = [_put_together(own, lanes, beats) for own in _runs_of_few_sizes(runs, beats)]
    for pattern, firsts in min(ways, key=lambda own: _cycles(own, beats)).items():
        table = Table(tuple(sorted((place % lanes, byte, place // lanes) for place in pattern)))
        yield from ((table, nest) for nest in nests(firsts[:, None]))


_Patterns = Mapping[tuple[int, ...], Array]
"""Cells that are filled at once, relative to the first -> the first cells in order."""


def _cycles(patterns: _Patterns, beats: int) -> int:
    """Returns the cycles of patterns, tables included."""
    return sum(map(len, patterns.values())) + beats * len(patterns)


def _runs_of_few_sizes(runs: Mapping[int, Array], beats: int) -> Iterator[_Patterns]:
    """Yields runs of cells by size: rare sizes are split into several runs of a smaller size. Also yields variants with
    short runs split into single cells, which are more often in distinct banks.
    """
    short = {size: firsts for size, firsts in runs.items() if 1 < size <= _MAX_SPLIT_RUN}
    apart = [(firsts[:, None] + np.arange(size)).reshape(-1) for size, firsts in short.items()]
    others = {size: firsts for size, firsts in runs.items() if size not in short}
    single = np.concatenate([others.pop(1, np.zeros(0, np.int64)), *apart])
    for every in [runs, {1: single, **others}] if short else [runs]:
        found = dict[int, Array]()
        for size, firsts in sorted(every.items()):
            smaller = max(found, default=size)
            parts = -(-size // smaller)
            if found and (parts - 1) * len(firsts) < beats:
                begins = np.minimum(np.arange(parts) * smaller, size - smaller)
                found[smaller] = np.append(found[smaller], firsts[:, None] + begins)
            else:
                found[size] = firsts
        yield {tuple(range(size)): distinct(firsts) for size, firsts in found.items()}


def _put_together(patterns: _Patterns, lanes: int, beats: int) -> _Patterns:
    """Merges patterns to larger ones as long as that saves cycles."""
    for _ in range(_MERGE_ROUNDS):
        ways = [_abreast(patterns, parts, lanes, beats) for parts in (_chains, _loops)]
        best = min(ways, key=lambda own: _cycles(own, beats))
        if _cycles(best, beats) >= _cycles(patterns, beats):
            break
        patterns = best
    return patterns


def _abreast(patterns: _Patterns, parts: Callable[[Array], Iterator[Nest]], lanes: int, beats: int) -> _Patterns:
    """Merges patterns at equal distances into one, as many as are in distinct banks, along the loop with the most of
    them, if that saves more than a table costs. The last patterns of a loop may be filled twice, as a pattern of their
    own would need another table.
    """
    found: dict[tuple[int, ...], list[Array]] = {}
    for pattern, firsts in patterns.items():
        kinds: dict[tuple[int, int], list[tuple[Array, Array]]] = {}
        alike: dict[tuple[Counts, Counts], list[int]] = {}
        for part in parts(firsts):
            alike.setdefault((part.counts, part.strides[0]), []).append(part.bases[0])
        for (counts, strides), bases in alike.items():
            loops = zip(counts, strides, strict=True)
            most = [min(count, _distinct_lanes(pattern, apart % lanes, lanes)) for count, apart in loops]
            loop = int(np.argmax(most))
            count, apart, size = counts[loop], strides[loop], most[loop]
            every = generated(Address(0, strides), counts)
            rest = every.reshape(counts[::-1]).take(0, 2 - loop).reshape(-1)  # the first step of that loop
            begins = np.minimum(np.arange(0, count, size), count - size) * apart
            fewer = (rest[:, None] + begins).reshape(-1)
            from_ = np.array(bases)[:, None]
            kinds.setdefault((size, apart), []).append(((from_ + every).reshape(-1), (from_ + fewer).reshape(-1)))
        for (size, apart), own in kinds.items():
            before, after = (np.concatenate(each) for each in zip(*own, strict=True))
            worth = len(before) - len(after) > beats
            key = (np.array(pattern) + np.arange(size if worth else 1)[:, None] * apart).reshape(-1)
            found.setdefault(tuple(key.tolist()), []).append(after if worth else before)
    return {pattern: distinct(np.concatenate(own)) for pattern, own in found.items()}


def _runs(cells: Array, most: int) -> tuple[Array, Array]:
    """Returns the begin and size of each run of at most `most` consecutive cells."""
    begins = np.flatnonzero(np.append(True, np.diff(cells) != 1))
    sizes = np.diff(np.append(begins, len(cells)))
    parts = -(-sizes // most)
    within = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    starts = np.repeat(cells[begins], parts) + most * within
    return starts, np.minimum(np.repeat(sizes, parts) - most * within, most)


def _chains(starts: Array) -> Iterator[Nest]:
    """Yields maximal sequences of numbers at equal distances as loops, from the front on."""
    steps, at = np.diff(starts), 0
    changes = np.flatnonzero(np.append(np.diff(steps) != 0, True)) + 1 if len(steps) else np.zeros(0, int)
    while at < len(starts):
        last = at if at == len(starts) - 1 else int(changes[np.searchsorted(changes, at + 1)])
        step = int(steps[at]) if last > at else 0
        yield Nest((last - at + 1, 1, 1), (int(starts[at]),), ((step, 0, 0),))
        at = last + 1


def _loops(starts: Array) -> Iterator[Nest]:
    """Yields the same numbers as nested loops."""
    yield from nests(starts[:, None])


@lru_cache(maxsize=1 << 12)
def _distinct_lanes(pattern: tuple[int, ...], apart: int, lanes: int) -> int:
    """Returns how many copies of a pattern, at a distance `apart`, are in distinct banks."""
    every, taken = np.array(pattern), np.zeros(lanes, bool)
    count = 0
    while (count + 1) * len(pattern) <= lanes:
        own = (every + count * apart) % lanes
        if taken[own].any():
            break
        taken[own] = True
        count += 1
    return max(1, count)
