"""Beats of weights that are spread, by as few instructions as may be: one walks over the lane tables that lie side by
side, where its beats go on by equal steps.

DMA brings new tables one after the other, each of several beats, and uses those that are there meanwhile. So of new
ones that lie side by side the last is used by itself, and those before it, as many as there is time for: nothing takes
a cycle longer than if each were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from glenside.npu.isa.base import Spread, Tables
from glenside.npu.isa.fields import Address
from glenside.npu.machine.model import Machine


@dataclass(frozen=True)
class Step:
    """A beat that is spread: the slot of its table, where it is in DRAM, and, of a new table, where that is."""

    slot: int
    beat: int
    table: int | None = None


def walks(steps: Iterable[Step], machine: Machine) -> list[Sequence[Step]]:
    """Steps, which may be done in any order, in the one in which they are: those together that one instruction does.
    What is new comes last.
    """
    found = list[list[Step]]()
    for own in sorted(steps, key=lambda own: (own.table is not None, own.slot)):
        if found and _goes_on(found[-1], own):
            found[-1].append(own)
        else:
            found.append([own])
    return [part for own in found for part in (_parts(own, machine) if own[0].table is not None else [own])]


def _goes_on(walk: Sequence[Step], own: Step) -> bool:
    """Whether a step is the next one of some."""
    last = walk[-1]
    beats = len(walk) < 2 or own.beat - last.beat == last.beat - walk[-2].beat
    return own.slot == last.slot + 1 and (own.table is None) == (last.table is None) and beats


def _parts(walk: Sequence[Step], machine: Machine) -> Iterator[Sequence[Step]]:
    """Splits a sequence so that each part takes until the last table of the next part is loaded."""
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
