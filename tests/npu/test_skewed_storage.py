"""Tests lanes as rows of R bytes against one plain array of bytes, in which entry l of a table is at q + l + R
offset[l].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from npu_programs import ONCE, Memory

from glenside.ir.errors import BadInput
from glenside.npu.isa.base import (
    Fill,
    Instruction,
    Lanes,
    Load,
    Out,
    Parameters,
    Store,
    Stream,
    Sums,
    Tables,
    Weights,
)
from glenside.npu.isa.fields import Address, Counts
from glenside.npu.machine.model import Machine
from glenside.npu.model.execute import Run, run
from glenside.npu.model.infer_synchronization import waiting
from glenside.npu.program import requantization
from glenside.npu.program.program import NpuProgram

DEPTH = 64
Steps = tuple[int, int, int]


class Rows:
    """A program on lanes that are rows of R bytes, and what the bytes and the results should be."""

    def __init__(self, rows: int, columns: int) -> None:
        self.machine = Machine(
            rows,
            columns,
            scratchpad=4 * rows * columns + rows * DEPTH,
            weights=4 * rows * columns,
            accumulators=64,
            bandwidth=8,
            latency=5,
        )
        assert self.machine.depth == DEPTH
        self.memory = Memory(self.machine)
        self.written: list[Instruction] = []
        self.plain = np.zeros(DEPTH * rows, np.int8)
        self.expected: list[tuple[int, np.ndarray]] = []
        ones = np.ones(rows, int)
        self.tables = 0
        self.written.append(Fill((DEPTH, 1, 1), Address(0, (1, 0, 0)), self.table(0 * ones, ones, 0 * ones)))

    def table(self, select: object, enable: object, offset: object) -> int:
        self.written.append(Tables(self.memory.table(select, enable, offset), self.tables, 1))
        self.tables += 1
        return self.tables - 1

    def at(self, q: int, steps: Steps) -> tuple[Address, Address]:
        """Returns the address and the turn of byte q, and of steps from byte to byte."""
        rows, lanes = zip(*(divmod(n, self.machine.rows) for n in (q, *steps)), strict=True)
        return Address(rows[0], rows[1:]), Address(lanes[0], lanes[1:])

    def put(self, values: np.ndarray, q: int) -> None:
        """Bytes, (n), to place q and those behind it: as many a beat as lanes or a beat have."""
        size = min(self.machine.rows, self.machine.bandwidth)
        padded = np.concatenate([values, np.zeros(-len(values) % size, np.int8)])
        dram = Address(self.memory.put(padded.tobytes(), size), (self.machine.bandwidth, 0, 0))
        every = np.arange(size)
        lanes, turn = self.at(q, (size, 0, 0))
        counts = (len(padded) // size, 1, 1)
        self.written.append(Lanes(counts, dram, lanes, self.table(every, every >= 0, 0 * every), turn, True))
        self.plain[q : q + len(padded)] = padded

    def weights(self, values: np.ndarray) -> None:
        """Weights (R)(C) for the next stream."""
        dram = self.memory.put(values.astype(np.int8).tobytes(), self.machine.columns)
        self.written += [Weights(dram, 0, len(values)), Load(0, len(values))]

    def sums(self, counts: Counts) -> Iterator[np.ndarray]:
        """The row of sums of each iteration goes to DRAM; what it should be is to be filled in."""
        size = self.machine.sum_beats * self.machine.bandwidth
        number = int(np.prod(counts))
        place = self.memory.put(bytes(size * number))
        self.written.append(Sums((number, 1, 1), Address(place, (size, 0, 0)), Address(0, (1, 0, 0))))
        for row in range(number):
            want = np.zeros(self.machine.columns, "<i4")
            self.expected.append((place + row * size, want))
            yield want

    def done(self) -> Run:
        """Run it, and hold the results and all bytes of lanes to what they should be."""
        size, rows = self.machine.bandwidth, self.machine.rows
        places = []
        for begin in range(0, rows, size):
            lanes = np.arange(begin, min(begin + size, rows))
            place = self.memory.put(bytes(DEPTH * size))
            places.append((place, lanes))
            table = self.table(lanes, lanes >= 0, 0 * lanes)
            self.written.append(Out((DEPTH, 1, 1), Address(place, (size, 0, 0)), Address(0, (1, 0, 0)), table))
        program = NpuProgram(self.machine, {}, self.memory.array)
        found = run(replace(program, queues=waiting(program, self.written)))
        for place, want in self.expected:
            assert np.array_equal(found.dram[place : place + want.nbytes], want.view(np.uint8))
        for place, lanes in places:
            got = found.dram[place : place + DEPTH * size].view(np.int8).reshape(DEPTH, size)
            assert np.array_equal(got[:, : len(lanes)], self.plain.reshape(DEPTH, rows)[:, lanes])
        return found


@dataclass(frozen=True)
class Drawn:
    """Loops over places of a plain array, and a table: everything is within the array."""

    counts: Counts
    base: int
    steps: Steps
    select: np.ndarray
    enable: np.ndarray
    offset: np.ndarray

    @staticmethod
    def of(rng: np.random.Generator, rows: int, size: int, most: int, one_offset: bool = False) -> Drawn:
        counts = tuple(int(n) for n in rng.integers(1, 4, 3))
        steps = tuple(int(n) for n in rng.integers(-2 * rows, 2 * rows + 1, 3))
        select, enable = rng.integers(0, most, size), rng.integers(0, 4, size) > 0
        offset = rng.integers(-2, 3, rows)[select] if one_offset else rng.integers(-2, 3, size)
        reach = [(n - 1) * step for n, step in zip(counts, steps, strict=True)]
        low, high = sum(min(n, 0) for n in reach), sum(max(n, 0) for n in reach)
        base = int(rng.integers(2 * rows - low, DEPTH * rows - 4 * rows - high))
        return Drawn(counts, base, steps, select, enable, offset)  # type: ignore[arg-type]

    def places(self) -> Iterator[int]:
        for i2, i1, i0 in np.ndindex(*self.counts[::-1]):
            yield self.base + i0 * self.steps[0] + i1 * self.steps[1] + i2 * self.steps[2]


@pytest.mark.parametrize("rows", [1, 4, 5, 12])
def test_whatever_carries_reads_and_writes_one_plain_array(rows: int) -> None:
    rng = np.random.default_rng(rows)
    own = Rows(rows, rows)
    memory, beat, plain = own.memory, own.machine.bandwidth, own.plain
    own.put(rng.integers(-128, 128, 60 * rows).astype(np.int8), 2 * rows)
    one = requantization.encoded(np.zeros(rows, int), np.float32(1), 0, -128, 127).tobytes()
    own.written.append(Parameters(memory.put(one, 16 * rows), 0, 1))
    for _ in range(4):
        d = Drawn.of(rng, rows, rows, beat)
        given = rng.integers(-128, 128, (27, beat)).astype(np.int8)
        table, (lanes, turn) = own.table(d.select, d.enable, d.offset), own.at(d.base, d.steps)
        dram = Address(memory.put(given.tobytes()), (beat, beat * d.counts[0], beat * d.counts[0] * d.counts[1]))
        own.written.append(Lanes(d.counts, dram, lanes, table, turn, True))
        for q, content in zip(d.places(), given, strict=False):
            for entry in np.flatnonzero(d.enable):
                plain[q + entry + rows * d.offset[entry]] = content[d.select[entry]]

        d = Drawn.of(rng, rows, rows, 256)
        table, (lanes, turn) = own.table(d.select, d.enable, d.offset), own.at(d.base, d.steps)
        own.written.append(Fill(d.counts, lanes, table, turn, True))
        for q in d.places():
            for entry in np.flatnonzero(d.enable):
                plain[q + entry + rows * d.offset[entry]] = d.select.astype(np.uint8).view(np.int8)[entry]

        d = Drawn.of(rng, rows, beat, rows, one_offset=True)
        table, (lanes, turn) = own.table(d.select, d.enable, d.offset), own.at(d.base, d.steps)
        place = memory.put(bytes(27 * beat))
        dram = Address(place, (beat, beat * d.counts[0], beat * d.counts[0] * d.counts[1]))
        own.written.append(Out(d.counts, dram, lanes, table, turn, True))
        for number, q in enumerate(d.places()):
            want = plain[np.where(d.enable, q + d.select + rows * d.offset, 0)]
            own.expected.append((place + number * beat, np.where(d.enable, want, 0).astype(np.int8)))

        own.weights(np.eye(rows))
        d = Drawn.of(rng, rows, rows, rows)
        table, (lanes, turn) = own.table(d.select, d.enable, d.offset), own.at(d.base, d.steps)
        sums = Address(0, (1, d.counts[0], d.counts[0] * d.counts[1]))
        own.written.append(Stream(d.counts, lanes, table, sums, False, True, turn))
        streamed = []
        for q, want in zip(d.places(), own.sums(d.counts), strict=True):
            want[d.enable] = plain[(q + np.arange(rows) + rows * d.offset)[d.enable]]
            streamed.append(want)

        to = Drawn.of(rng, rows, rows, rows)
        to = replace(to, counts=d.counts, steps=(3, rows + 2, -1), base=20 * rows + 1)
        table, (lanes, turn) = own.table(to.select, to.enable, to.offset), own.at(to.base, to.steps)
        own.written.append(Store(to.counts, sums, lanes, table, Address(0), turn=turn, carry=True))
        for q, row in zip(to.places(), streamed, strict=True):
            for entry in np.flatnonzero(to.enable):
                plain[q + entry + rows * to.offset[entry]] = row[to.select[entry]]
    own.done()


@pytest.mark.parametrize(
    ("rows", "window", "pitch", "stride"),
    [(5, (2, 2), 7, 1), (12, (3, 3), 15, 1), (12, (3, 3), 15, 2), (8, (2, 3), 11, 1), (16, (4, 4), 20, 1)],
)
def test_all_windows_of_images_are_one_stream_a_row_a_cycle(
    rows: int, window: tuple[int, int], pitch: int, stride: int
) -> None:
    """Of images of rows p bytes apart, whose windows' bytes are of distinct lanes: through three loops."""
    rng = np.random.default_rng(pitch + stride)
    own = Rows(rows, 4)
    images, height = 2, 4 if rows < 8 else 6
    width = pitch - 1
    plane = height * pitch + 3
    held = np.zeros((images, plane), np.int8)
    x = held[:, : height * pitch].reshape(images, height, pitch)[:, :, :width]
    x[:] = rng.integers(-128, 128, x.shape)
    own.put(held.reshape(-1), 1)

    dy, dx = np.indices(window).reshape(2, -1)
    offset, row = np.divmod(dy * pitch + dx, rows)
    assert len(set(row.tolist())) == len(row)
    offsets, enable, values = np.zeros(rows, int), np.zeros(rows, int), np.zeros((rows, 4), np.int8)
    weights = rng.integers(-128, 128, (len(row), 4)).astype(np.int8)
    offsets[row], enable[row], values[row] = offset, 1, weights
    own.weights(values)

    ys, xs = ((n - k) // stride + 1 for n, k in zip((height, width), window, strict=True))
    per_stream = 64 // (images * xs)  # rows of windows whose sums there are places for
    for first in range(0, ys, per_stream):
        counts = (xs, min(per_stream, ys - first), images)
        lanes, turn = own.at(1 + first * stride * pitch, (stride, stride * pitch, plane))
        sums = Address(0, (1, xs, xs * counts[1]))
        own.written.append(Stream(counts, lanes, own.table(0, enable, offsets), sums, False, first == 0, turn))
        wanted = own.sums(counts)
        for image, y, i in np.ndindex(*counts[::-1]):
            begin, left = (first + y) * stride, i * stride
            seen = x[image, begin : begin + window[0], left : left + window[1]]
            next(wanted)[:] = seen.reshape(-1).astype(np.int64) @ weights
        assert next(wanted, None) is None
    assert own.done().times.busy["stream"] == ys * xs * images


@pytest.mark.parametrize(("rows", "pitch"), [(4, 5), (5, 7), (12, 13)])
def test_columns_of_a_matrix_are_read_and_written_at_once(rows: int, pitch: int) -> None:
    """A matrix of R rows whose pitch has no factor of R: its columns enter the array, and their transpose is stored."""
    rng = np.random.default_rng(pitch)
    own = Rows(rows, rows)
    held = rng.integers(-128, 128, (rows, pitch)).astype(np.int8)
    own.put(held.reshape(-1), 2)
    offset, row = np.divmod(np.arange(rows) * pitch, rows)
    assert sorted(row) == list(range(rows))
    offsets, order = np.zeros(rows, int), np.zeros((rows, rows), np.int8)
    offsets[row], order[row, np.arange(rows)] = offset, 1
    one = requantization.encoded(np.zeros(rows, int), np.float32(1), 0, -128, 127).tobytes()
    own.written.append(Parameters(own.memory.put(one, 16 * rows), 0, 1))
    own.weights(order)
    ones, every = np.ones(rows, int), np.arange(rows)
    counts = (pitch, 1, 1)
    lanes, turn = own.at(2, (1, 0, 0))
    own.written.append(Stream(counts, lanes, own.table(0, ones, offsets), Address(0, (1, 0, 0)), False, True, turn))
    for column, want in zip(held.T, own.sums(counts), strict=True):
        want[:] = column
    to = 30 * rows + 3
    lanes, turn = own.at(to, (rows, 0, 0))
    own.written.append(
        Store(counts, Address(0, (1, 0, 0)), lanes, own.table(every, ones, 0 * every), Address(0), False, turn=turn,
              carry=True)
    )  # fmt: skip
    own.plain[to : to + held.size] = held.T.reshape(-1)
    own.done()


def test_a_turn_stays_in_its_row_without_a_carry() -> None:
    """The same fill, with and without: turns of 3, 5 and 7 of 4 lanes."""
    for carry in (False, True):
        own = Rows(4, 4)
        table = own.table([1, 2, 3, 4], 1, [0, 0, 0, 1])
        own.written.append(Fill((3, 1, 1), Address(8, (4, 0, 0)), table, Address(3, (2, 0, 0)), carry))
        for i in range(3):
            for entry, offset in enumerate((0, 0, 0, 1)):
                place = 4 * (8 + 4 * i + offset) + (entry + 3 + 2 * i) % 4
                place += 4 * ((entry + 3 + 2 * i) // 4) if carry else 0
                own.plain[place] = entry + 1
        own.done()


def test_an_address_below_the_first_is_fine_where_offsets_lead_back() -> None:
    own = Rows(5, 5)
    own.written.append(Fill((4, 1, 1), Address(1, (-1, 0, 0)), own.table(7, [0, 1, 1, 0, 0], 2), Address(4), True))
    for i in range(4):
        own.plain[5 * (1 - i + 2) + 4 + np.array([1, 2])] = 7
    own.done()


def _refused(own: Rows, instruction: Instruction, match: str) -> None:
    own.written.append(instruction)
    with pytest.raises(BadInput, match=match):
        own.done()


@pytest.mark.parametrize(("base", "step", "turn"), [(63, 0, (3, 0)), (0, 21, (1, 2))])
def test_what_is_past_the_last_row_is_refused(base: int, step: int, turn: tuple[int, int]) -> None:
    """Without a carry it is in that row."""
    for carry in (True, False):
        own = Rows(4, 4)
        lanes, turns = Address(base, (step, 0, 0)), Address(turn[0], (turn[1], 0, 0))
        fill = Fill((4, 1, 1), lanes, own.table(7, [0, 1, 0, 0], 0), turns, carry)
        if carry:
            _refused(own, fill, r"dma instruction 3: lane address 6[45] is outside of the 64 .*\(fill\)")
            continue
        own.written.append(fill)
        for i in range(4):
            own.plain[4 * (base + i * step) + (1 + turn[0] + i * turn[1]) % 4] = 7
        own.done()


def test_turns_of_streams_and_fills_are_less_than_the_lanes() -> None:
    for turn in (Address(5), Address(0, (0, 6, 0))):
        worst = max(turn.base, *turn.strides)
        own = Rows(5, 5)
        _refused(own, Fill(ONCE, Address(0), 0, turn), f"turn {worst} is outside of the 5")
        own = Rows(5, 5)
        own.weights(np.eye(5))
        _refused(own, Stream(ONCE, Address(0), 0, Address(0), False, True, turn), f"turn {worst} is outside of the 5")


def test_bytes_of_one_lane_have_one_address_with_a_carry_too() -> None:
    for offset, good in ((1, True), (0, False)):
        own = Rows(5, 5)
        place = own.memory.put(bytes(8))
        own.put(np.arange(1, 60, dtype=np.int8), 0)
        out = Out(ONCE, Address(place), Address(2), own.table([4, 0, 4], 1, [1, 0, offset]), Address(2), True)
        if good:
            own.expected.append((place, own.plain[12 + np.array([4, 0, 4]) + 5 * np.array([1, 0, 1])]))
            own.written.append(out)
            own.done()
        else:
            _refused(own, out, "two bytes of its beats are of lane 4 at two offsets")
