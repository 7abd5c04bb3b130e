"""Tests resident tensors: strides without bank conflicts in a row, and networks that run with them."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import replace

import numpy as np
import pytest
from npu_layers import MACHINES
from npu_networks import network
from slow_cases import quick

import glenside as gl
import glenside.quantization.calibration as Q
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.npu.isa.address_loops import Nest
from glenside.npu.isa.base import Lanes
from glenside.npu.isa.fields import Address
from glenside.npu.lowering.allocation.skewed_layout import Reads, skewed
from glenside.npu.lowering.allocation.slot_allocator import Slots
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.lowering.selection.feasible_choice import best
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.mapped_layers import Mapped, name_of
from glenside.npu.lowering.transfer.byte_permutations import blank, carried, gone_on
from glenside.npu.lowering.transfer.permutation_table_transfers import Table
from glenside.npu.lowering.transfer.sparse_weight_loads import Spreadings
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.npu.program.program import NpuProgram
from glenside.quantization.layers import IntegerNetwork, leaf_of
from glenside.quantization.network import integer_network


def _cells(table: Table, nest: Nest, lanes: int) -> tuple[Array, Array]:
    """Where each iteration puts the bytes of a table, (n)(entries), and which of them each is, (entries)."""
    to, turn = gone_on(nest.address(0), lanes)
    rows, turns = (replace(nest, bases=(own.base,), strides=(own.strides,)).addresses() for own in (to, turn))
    entry, select, offset = np.array(table.entries).T
    return (rows[:, None] + offset) * lanes + turns[:, None] + entry, select


@pytest.mark.parametrize("seed", range(6))
def test_blank_covers_its_cells_and_no_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes = int(rng.choice([3, 5, 8, 16]))
    pitch, high = int(rng.integers(4, 30)), int(rng.integers(1, 9))
    image = (np.arange(high)[:, None] * pitch + np.arange(int(rng.integers(1, pitch)))).reshape(-1)
    cells = np.concatenate([image, rng.integers(1000, 1100, 20)])
    found = list[int]()
    for table, nest in blank(cells, lanes, 7):
        at, select = _cells(table, nest, lanes)
        assert (select == 7).all()
        assert all(len({*(row % lanes).tolist()}) == len(row) for row in at)  # a byte of a lane in a cycle
        found += at.reshape(-1).tolist()
    assert {*found} == {*cells.tolist()}
    assert len(found) < 2 * len({*found})


@pytest.mark.parametrize("seed", range(6))
def test_carried_moves_each_byte_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes, count = int(rng.choice([3, 5, 8])), 60
    cells = rng.permutation(300)[:count]
    source, select = np.repeat(np.arange(12), 5), np.tile(np.arange(5), 12)
    more = 100 + 3 * np.arange(12)[:, None]
    found = {}
    for table, nest in carried(source, select, cells, lanes, more):
        at, which = _cells(table, nest, lanes)
        assert all(len({*(row % lanes).tolist()}) == len(row) for row in at)
        for own, number in zip(at, nest.addresses(1), strict=True):
            found |= {int(cell): (int(number), int(each)) for cell, each in zip(own, which, strict=True)}
    wanted = zip(cells.tolist(), more[source, 0].tolist(), select.tolist(), strict=True)
    assert found == {cell: (number, each) for cell, number, each in wanted}


def _touched(reads: Reads, strides: Array) -> Array:
    """Returns the cell of every lane that reads, (tiles)(m)(R)."""
    first, apart = reads.places(strides)
    return np.asarray(first[:, :, None] + apart[:, None, :])


FAST = (*range(4), 34)  # 34 stores beside each other items that find their parameters in the two ways
NETWORKS = [pytest.param(seed, marks=[pytest.mark.slow] * (seed not in FAST)) for seed in range(60)]


def _found(seed: int, machine: Machine) -> tuple[IntegerNetwork, dict[str, list[tuple[Mapped, int]]]]:
    quantized = integer_network(network(random.Random(seed)))
    result = gl.optimize(quantized.program, gl.NPU(machine), verify=False)
    return quantized, {name: [*front] for name, front in map_layers(result, quantized).items()}


@pytest.mark.parametrize("seed", NETWORKS)
def test_rows_are_read_from_distinct_lanes(seed: int) -> None:
    machine = MACHINES[seed % len(MACHINES)]
    _, fronts = _found(seed, machine)
    seen = 0
    for front in fronts.values():
        for mapped, _ in front[:3]:
            layer = Layer.of(mapped.term, machine)
            if len(layer.product.rows.first) > 1:
                continue
            (leaf,) = layer.product.rows.first
            dims = tuple(leaf.access.dims)
            reads = Reads.of(layer, dims)
            skew = skewed(dims, [reads], None, machine) if reads is not None else None
            if reads is None or skew is None:
                continue
            at, numbers = _touched(reads, skew.strides), layer.product.rows.numbers
            elements = np.stack(np.unravel_index(np.arange(leaf.access.size), dims), axis=-1) @ skew.strides
            assert len(np.unique(elements)) == leaf.access.size
            assert np.array_equal(at[numbers > 0], elements[numbers[numbers > 0] - 1])
            for tile, used in enumerate(reads.used):
                lanes = at[tile][:, used] % machine.rows
                assert (np.diff(np.sort(lanes, axis=1), axis=1) > 0).all()
            assert not np.isin(reads.zeros @ skew.strides, elements).any()
            seen += 1
    assert seen


def _is_right(program: NpuProgram) -> None:
    ran = execute.run(program)
    assert ran.cycles == program.predicted
    assert wrong(program, ran.dram) == []
    assert program.stretches[-1].result is not None
    assert program.stretches[-1].meaning


@pytest.mark.parametrize("seed", NETWORKS)
def test_networks_are_right_whatever_stays(seed: int) -> None:
    machine = MACHINES[seed % len(MACHINES)]
    quantized, fronts = _found(seed, machine)
    taken, choice = best(quantized, fronts, machine)
    for stay in (None, (), choice.held):
        _is_right(compile_mapped(quantized, taken, machine, 0, choice.axes, stay=stay))


def _convolutions() -> Program:
    b = gl.Builder("convolutions")
    x = b.relu(b.conv(b.input("x", (1, 3, 11, 13)), b.constant("a", (12, 3, 3, 3)), padding=1, name="first"))
    x = b.relu(b.conv(x, b.constant("b", (12, 1, 3, 3)), padding=1, groups=12, name="by channel"))
    x = b.relu(b.conv(x, b.constant("c", (10, 12, 1, 1)), name="by pixel"))
    return b.finish(b.conv(x, b.constant("d", (5, 10, 3, 3)), strides=2, padding=1, name="last")).seeded_constants(0)


def _lanes(program: NpuProgram) -> list[list[bool]]:
    """Of each layer whether its beats to lanes are of rows of bytes."""
    return [[own.carry for own in layer.of(program, "dma") if isinstance(own, Lanes)] for layer in program.stretches]


def _made(machine: Machine, stay: tuple[Term, ...] | None) -> NpuProgram:
    """Returns the program of mappings that keep constants in the array, even if others are better."""
    quantized = Q.quantized(_convolutions(), _convolutions().constants)
    result = gl.optimize(quantized.program, gl.NPU(machine), verify=False)
    taken = {}
    for name, front in map_layers(result, quantized).items():
        layers = ((mapped, Layer.of(mapped.term, machine)) for mapped, _ in front)
        taken[name] = next(
            mapped
            for mapped, layer in layers
            if not any(leaf_of(mapped.operands.get(leaf, leaf))[0].children for leaf in layer.product.weights.first)
            and not any(
                name_of(tensor) == "x"
                for leaf in layer.product.weights.first
                if (tensor := leaf_of(mapped.operands.get(leaf, leaf))[0]).operator.name == "access-tensor"
            )
        )
    return compile_mapped(quantized, taken, machine, stay=stay)


@pytest.mark.parametrize("latency", [40])
@pytest.mark.slow
def test_what_stays_passes_memory_once(latency: int) -> None:
    found = _made(Machine(8, 6, scratchpad=1 << 15, bandwidth=8, accumulators=64, latency=latency), None)
    _is_right(found)
    assert [len(own) for own in _lanes(found)] == [0] * 4  # the input comes before the first layer
    assert [own.result is None for own in found.stretches] == [True, True, True, False]
    assert execute.run(found).written < 2 * 5 * 6 * 7 * 4  # the result alone


def test_what_does_not_stay_comes_by_windows() -> None:
    found = _made(Machine(8, 6, scratchpad=1 << 15, bandwidth=8, accumulators=64, latency=3), ())
    _is_right(found)
    assert sum(bool(own) and all(own) for own in _lanes(found)) >= 3, _lanes(found)


@pytest.mark.parametrize("scratchpad", quick([3700, 3500], 0))
def test_layers_run_strip_by_strip_where_lanes_have_no_room(scratchpad: int) -> None:
    found = _made(Machine(8, 6, scratchpad=scratchpad, bandwidth=8, accumulators=64, latency=3), None)
    _is_right(found)
    names = [own.name for own in found.stretches]
    assert names[2:6] == ["by pixel, strip 1", "last, strip 1", "by pixel, strip 2", "last, strip 2"]
    assert names[-2:] == ["by pixel", "last"]
    assert execute.run(found).written < 2 * 5 * 6 * 7 * 4 + 12 * 11 * 13 * 2  # the result, and what the first makes


@pytest.mark.slow
@pytest.mark.parametrize("scratchpad", [1 << 16, 6144])
def test_mobilenets_are_right_whatever_stays(scratchpad: int) -> None:
    machine = Machine(8, 8, scratchpad=scratchpad, bandwidth=8, accumulators=64, latency=3)
    program = gl.models.load("mobilenet-v1", resolution=32, width=0.25)
    _is_right(gl.npu_program(program, gl.NPU(machine), quantize="random"))


def test_a_tile_is_what_is_spread() -> None:
    machine = Machine(8, 6, bandwidth=8, tables=64)
    numbers = np.zeros((8, 6), np.int64)
    for column in range(6):  # a band: column c takes values 1, 2, 3 in rows c, c + 1, c + 2
        numbers[column : column + 3, column] = [41, 42, 43]
    spread = Spreadings(machine).of(numbers)
    assert spread is not None
    assert len(spread.steps) == 3
    values = np.zeros(spread.beats * machine.bandwidth, np.int64)
    values[spread.places[:, 1]] = numbers.reshape(-1)[spread.places[:, 0]]
    made = np.zeros_like(numbers)
    for beat, table in spread.steps:
        for column, byte, row in table.entries:
            made[row, column] = values[beat * machine.bandwidth + byte]
    assert np.array_equal(made, numbers)


def test_full_tiles_are_brought_row_by_row() -> None:
    machine = Machine(8, 8, bandwidth=8)
    assert Spreadings(machine).of(np.arange(1, 65).reshape(8, 8)) is None


def test_slots_wait_for_one_that_suits() -> None:
    slots = Slots(6)
    for run in range(6):
        assert slots.take(b"%d" % run, run, 0) == (run, True)
        slots.mark(run, run)
    assert slots.take(b"new", 6, 1, lambda slot: slot in range(2, 6)) is None  # 0 is free, and four others will be
    assert slots.take(b"new", 6, 6, lambda slot: slot == 3) == (3, True)
    assert slots.take(b"newer", 7, 6, lambda slot: False) == (0, True)


class _Scanned:
    """Slots that a search visits one by one, from the least recently used one."""

    def __init__(self, count: int) -> None:
        self.count, self.held, self.until = count, dict[int, int](), dict[int, int]()

    def take(self, key: int, run: int, now: int, suiting: set[int], enough: int) -> tuple[int, bool] | None:
        slot = self.held.pop(key, None)
        is_new = slot is None
        if slot is None and len(self.held) < self.count:
            slot = len(self.held)
        elif slot is None:
            idle = [own for own, there in self.held.items() if self.until[there] < now]
            free = [own for own in idle if self.held[own] in suiting]
            if not idle or (not free and run > now and len(suiting & {*self.held.values()}) >= enough):
                return None
            slot = self.held.pop((free or idle)[0])
        self.held[key], self.until[slot] = slot, run if is_new else max(self.until[slot], run)
        return slot, is_new


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_slots_take_what_a_search_of_all_slots_takes(count: int) -> None:
    pick, slots, scanned, now = random.Random(count), Slots(count), _Scanned(count), 0
    refused = 0
    for _ in range(2000):
        now += pick.choice((0, 0, 1, 2))
        key, run, kinds = (
            pick.randrange(2 * count + 2),
            now + pick.randrange(count + 1),
            {*pick.sample((None, 1, 2, 3), 2)},
        )
        suiting = {slot for slot in range(count) if slots.kinds.get(slot) in kinds}
        enough = pick.randint(1, 3)
        found = slots.take(b"%d" % key, run, now, kinds.__contains__, enough)
        assert found == scanned.take(key, run, now, suiting, enough)
        assert [int(own) for own in slots.held] == [*scanned.held]
        refused += found is None
        if found is not None and (found[1] or pick.random() < 0.1):
            slots.mark(found[0], pick.choice((None, 1, 2, 3)))
    assert refused > 20


def test_slots_are_found_without_a_visit_to_each() -> None:
    """A search asks for each kind once, however many slots there are: there are 8,192 on an array of 2 rows."""
    asked, slots = list[Hashable](), Slots(8192)

    def suits(kind: Hashable) -> bool:
        asked.append(kind)
        return kind == 0

    for run in range(20_000):
        found = slots.take(b"%d" % run, run, run, suits, 8000)
        assert found is not None
        slots.mark(found[0], run % 3)
    assert len(asked) < 8 * 20_000


def test_cells_go_on_from_row_to_row() -> None:
    assert gone_on(Address(13, (5, -3, 8)), 4) == (Address(3, (1, -1, 2)), Address(1, (1, 1, 0)))
