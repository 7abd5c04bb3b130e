"""Tests cycle and byte accounts of programs: each is counted once, for its cause, and accesses as in the simulator."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from npu_layers import MACHINES
from npu_networks import network
from npu_programs import Memory, drawn_for, random_machine

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.npu.analysis.access_counts import accesses
from glenside.npu.analysis.critical_path import OUTSIDE, UNKNOWN, Ledger, accounts
from glenside.npu.isa.base import Instruction, Lanes, Load, Stream, Sums, Tables, Weights
from glenside.npu.isa.fields import UNITS, Address, Wait
from glenside.npu.machine.model import Energy, Machine
from glenside.npu.model import execute
from glenside.npu.model.happens_before import Now, Places
from glenside.npu.program.program import NpuProgram
from glenside.quantization.network import integer_network


def _holds(program: NpuProgram) -> Ledger:
    """Each cycle and byte is there once."""
    done, found = execute.run(program), accounts(program)
    total = found.total
    assert total.cycles == done.cycles == found.cycles
    assert (total.read, total.written) == (done.read, done.written)
    assert total.stalls[UNKNOWN] == 0
    assert min(total.stalls.values(), default=0) >= 0
    assert {unit: total.busy[unit] for unit in UNITS} == done.times.busy
    assert total.compute == total.busy["stream"]
    assert max(total.busy.values()) <= found.bound <= found.cycles
    for unit, ends in done.times.end.items():
        assert total.waits.get(unit, Counter()).total() == ends.max(initial=0) - total.busy[unit]
    return found


def test_each_cycle_of_random_programs_is_spent_once() -> None:
    causes = Counter[str]()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        machine = random_machine(rng, int(rng.integers(1, 7)), int(rng.integers(1, 7)))
        causes += _holds(drawn_for(machine, seed)).total.stalls
    assert {"weights", "inputs", "outputs", "sums", "tables", "parameters", "latency", "load", "store", "drain"} <= {
        cause for cause, count in causes.items() if count
    }


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=pytest.mark.slow if n != 1 else ()) for n in range(len(MACHINES))]
)
def test_layers_of_a_network_add_up(number: int) -> None:
    found = integer_network(network(random.Random(number)))
    target = gl.NPU(MACHINES[number])
    result = gl.optimize(found.program, target, verify=False)
    program = target.network_code(result, found)
    ledger = _holds(program)
    named = [own for own in ledger.layers if own.name != OUTSIDE]
    assert [own.name for own in named] == [stretch.name for stretch in program.stretches]
    assert [own.stays for own in named] == [stretch.result is None for stretch in program.stretches]
    macs = {name: row.macs for name, row in ((row.name, row) for row in result.report.layers)}
    assert {own.name: own.macs for own in named if own.macs is not None} == macs
    for own in named:
        assert (own.utilization(program.machine) or 0) <= 1
    assert ledger.as_dict()["total"]["cycles"] == program.predicted


MACHINE = Machine(4, 4, scratchpad=512, weights=64, accumulators=8, bandwidth=16, latency=10)


def _by_hand() -> NpuProgram:
    """Returns a tile of four rows, which are there before the weights are, and its sums."""
    memory = Memory(MACHINE)
    tables = memory.table(np.arange(4), np.ones(4), np.zeros(4))
    rows, weights = memory.put(bytes(range(64)), 16), memory.put(bytes(range(64)), 16)
    room = memory.put(bytes(64), 16)
    dma: tuple[Instruction, ...] = (
        Tables(tables, 0, 1),
        Lanes((4, 1, 1), Address(rows, (16, 0, 0)), Address(0, (1, 0, 0)), 0, wait=Wait(dma=1)),
        Weights(weights, 0, 4),
        Sums((4, 1, 1), Address(room, (16, 0, 0)), Address(0, (1, 0, 0)), Wait(stream=1)),
    )
    stream = Stream((4, 1, 1), Address(0, (1, 0, 0)), 0, Address(0, (1, 0, 0)), False, True, wait=Wait(dma=2))
    queues = {"dma": dma, "load": (Load(0, 4, Wait(dma=3)),), "stream": (stream,)}
    return NpuProgram(MACHINE, queues, memory.array)


def test_what_a_program_waits_for_is_as_counted_by_hand() -> None:
    """Tables 8 beats + 16 late, lanes 4, weights 4 + 16, load 4; stream 4, drained 4 + 3 + 4 - 1; sums 4 + 16."""
    ledger = _holds(_by_hand())
    total = ledger.total
    late = MACHINE.latency + 6
    assert dict(total.stalls) == {
        "tables": 8, "inputs": 4, "weights": 4, "load": 4, "sums": 4, "latency": 3 * late, "drain": 10, UNKNOWN: 0,
    }  # fmt: skip
    assert total.compute == 4
    assert dict(total.moved) == {"tables": 128, "inputs": 64, "weights": 64, "sums": 64}
    assert total.waits["stream"] == {"load": 8 + 4 + 4 + 4 + 2 * late}
    counts = {"product": 4 * 4 * 4, "lane_byte": 16 + 16, "weight_byte": 32, "accumulator_word": 32, "dram_byte": 320}
    assert dict(total.accesses) == counts
    assert total.energy(MACHINE) is None
    energy = Energy(1, 10, 100, 1_000, 10_000, "made up")
    assert total.energy(replace(MACHINE, energy=energy)) == 64 + 320 + 3_200 + 32_000 + 3_200_000


class _Counting(execute.State):
    """The simulator's memories, which count what is reached."""

    def __init__(self, program: NpuProgram) -> None:
        super().__init__(program)
        columns = program.machine.columns
        self.counts: Counter[str] = Counter()
        for name, what, each in (
            ("of_lanes", "lane_byte", 1),
            ("of_weights", "weight_byte", columns),
            ("of_sums", "accumulator_word", columns),
        ):
            setattr(self, name, _Watched(self, what, each))

    def _spread(self, now: Now, own: object) -> None:
        before = self.counts["weight_byte"]
        super()._spread(now, own)  # type: ignore[arg-type]
        self.counts["weight_byte"] = before + (self.counts["weight_byte"] - before) // self.machine.columns


