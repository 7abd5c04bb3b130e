"""Transfers bytes between beats and scratchpad rows: permutation tables, and loops over both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.isa.address_generators import encoded
from glenside.npu.isa.address_loops import Nest, nests
from glenside.npu.isa.fields import Address
from glenside.npu.lowering.util.fast_divmod import divided
from glenside.npu.lowering.util.fast_unique import distinct, ordered
from glenside.npu.machine.model import Machine


@dataclass(frozen=True)
class Table:
    """A permutation table: for each enabled entry its selected byte or bank, and its offset; sorted by entries."""

    entries: tuple[tuple[int, int, int], ...]

    @cached_property
    def key(self) -> bytes:
        return repr(self.entries).encode()

    @cached_property
    def _hash(self) -> int:
        return hash(self.entries)

    def __hash__(self) -> int:
        return self._hash  # computed once: tables are long and hashed often

    def array(self, entries: int) -> Array:
        """Encodes the table as in DRAM: select, enabled, offset; 8 bytes an entry."""
        found = np.zeros((3, entries), np.int64)
        for entry, select, offset in self.entries:
            found[:, entry] = select, 1, offset
        return encoded(*found)


@dataclass(frozen=True)
class Transfer:
    """Beats whose bytes are in the same banks up to a rotation, and at the same distances of rows.

    bytes  (byte of the beat, bank before rotation, row above the first one) of each
    nests  loops over beats, scratchpad rows and rotations
    """

    bytes: tuple[tuple[int, int, int], ...]
    nests: tuple[Nest, ...]

    def fills(self) -> Table:
        """Returns the table of a load: the byte of each bank."""
        return Table(tuple(sorted((lane, byte, row) for byte, lane, row in self.bytes)))

    def empties(self) -> Table:
        """Returns the table of a store: the bank of each byte."""
        return Table(self.bytes)


class Transfers:
    """The transfers of a program; memoized for bytes at equal distances."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[tuple[int, ...], tuple[tuple[Array, ...], list[Transfer]]] = {}

    def of(self, addresses: Array, lanes: Array, rows: Array) -> list[Transfer]:
        """Returns `transfers` of bytes, memoized."""
        if not len(addresses):
            return []
        beat, row = int(addresses.min()) // self.machine.bandwidth, int(rows.min())
        own = addresses - beat * self.machine.bandwidth, lanes, rows - row
        key = len(addresses), *(int(each.sum()) for each in own)
        before, found = self._known.get(key, ((), list[Transfer]()))
        if not before or not all(map(np.array_equal, before, own)):
            found = transfers(*own, self.machine)
            self._known.pop(key, None)
            self._known[key] = own, found
            if len(self._known) > _MAX_MEMOIZED:
                del self._known[next(iter(self._known))]
        return [replace(each, nests=tuple(nest.moved((beat, row, 0)) for nest in each.nests)) for each in found]


_MAX_MEMOIZED = 8
"""Number of memoized sets of transfers; similar layers follow each other closely."""


def transfers(addresses: Array, lanes: Array, rows: Array, machine: Machine) -> list[Transfer]:
    """Returns the transfers between DRAM addresses and banks and rows, (n) each, beat by beat.

    A bank takes or gives one byte a cycle: a beat occurs as often as the bank with most of its bytes needs.
    """
    begins, entries, places = _cycles(addresses, lanes, rows, machine)
    sizes = np.diff(np.append(begins, len(addresses)))
    found: dict[bytes, list[int]] = {}
    for step, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
        found.setdefault(entries.packed[begin : begin + size].tobytes(), []).append(step)
    made = []
    for steps in found.values():
        own, begin = places[steps], begins[steps[0]]
        own[:, 2] = unwrapped(own[:, 2], machine.rows)
        alike = entries.of(begin, begin + sizes[steps[0]])
        made.append(Transfer(alike, tuple(nests(own))))
    return made


def beats_and_tables(addresses: Array, lanes: Array, rows: Array, machine: Machine) -> tuple[int, int]:
    """Returns the number of beats of `transfers`, and of its tables."""
    if not len(addresses):
        return 0, 0
    begins, entries, _ = _cycles(addresses, lanes, rows, machine)
    mixed = entries.packed * _MIXERS[0]  # wraps around
    mixed = (mixed ^ (mixed >> 31)) * _MIXERS[1]
    sums = np.add.reduceat(mixed ^ (mixed >> 29), begins)
    return len(begins), len(distinct(sums))


