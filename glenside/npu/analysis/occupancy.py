"""Computes the utilization of each unit and the occupancy of each memory over a program's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from glenside.npu.analysis.critical_path import WRITES, cause_of
from glenside.npu.isa.address_generators import Integers
from glenside.npu.isa.base import Tables
from glenside.npu.isa.effects import ACCUMULATORS, LANES, WEIGHTS
from glenside.npu.isa.fields import UNITS
from glenside.npu.model.access_sets import access_sets
from glenside.npu.model.cycle_model import Times, times
from glenside.npu.model.execute import in_order
from glenside.npu.model.happens_before import Now
from glenside.npu.program.program import NpuProgram
from glenside.npu.program.table_memory import LaneTables

Shares = npt.NDArray[np.float64]
STEPS = 1200
"""Maximum number of parts that time is divided into."""
_MEMORIES = LANES, WEIGHTS, ACCUMULATORS


@dataclass(frozen=True)
class Timeline:
    """The utilization and occupancy in equal parts of a program's time.

    edges   cycles at which parts begin, and at which the last part ends, (parts + 1)
    busy    busy fraction of each unit, with DMA by direction, (parts) each
    full    live fraction of each memory's locations at each edge, (parts + 1) each; a live location is read later
    layers  name, first cycle in which the layer streams, and first such cycle of the next layer
    """

    edges: Integers
    busy: Mapping[str, Shares]
    full: Mapping[str, Shares]
    layers: Sequence[tuple[str, int, int]]


def timeline(program: NpuProgram, found: Times | None = None, steps: int = STEPS) -> Timeline:
    """Simulates a program and returns its timeline. Raises BadInput."""
    found = times(program) if found is None else found
    cycles = max(1, found.cycles)
    edges = np.linspace(0, cycles, min(steps, cycles) + 1).round().astype(np.intp)
    return Timeline(edges, _busy(program, found, edges), _occupancy(program, found, edges), _layers(program, found))


def _busy(program: NpuProgram, found: Times, edges: Integers) -> Mapping[str, Shares]:
    """Returns the busy fraction of each unit and DMA direction per part."""
    spans: dict[str, list[tuple[int, int]]] = {"stream": [], "load": [], "store": [], "DMA in": [], "DMA out": []}
    for unit in UNITS:
        for number, own in enumerate(program.queue(unit)):
            cause = cause_of(type(own))
            name = unit if unit != "dma" else "DMA fills" if cause == "fills" else _dma_direction(cause)
            span = int(found.start[unit][number]), int(found.end[unit][number])
            spans.setdefault(name, []).append(span)
    return {name: _shares(np.array(own, np.int64).reshape(-1, 2), edges) for name, own in spans.items()}


def _dma_direction(cause: str) -> str:
    return "DMA out" if cause in WRITES else "DMA in"


def _shares(spans: npt.NDArray[np.int64], edges: Integers) -> Shares:
    """Returns the fraction of each part that disjoint, ascending spans cover."""
    before = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])])
    at = np.searchsorted(spans[:, 0], edges, side="right")
    past = np.maximum(0, spans[np.maximum(at - 1, 0), 1] - edges) if len(spans) else np.zeros(len(edges), np.int64)
    done = before[at] - np.where(at > 0, past, 0)
    found: Shares = np.diff(done) / np.diff(edges)
    return found


def _layers(program: NpuProgram, found: Times) -> list[tuple[str, int, int]]:
    starts = found.start["stream"]
    own = [s for s in program.stretches if s.begin.get("stream", 0) < s.end.get("stream", 0)]
    first = [*(int(starts[s.begin.get("stream", 0)]) for s in own), found.cycles]
    return [(s.name, begin, end) for s, (begin, end) in zip(own, pairwise(first), strict=True)]


class _LiveRanges:
    """A memory that records the live range of each location's value.

    The indices that an instruction accesses have shape (iterations ..).
    """

    def __init__(self, size: int, edges: Integers, found: Times) -> None:
        self.edges, self.times = edges, found
        self.since, self.until = np.zeros(size, np.int64), np.full(size, -1, np.int64)
        self.changes = np.zeros(len(edges) + 1, np.int64)

    def read(self, at: Integers, now: Now) -> None:
        self.until[at] = self._moments(at, now)

    def write(self, at: Integers, now: Now) -> None:
        self._note(np.unique(at))
        end, completed = (int(own[now.unit][now.number]) for own in (self.times.end, self.times.completed))
        self.since[at] = self._moments(at, now) + completed - end
        self.until[at] = -1

    def _moments(self, at: Integers, now: Now) -> Integers:
        """Returns the cycle of each iteration, (iterations ..)."""
        cycles = int(self.times.end[now.unit][now.number]) - now.start
        found: Integers = now.start + np.arange(len(at)) * cycles // max(1, len(at))
        return found.reshape(-1, *[1] * (at.ndim - 1))

    def _note(self, at: Integers) -> None:
        """Ends the live ranges of locations that are overwritten."""
        read = at[self.until[at] > self.since[at]]
        for when, change in ((self.since, 1), (self.until, -1)):
            np.add.at(self.changes, np.searchsorted(self.edges, when[read]), change)

    def shares(self) -> Shares:
        self._note(np.arange(len(self.since)))
        found: Shares = np.cumsum(self.changes)[: len(self.edges)] / max(1, len(self.since))
        return found


def _occupancy(program: NpuProgram, found: Times, edges: Integers) -> Mapping[str, Shares]:
    """Returns the live fraction of each memory, from the effects of the instructions."""
    machine, tables = program.machine, LaneTables(program.machine)
    ranges = {
        memory: _LiveRanges(memory.size(machine), edges, found) for memory in _MEMORIES if memory.size is not None
    }
    beats = len(program.dram) // machine.bandwidth
    for start, unit, number in in_order(found):
        own, now = program.queue(unit)[number], Now(unit, number, start, ())
        for effect, at in access_sets(own, machine, tables, beats):
            if effect.memory in ranges:
                (ranges[effect.memory].write if effect.writes else ranges[effect.memory].read)(at, now)
        if isinstance(own, Tables):
            tables.load(program.dram, own.dram, own.table, own.number)
    return {memory.name: own.shares() for memory, own in ranges.items()}
