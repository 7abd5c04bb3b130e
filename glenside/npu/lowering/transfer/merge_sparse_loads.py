"""Merges sparse loads of beats: one instruction covers consecutive permutation tables whose beats have a constant
stride.

DMA loads new tables one after another, each in several beats, and meanwhile uses those that are loaded. So of
consecutive new tables the last one is used alone, and before it as many at a time as there is time for. The merged
instructions take no more cycles than single ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from glenside.npu.isa.base import Spread, Tables
from glenside.npu.isa.fields import Address
from glenside.npu.machine.model import Machine


@dataclass(frozen=True)
class Step:
    """A sparse load of one beat: the slot of its table, its DRAM address, and the table's DRAM address if it is not
    loaded.
    """

    slot: int
    beat: int
    table: int | None = None


def walks(steps: Iterable[Step], machine: Machine) -> list[Sequence[Step]]:
    """Groups consecutive steps that one instruction can execute; steps may run in any order. New tables come last."""
    found = list[list[Step]]()
    for own in sorted(steps, key=lambda own: (own.table is not None, own.slot)):
        if found and _goes_on(found[-1], own):
            found[-1].append(own)
        else:
            found.append([own])
    return [part for own in found for part in (_parts(own, machine) if own[0].table is not None else [own])]


def _goes_on(walk: Sequence[Step], own: Step) -> bool:
    """True if a step can be added to a sequence."""
    last = walk[-1]
    beats = len(walk) < 2 or own.beat - last.beat == last.beat - walk[-2].beat
    return own.slot == last.slot + 1 and (own.table is None) == (last.table is None) and beats


def _parts(walk: Sequence[Step], machine: Machine) -> Iterator[Sequence[Step]]:
    """Splits a sequence into parts. A part runs until the last table of the next part is loaded."""
    sizes, left, size = list[int](), len(walk), 1
    while left:
        sizes.append(min(size, left))
        left, size = left - sizes[-1], size * machine.table_beats
    for size in sizes[::-1]:
        yield walk[:size]
        walk = walk[size:]


def spread(walk: Sequence[Step], row: int) -> Spread:
    """Returns the sparse load of a sequence of steps to weight rows from `row` on."""
    stride = walk[1].beat - walk[0].beat if len(walk) > 1 else 0
    beats = Address(walk[0].beat, (stride, 0, 0))
    return Spread((len(walk), 1, 1), beats, Address(row), walk[0].slot, len(walk) > 1)


def fetched(walk: Sequence[Step], machine: Machine) -> Iterator[Tables]:
    """Yields the loads of new tables: one load for tables that are contiguous in DRAM."""
    size, begin = machine.table_beats * machine.bandwidth, 0
    where = [own.table for own in walk if own.table is not None]
    for end in range(1, len(where) + 1):
        if end == len(where) or where[end] != where[end - 1] + size:
            yield Tables(where[begin], walk[begin].slot, end - begin)
            begin = end