_MIXERS = np.random.default_rng(0).integers(1, 1 << 62, 2) | 1


@dataclass(frozen=True)
class _Entries:
    """For each byte its position in the beat, its bank before rotation and its row above the first, packed into one
    number, (n); `lanes` and `rows` are the radixes.
    """

    packed: Array
    lanes: int
    rows: int

    def of(self, begin: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """Unpacks the entries of a range of bytes."""
        rest, row = np.divmod(self.packed[begin:end], self.rows)
        byte, lane = np.divmod(rest, self.lanes)
        return tuple(zip(byte.tolist(), lane.tolist(), row.tolist(), strict=True))


def _cycles(addresses: Array, lanes: Array, rows: Array, machine: Machine) -> tuple[Array, _Entries, Array]:
    """Returns the first byte of each cycle, (cycles), the bytes, and beat, first row and rotation of each cycle,
    (cycles)(3).
    """
    order, begins = _steps(addresses, lanes, rows, machine.bandwidth)
    beats, bytes_ = divided(addresses[order], machine.bandwidth)
    lanes, rows = lanes[order], rows[order]
    sizes = np.diff(np.append(begins, len(beats)))
    bases, turns = np.minimum.reduceat(rows, begins), lanes[begins]
    turned = (lanes - np.repeat(turns, sizes)) % machine.rows
    above = rows - np.repeat(bases, sizes)
    span = 1 + int(above.max(initial=0))
    entries = _Entries((bytes_ * machine.rows + turned) * span + above, machine.rows, span)
    return begins, entries, np.stack([beats[begins], bases, turns], axis=1)


def _steps(addresses: Array, lanes: Array, rows: Array, width: int) -> tuple[Array, Array]:
    """Returns the order in which bytes are moved, (n), by position within a beat, and the begin of each cycle."""
    beats = addresses // width
    order = in_order(beats, lanes, rows)
    beats, taken = beats[order], lanes[order]
    fresh = np.append(True, (beats[1:] != beats[:-1]) | (taken[1:] != taken[:-1]))
    starts = np.flatnonzero(fresh)
    times = np.arange(len(beats)) - starts[np.cumsum(fresh) - 1]  # bytes of this beat that the bank took before
    by_time = in_order(beats, times, addresses[order] % width, taken)
    beats, times = beats[by_time], times[by_time]
    begins = np.flatnonzero(np.append(True, (beats[1:] != beats[:-1]) | (times[1:] != times[:-1])))
    return order[by_time], begins


def in_order(*keys: Array) -> Array:
    """Returns the order by the first key, then the next; packed into one number if possible, which sorts faster."""
    every, room = keys[0].astype(np.int64), 1
    for key in keys[1:]:
        least, most = int(key.min(initial=0)), int(key.max(initial=0))
        every, room = every * (most - least + 1) + (key - least), room * (most - least + 1)
    if room * (1 + int(np.abs(keys[0]).max(initial=0))) >= 1 << 62:
        return np.lexsort(keys[::-1])
    return ordered(every)


def batches(parts: Iterable[tuple[Table, Nest]], most: int) -> Iterator[list[tuple[Table, Nest]]]:
    """Yields batches of parts with at most `most` distinct tables, which are loaded before any is used."""
    held, known = list[tuple[Table, Nest]](), set[Table]()
    for table, nest in parts:
        if table not in known and len(known) == most:
            yield held
            held, known = [], set()
        held.append((table, nest))
        known.add(table)
    if held:
        yield held


def unwrapped(turns: Array, lanes: int) -> Array:
    """Returns rotations that continue beyond the number of banks, so that equal steps have equal differences."""
    steps = np.diff(turns, prepend=0) % lanes
    found: Array = np.cumsum(steps)
    return found


def modulo(turn: Address, lanes: int) -> Address:
    """Reduces a rotation modulo the number of banks."""
    first, second, third = (stride % lanes for stride in turn.strides)
    return Address(turn.base % lanes, (first, second, third))