class _Watched(Places):
    def __init__(self, state: _Counting, what: str, each: int) -> None:
        super().__init__(what, ())
        self.state, self.what, self.each = state, what, each

    def read(self, at: np.ndarray, now: Now, *, own: bool = True) -> None:
        self.state.counts[self.what] += at.size * self.each
        if self.what == "lane_byte" and now.unit == "stream":
            self.state.counts["product"] += at.size * self.state.machine.columns

    def write(self, at: np.ndarray, now: Now) -> None:
        self.state.counts[self.what] += at.size * self.each


def test_accesses_are_those_of_the_simulator() -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        program = drawn_for(random_machine(rng, int(rng.integers(1, 7)), int(rng.integers(1, 7))), seed)
        done = execute.run(program)
        counting = _Counting(program)
        many = sum(map(len, program.queues.values()))
        moments = [(int(t), unit, i) for unit in UNITS for i, t in enumerate(done.times.start[unit])]
        for start, unit, number in sorted(moments):
            counting.do(Now(unit, number, start, (many,) * len(UNITS)), program.queue(unit)[number])
        counted = accounts(program).total.accesses
        assert counted.pop("dram_byte") == done.read + done.written
        assert +counted == +counting.counts


def test_a_table_that_nothing_fills_is_told() -> None:
    program = _by_hand()
    queues = {**program.queues, "dma": program.queue("dma")[1:]}
    with pytest.raises(BadInput, match="table 0 is used, and nothing has filled it by cycle 7"):
        accesses(replace(program, queues=queues), "stream", {"dma": [0, 4, 8], "stream": [7]})
