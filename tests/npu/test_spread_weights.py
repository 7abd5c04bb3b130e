"""Tests sparse weight loads against loops, and mostly zero tiles against the same tiles loaded densely."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from npu_programs import ONCE, Memory

from glenside.ir.errors import BadInput
from glenside.npu.analysis.critical_path import accounts
from glenside.npu.isa.base import Instruction, Lanes, Load, Spread, Stream, Sums, Tables, Weights
from glenside.npu.isa.fields import Address, Wait
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.infer_synchronization import waiting
from glenside.npu.program.program import NpuProgram

SHAPES = ((5, 3, 8), (4, 12, 4), (12, 12, 4), (8, 8, 16), (3, 2, 1))
"""Lanes, columns and bytes of a beat."""


class Tiles:
    """A program that brings weights, and reads tiles of them through the array, by rows of the identity."""

    def __init__(self, rows: int, columns: int, bandwidth: int) -> None:
        sizes = {"scratchpad": 1 << 12, "weights": 3 * rows * columns, "accumulators": 2 * rows, "tables": 32}
        self.machine = Machine(rows, columns, bandwidth=bandwidth, latency=3, **sizes)  # type: ignore[arg-type]
        self.memory = Memory(self.machine)
        self.zeros = self.memory.put(bytes(bandwidth))
        self.written: list[Instruction] = []
        self.places: list[tuple[int, int]] = []
        self.tables = 0
        every = np.arange(rows)
        at = self.memory.put(np.eye(rows, dtype=np.int8).tobytes(), rows)
        beats = self.machine.beats(rows)
        for part in range(beats):
            table = self.table(every % bandwidth, every // bandwidth == part, 0 * every)
            dram = Address(at + part * bandwidth, (beats * bandwidth, 0, 0))
            self.written.append(Lanes((rows, 1, 1), dram, Address(0, (1, 0, 0)), table))
        self.dense = self.table(0 * every, 0 * every + 1, 0 * every)

    def table(self, select: object, enable: object, offset: object) -> int:
        """Returns the number of a new table."""
        self.written.append(Tables(self.memory.table(select, enable, offset), self.tables, 1))
        self.tables += 1
        return self.tables - 1

    def clear(self, first: int, rows: int) -> None:
        """Zeros to rows of weights, a row a cycle, from one beat of zeros."""
        every = np.arange(self.machine.columns)
        table = self.table(0 * every, 0 * every + 1, 0 * every)
        self.written.append(Spread((rows, 1, 1), Address(self.zeros), Address(first, (1, 0, 0)), table))

    def whole(self, tile: np.ndarray, first: int) -> None:
        """A tile (rows)(C), row by row."""
        dram = self.memory.put(tile.astype(np.int8).tobytes(), self.machine.columns)
        self.written.append(Weights(dram, first, len(tile)))

    def read(self, first: int) -> None:
        """Note what the R rows from there on hold now."""
        rows = self.machine.rows
        size = self.machine.sum_beats * self.machine.bandwidth
        place = self.memory.put(bytes(size * rows))
        self.written += [
            Load(first, rows),
            Stream((rows, 1, 1), Address(0, (1, 0, 0)), self.dense, Address(0, (1, 0, 0)), False, True),
            Sums((rows, 1, 1), Address(place, (size, 0, 0)), Address(0, (1, 0, 0))),
        ]
        self.places.append((place, size))

    def program(self) -> NpuProgram:
        program = NpuProgram(self.machine, {}, self.memory.array)
        return replace(program, queues=waiting(program, self.written))

    def found(self) -> list[np.ndarray]:
        """What was read, (R)(C) each."""
        dram = execute.run(self.program()).dram
        rows, columns = self.machine.rows, self.machine.columns
        return [
            dram[at : at + size * rows].reshape(rows, size)[:, : 4 * columns].copy().view("<i4")
            for at, size in self.places
        ]


@pytest.mark.parametrize("increment", [False, True])
@pytest.mark.parametrize(("rows", "columns", "bandwidth"), SHAPES)
def test_a_byte_of_a_beat_goes_to_each_column_at_a_row_of_its_own(
    rows: int, columns: int, bandwidth: int, increment: bool
) -> None:
    """Against loops over iterations and columns, where later ones write over earlier ones."""
    rng = np.random.default_rng(rows)
    for _ in range(6):
        own = Tiles(rows, columns, bandwidth)
        expected = rng.integers(-128, 128, (3 * rows, columns))
        own.whole(expected, 0)
        counts, steps = (3, 2, 2), (1, 1, -1)
        beats = rng.integers(-128, 128, (4, bandwidth))
        dram = own.memory.put(beats.astype(np.int8).tobytes())
        base, where = 1 + rows, Address(dram + bandwidth, (0, bandwidth, -bandwidth))
        number = counts[0] if increment else 1
        ranges = (0, bandwidth), (0, 3), (-rows, rows - 1)
        drawn = (rng.integers(least, most, (number, columns)) for least, most in ranges)
        tables = [(select, enable > 0, offset) for select, enable, offset in zip(*drawn, strict=True)]
        first, *_ = (own.table(*table) for table in tables)
        own.written.append(Spread(counts, where, Address(base, steps), first, increment))
        for i2, i1, i0 in np.ndindex(*counts[::-1]):
            at = base + i0 * steps[0] + i1 * steps[1] + i2 * steps[2]
            select, enable, offset = tables[i0 if increment else 0]
            for column in np.flatnonzero(enable):
                expected[at + offset[column], column] = beats[1 + i1 - i2, select[column]]
        for first in (0, rows, 2 * rows):
            own.read(first)
        assert np.array_equal(np.concatenate(own.found()), expected)


@pytest.mark.parametrize(("rows", "columns", "bandwidth"), SHAPES)
def test_a_banded_tile_is_made_of_its_taps(rows: int, columns: int, bandwidth: int) -> None:
    """A Toeplitz matrix: column c has the taps from row c on, as far as there are rows."""
    rng = np.random.default_rng(columns)
    taps = min(9, rows)
    values = rng.integers(-128, 128, taps)
    columns_in, every = min(columns, rows - taps + 1), np.arange(columns)
    tile = np.zeros((rows, columns), np.int64)
    for column in range(columns_in):
        tile[column : column + taps, column] = values
    own = Tiles(rows, columns, bandwidth)
    own.whole(tile, 0)
    own.clear(rows, rows)
    dram = own.memory.put(values.astype(np.int8).tobytes(), 1)  # a beat each
    table = own.table(0 * every, every < columns_in, every)
    own.written.append(
        Spread((taps, 1, 1), Address(dram, (bandwidth, 0, 0)), Address(rows, (1, 0, 0)), table),
    )
    own.read(0)
    own.read(rows)
    whole, spread = own.found()
    assert np.array_equal(whole, tile)
    assert np.array_equal(spread, tile)


@pytest.mark.parametrize(("positions", "channels", "bandwidth"), [(1, 4, 4), (2, 3, 4), (5, 2, 2)])
def test_a_block_diagonal_tile_is_made_of_the_taps_of_its_channels(
    positions: int, channels: int, bandwidth: int
) -> None:
    """Blocks of a channel each, of as many columns as positions, of 9 taps; a beat has one of every channel."""
    taps = 9
    block, rng = positions + taps - 1, np.random.default_rng(positions)
    rows, columns = channels * block, channels * positions
    values = rng.integers(-128, 128, (taps, channels))
    tile = np.zeros((rows, columns), np.int64)
    for channel, position in np.ndindex(channels, positions):
        begin = channel * block + position
        tile[begin : begin + taps, channel * positions + position] = values[:, channel]
    own = Tiles(rows, columns, bandwidth)
    own.whole(tile, 2 * rows)
    own.clear(0, rows)
    dram = own.memory.put(values.astype(np.int8).tobytes(), channels)
    channel, position = np.divmod(np.arange(columns), positions)
    table = own.table(channel, 0 * channel + 1, channel * block + position)
    own.written.append(Spread((taps, 1, 1), Address(dram, (bandwidth, 0, 0)), Address(0, (1, 0, 0)), table))
    own.read(2 * rows)
    own.read(0)
    whole, spread = own.found()
    assert np.array_equal(whole, tile)
    assert np.array_equal(spread, tile)


def test_a_row_is_there_once_all_its_columns_are() -> None:
    """Whatever brought them; and what of it nothing wrote is named."""
    own = Tiles(5, 3, 8)
    every = np.arange(3)
    most = own.table(0 * every, [1, 1, 0], 0 * every)
    rest = own.table(0 * every, [0, 0, 1], 0 * every)
    rows = (5, 1, 1), Address(own.zeros), Address(4, (1, 0, 0))
    own.written.append(Spread(*rows, most))
    own.whole(np.ones((4, 3)), 5)
    own.read(4)
    with pytest.raises(BadInput, match=r"load instruction 0: .* weights 4, whose column 2 no instruction has written"):
        own.found()
    own.written[-3:-3] = [Spread(ONCE, Address(own.zeros), Address(4), rest)]
    assert own.found()[0].tolist() == [[0] * 3, *[[1] * 3] * 4]
    own.read(8)
    with pytest.raises(BadInput, match="reads row of weights 9 before any instruction has written it"):
        own.found()


def test_a_load_waits_for_what_is_spread_and_a_spread_for_what_is_loaded() -> None:
    """Also where another of dma wrote the row whole before, and where one column of it is written."""
    own = Tiles(5, 3, 8)
    own.clear(0, 5)
    one = own.table(np.zeros(3), [0, 1, 0], np.zeros(3))
    own.written.append(Spread(ONCE, Address(own.zeros), Address(2), one))
    number = len(own.written) - 1
    own.read(0)
    own.written[-1] = Spread(ONCE, Address(own.zeros), Address(4), one)  # the sums stay
    program = own.program()
    execute.run(program)
    assert program.queue("load")[0].wait.dma == number + 1
    assert program.queue("dma")[-1].wait.load == 1

    def without(unit: str, wait: Wait) -> None:
        queue = program.queue(unit)
        last = replace(queue[-1], wait=wait)  # type: ignore[type-var]
        execute.run(replace(program, queues={**program.queues, unit: (*queue[:-1], last)}))

    with pytest.raises(BadInput, match=f"reads row of weights 2 without waiting for dma instruction {number}, "):
        without("load", Wait(dma=number))
    with pytest.raises(BadInput, match=f"row of weights 4 without waiting for dma instruction {number + 1}, "):
        without("dma", Wait(dma=number))


def test_all_the_tables_that_it_walks_over_are_there() -> None:
    """It waits for the last of them, and looks at as many as its innermost loop counts."""
    own = Tiles(5, 3, 8)
    own.clear(0, 5)
    every = np.arange(3)
    first, last = (own.table(0 * every, every == number, 0 * every) for number in (0, 1))
    own.written.append(Spread((2, 3, 1), Address(own.zeros), Address(0, (0, 1, 0)), first, True))
    program = own.program()
    *before, spread = program.queue("dma")
    assert spread.wait.dma == len(before)
    assert accounts(program).total.accesses["weight_byte"] == 3 * 5 + 2 * 3

    def other(**changed: object) -> None:
        execute.run(replace(program, queues={"dma": (*before, replace(spread, **changed))}))  # type: ignore[type-var]

    other()
    other(wait=Wait(dma=len(before) - 1), increment=False)
    with pytest.raises(BadInput, match=f"reads table {last} without waiting for dma instruction {len(before) - 1}, "):
        other(wait=Wait(dma=len(before) - 1))
    with pytest.raises(BadInput, match=f"reads table {last + 1} before any instruction has written it"):
        other(table=last)
    with pytest.raises(BadInput, match=f"reads table {last + 1} before any instruction has written it"):
        other(counts=(3, 1, 1))
    with pytest.raises(BadInput, match="table 32 is outside of the 32 there are"):
        other(table=31)


def _refused(match: str, given: Spread, *, select: int = 0, offset: int = 0) -> None:
    """With a table of its own, unless it has one."""
    own = Tiles(5, 3, 8)
    if given.increment:
        given = replace(given, table=own.table([0, 7, 0], [1, 1, 0], [0, 0, 0]))
    table = own.table([0, select, 0], [1, 1, 0], [0, offset, 99])
    own.written.append(replace(given, table=given.table or table))
    with pytest.raises(BadInput, match=rf"dma instruction \d+:? {match} \(spread\)"):
        own.found()


def test_what_is_no_place_or_no_byte_is_refused() -> None:
    good = Spread((2, 1, 1), Address(0), Address(3, (1, 0, 0)), 0)
    _refused("entry 1 of its table selects byte 8; there are 8", good, select=8)
    walk = replace(good, increment=True)
    _refused("entry 1 of table 1 behind its first selects byte 8; there are 8", walk, select=8)
    _refused("row of weights 16 is outside of the 15 there are", walk, offset=12)
    _refused("row of weights 15 is outside of the 15 there are", replace(good, weights=Address(14, (1, 0, 0))))
    _refused("row of weights -1 is outside of the 15 there are", good, offset=-4)
    _refused("reads table 9 before any instruction has written it", replace(good, table=9))
    _refused("table 32 is outside of the 32 there are", replace(good, table=32))
    _refused("DRAM is accessed in beats of 8 bytes, got address 4", replace(good, dram=Address(4)))
    _refused("beat .* is outside of the .* there are", replace(good, dram=Address(1 << 20)))


def test_it_takes_a_cycle_for_each_beat_and_is_completed_as_others_of_dma_are() -> None:
    own = Tiles(5, 3, 8)
    own.clear(0, 5)
    own.written.append(
        Spread((3, 2, 4), Address(own.zeros), Address(0), own.tables - 1, wait=Wait(dma=len(own.written)))
    )
    times = execute.run(own.program()).times
    assert times.end["dma"][-1] - times.start["dma"][-1] == 24
    assert times.completed["dma"][-1] - times.end["dma"][-1] == own.machine.latency + 6
