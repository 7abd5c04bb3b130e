"""Tests sequences of sparse loads: their effect, their cycles, and the slots of their tables."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from npu_programs import Memory

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.npu.isa.base import Instruction, Spread, Tables
from glenside.npu.isa.fields import Address
from glenside.npu.lowering.allocation.slot_allocator import Slots
from glenside.npu.lowering.transfer.merge_sparse_loads import Step, fetched, spread, walks
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.cycle_model import times
from glenside.npu.model.infer_synchronization import waiting
from glenside.npu.model.reference_results import wrong
from glenside.npu.program.program import NpuProgram

MACHINE = Machine(8, 8, scratchpad=1 << 12, bandwidth=4, latency=9)  # a table is of 16 beats


def _steps(pick: random.Random, machine: Machine, new: float) -> list[Step]:
    """Some beats at a time that go on by as much, of tables that are in any slots, and maybe new."""
    size = machine.table_beats * machine.bandwidth
    slots = sorted(pick.sample(range(machine.tables), pick.randint(1, 20)))
    beats, steps = [4 * pick.choice([0, 0, 1, 5]) for _ in slots], list[Step]()
    for slot, beat in zip(slots, np.cumsum(beats).tolist(), strict=True):
        table = size * (pick.choice([0, 0, 100]) + slot) if pick.random() < new else None
        steps.append(Step(slot, beat, table))
    pick.shuffle(steps)
    return steps


@pytest.mark.parametrize("new", [0, 0.3, 1])
def test_walks_are_their_steps(new: float) -> None:
    pick = random.Random(int(10 * new))
    for _ in range(100):
        steps = _steps(pick, MACHINE, new)
        found = walks(steps, MACHINE)
        done, there = list[tuple[int, int]](), dict[int, int]()
        for walk in found:
            for own in fetched(walk, MACHINE):
                size = MACHINE.table_beats * MACHINE.bandwidth
                there |= {own.table + each: own.dram + each * size for each in range(own.number)}
        for own in (spread(walk, 40) for walk in found):
            assert own.weights == Address(40)
            assert own.tables == own.counts[0]
            stride, *_ = own.dram.strides
            done += [(own.table + each, own.dram.base + each * stride) for each in range(own.tables)]
        assert sorted(done) == sorted((own.slot, own.beat) for own in steps)
        assert there == {own.slot: own.table for own in steps if own.table is not None}
        known = [walk[0].table is None for walk in found]
        assert known == sorted(known, reverse=True), "what is new comes last"


def test_steps_side_by_side_are_one_walk() -> None:
    assert [len(own) for own in walks([Step(slot, 8 * slot) for slot in (5, 3, 4, 2)], MACHINE)] == [4]
    assert [len(own) for own in walks([Step(slot, 0) for slot in (5, 3, 2)], MACHINE)] == [2, 1]
    assert [len(own) for own in walks([Step(slot, 4 * (slot == 3)) for slot in range(4)], MACHINE)] == [3, 1]
    every = walks([Step(slot, 0, 64 * slot) for slot in range(20)], MACHINE)
    assert [len(own) for own in every] == [3, 16, 1]  # while the last table comes there is time for 16
    assert [own.number for walk in every for own in fetched(walk, MACHINE)] == [3, 16, 1]


def _taken(machine: Machine, written: list[Instruction], memory: Memory) -> int:
    program = NpuProgram(machine, {}, memory.array)
    return times(replace(program, queues=waiting(program, written))).cycles


@pytest.mark.parametrize("machine", [MACHINE, replace(MACHINE, bandwidth=32), replace(MACHINE, bandwidth=64)], ids=str)
def test_new_tables_are_used_as_soon_as_one_by_one(machine: Machine) -> None:
    pick, every = random.Random(0), np.arange(machine.columns)
    for _ in range(30):
        memory, count = Memory(machine), pick.randint(1, 20)
        first = memory.table(0 * every, every >= 0, 0 * every)
        for _ in range(count - 1):
            memory.table(0 * every, every >= 0, 0 * every)
        size = machine.table_beats * machine.bandwidth
        steps = [Step(slot, 0, first + slot * size) for slot in range(count)]
        found = walks(steps, machine)
        assert len(found) <= 3
        together = [own for walk in found for own in fetched(walk, machine)], [spread(walk, 0) for walk in found]
        alone = (
            [Tables(first + slot * size, slot, 1) for slot in range(count)],
            [Spread((1, 1, 1), Address(0), Address(0), slot) for slot in range(count)],
        )
        took = [_taken(machine, [*tables, *spreads], memory) for tables, spreads in (together, alone)]
        assert took[0] == took[1]


def _taken_of(slots: Slots, *keys: str) -> list[tuple[int, bool]]:
    return slots.side_by_side([key.encode() for key in keys])


def test_what_is_needed_at_once_lies_side_by_side() -> None:
    slots = Slots(16)
    assert _taken_of(slots, "a", "b", "c") == [(0, True), (1, True), (2, True)]
    assert _taken_of(slots, "d", "a", "e", "f") == [(3, True), (0, False), (4, True), (5, True)]
    assert _taken_of(slots, *"ghijk") == [(number, True) for number in range(6, 11)]
    assert _taken_of(slots, *"lmnop") == [(number, True) for number in range(11, 16)]
    assert _taken_of(slots, "q") == [(1, True)], "b was not needed for longest, then c, a, d and e"
    assert _taken_of(slots, *"rst") == [(2, True), (3, True), (4, True)]
    assert _taken_of(slots, *"uvwx") == [(5, True), (6, True), (7, True), (0, True)], "of a, f, g and h three and one"
    assert [key.decode() for key in slots.held] == [*"ijklmnopqrstuvwx"]


def test_what_is_missing_lies_beside_what_is_there() -> None:
    slots = Slots(16)
    _taken_of(slots, *"abcdefghijklmnop"[:8])
    _taken_of(slots, *"ijklmnop")
    _taken_of(slots, *"cdgh")
    assert _taken_of(slots, "x", "y", "g") == [(4, True), (5, True), (6, False)], "0 and 1 were there for longer"
    assert _taken_of(slots, "z", "x") == [(0, True), (4, False)], "one that is alone takes the oldest"


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_slots_hold_what_they_say(count: int) -> None:
    """What is needed at once is there at once, and what was needed a moment ago still is."""
    pick, slots, held = random.Random(count), Slots(count), dict[int, bytes]()
    before = set[bytes]()
    for _ in range(300):
        keys = [b"%d" % key for key in pick.sample(range(3 * count), pick.randint(1, count))]
        keys = keys[: max(1, pick.choice([count // 4, count // 2, count]))]
        kept = {slot: key for slot, key in held.items() if key in before}
        found = slots.side_by_side(keys)
        assert len({slot for slot, _ in found}) == len(keys)
        for key, (slot, is_new) in zip(keys, found, strict=True):
            assert is_new == (held.get(slot) != key)
            held[slot] = key
        assert {key: slot for slot, key in held.items()} == slots.held
        assert {*slots.held.values()} == {*range(len(slots.held))}
        if len(keys) + len(kept) <= count // 2:
            assert kept.items() <= held.items()
        before = {*keys}


@cache
def _depthwise() -> NpuProgram:
    b = gl.Builder("three")
    x = b.relu(b.conv(b.input("x", (1, 4, 8, 8)), b.constant("a", (16, 4, 1, 1))))
    y = b.relu(b.conv(x, b.constant("b", (16, 1, 3, 3)), padding=1, groups=16))
    network = b.finish(b.conv(y, b.constant("c", (96, 16, 1, 1)))).seeded_constants(0)
    sizes = {"scratchpad": 1 << 15, "weights": 16 * 16 * 24, "accumulators": 64, "bandwidth": 8, "latency": 40}
    return gl.npu_program(network, gl.NPU(Machine(16, 16, **sizes)), quantize="random")  # type: ignore[arg-type]


def _walks(program: NpuProgram) -> list[tuple[int, Spread]]:
    """Those over several tables, by number."""
    return [(n, own) for n, own in enumerate(program.queue("dma")) if isinstance(own, Spread) and own.tables > 1]


@pytest.mark.slow
def test_a_depthwise_layer_comes_by_walks() -> None:
    program = _depthwise()
    done = execute.run(program)
    assert wrong(program, done.dram) == []
    assert done.cycles == program.predicted
    spreads = [own for own in program.queue("dma") if isinstance(own, Spread)]
    steps = sum(own.tables for own in spreads)
    assert len(_walks(program)) > 3
    assert 3 * len(spreads) < steps


def test_a_walk_that_is_another_is_noticed() -> None:
    """Over one table all the time, over one less, over others, or by other beats."""
    program, seen = _depthwise(), 0
    for number, own in _walks(program):
        (first, *more), (beats, *_) = own.counts, own.dram.strides
        others = (
            {"increment": False},
            {"counts": (first - 1, *more)},
            {"table": own.table + 1},
            {"dram": replace(own.dram, strides=(beats + program.machine.bandwidth, 0, 0))},
        )
        for changed in others:
            queue = [*program.queue("dma")]
            queue[number] = replace(own, **changed)  # type: ignore[arg-type]
            other = replace(program, queues={**program.queues, "dma": tuple(queue)})
            try:
                noticed = bool(wrong(other, execute.run(other).dram))
            except BadInput:
                noticed = True
            assert noticed, f"{number}: {changed}"
            seen += 1
    assert seen > 12
