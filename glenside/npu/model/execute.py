"""Simulates programs in numpy: exact results and cycles, with checks of order, bounds and ports of each access.

An instruction is a few array operations, not a loop over cycles. `cycle_model` computes its cycles, `happens_before`
the instructions that are completed by then. Programs whose results depend on latencies are refused, with unit and
instruction number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.npu.isa.address_generators import Integers, Table, generated, reach
from glenside.npu.isa.base import (
    Fill,
    Instruction,
    Lanes,
    Load,
    Out,
    Parameters,
    Spread,
    Store,
    Stream,
    Sums,
    Tables,
    ThroughLanes,
    Weights,
)
from glenside.npu.isa.effects import ACCUMULATORS, LANES
from glenside.npu.isa.fields import UNITS, Address
from glenside.npu.model.bank_conflicts import Ports, present
from glenside.npu.model.bounds import require_fit, require_int32, require_one_address, require_within
from glenside.npu.model.column_execute import ColumnRegisters
from glenside.npu.model.cycle_model import Times, times
from glenside.npu.model.happens_before import Known, Now, Places, known
from glenside.npu.program import requantization
from glenside.npu.program.program import NpuProgram
from glenside.npu.program.table_memory import LaneTables


@dataclass(frozen=True)
class Run:
    """The result of a simulation: DRAM, the times of instructions, and the bytes read and written at the DRAM port."""

    dram: Array
    times: Times
    read: int
    written: int

    @property
    def cycles(self) -> int:
        return self.times.cycles


def run(program: NpuProgram) -> Run:
    """Simulates a program on a copy of its DRAM image. Raises BadInput for an illegal program."""
    require_fit(program)
    found = times(program)
    return Timed(program, found, known(program, found)).finished()


class State:
    """The state of the simulated machine: memories, access records of their locations, and instruction semantics.

    computes  True to compute the values in scratchpad banks, weights and accumulators; False to check accesses only
    """

    computes = True

    def __init__(self, program: NpuProgram) -> None:
        self.program = program
        machine = self.machine = program.machine
        self.dram = np.array(program.dram, np.uint8)
        self.lanes = np.zeros(machine.depth * machine.rows, np.int8)
        """The scratchpad: byte q is in bank q mod R, at address q div R."""
        self.weights = np.zeros((machine.weight_rows, machine.columns), np.int8)
        self.brought = np.zeros(self.weights.shape, np.bool_)
        """True for the bytes of weight memory that were written."""
        self.sums = np.zeros((machine.accumulators, machine.columns), np.int64)
        self.tables = LaneTables(machine)
        self.parameters: list[npt.NDArray[np.void]] = [np.zeros(0, requantization.PARAMETER)] * machine.parameters
        self.tiles: list[npt.NDArray[np.float32]] = []
        self.active = self.last_stream = -1
        beats = len(self.dram) // machine.bandwidth
        self.of_lanes = Places("lane", (machine.depth, machine.rows))
        self.of_weights = Places("row of weights", (machine.weight_rows,))
        self.of_sums = Places("accumulator", (machine.accumulators,))
        self.of_tables = Places("table", (machine.tables,))
        self.of_parameters = Places("row of parameters", (machine.parameters,))
        self.of_dram = Places("beat", (beats,), written=True)
        banks = {LANES: "a lane's bank", ACCUMULATORS: "the accumulators"}
        self.ports = {
            (memory, writes): Ports(f"the {'write' if writes else 'read'} port of {bank}")
            for memory, bank in banks.items()
            for writes in (False, True)
        }
        self.columns = ColumnRegisters(self)
        self.read = self.written = 0
        self.does: Mapping[type[Instruction], Callable[[Now, Any], None]] = {
            Load: self._load,
            Stream: self._stream,
            Store: self._store,
            Weights: self._weights,
            Lanes: self._fill,
            Fill: self._fill,
            Tables: self._tables,
            Parameters: self._parameters,
            Out: self._out,
            Sums: self._sums,
            Spread: self._spread,
            **self.columns.does,
        }

    def do(self, now: Now, instruction: Instruction) -> None:
        """Executes one instruction. Raises BadInput for an illegal one, with its unit, number and layer."""
        try:
            self.does[type(instruction)](now, instruction)
        except BadInput as error:
            raise self.program.located(now.unit, now.number, instruction, error) from None

    # Checked accesses. A flat index of a memory is row * columns + column.

    def _table(self, now: Now, first: int, used: int, number: int = 1) -> Table:
        if number == 1 and 0 <= first < self.machine.tables:
            self.of_tables.read_one(first, now)
        else:
            require_within("table", every := first + np.arange(number), self.machine.tables)
            self.of_tables.read(every, now, own=False)
        return self.tables.of(first, number, used)

    def _lane_places(self, own: ThroughLanes, table: Table, lanes: Integers) -> Integers:
        """Returns the flat scratchpad indices that a table's `lanes` map to in each iteration, (n)(enabled).

        Raises BadInput for a rotation ("turn") or an address out of range.
        """
        rows, depth, turns = self.machine.rows, self.machine.depth, (own.turn.base, *own.turn.strides)
        if not all(0 <= number < rows for number in turns):
            require_within("turn", np.array(turns), rows)
        first, *steps = (
            row * rows + (turn if own.carry else 0)  # with carry, address and rotation are one number
            for row, turn in zip((own.lanes.base, *own.lanes.strides), turns, strict=True)
        )
        begin = Address(first, tuple(steps))  # type: ignore[arg-type]
        if not own.carry and any(turns):
            lanes = (lanes + generated(own.turn, own.counts)[:, None]) % rows
        (least, most), (below, above) = reach(begin, own.counts), table.offsets
        low, high = least + below * rows, most + above * rows + rows - 1
        places = generated(begin, own.counts)[:, None] + (table.offset * rows + lanes)
        if low < 0 or high >= depth * rows:
            require_within("lane address", places // rows, depth)
        return places

    def use_lanes(self, now: Now, own: Instruction, places: Integers, *, writes: bool = False) -> None:
        """Records a port use of the banks that hold these bytes, (n)(enabled), in the cycles of the effect."""
        delay = own.effect(LANES, writes=writes).delay.of(self.machine)
        rows, half = self.machine.rows, self.machine.half_depth * self.machine.rows

        def halves() -> npt.NDArray[np.int8]:
            found = np.full((len(places), rows), -1, np.int8)
            found[np.arange(len(places))[:, None], places % rows] = places >= half
            return found

        used = present(int(places.min()), int(places.max()), half) if places.size else frozenset[int]()
        ports = self.ports[LANES, writes]
        ports.use(now.unit, now.number, now.start, now.start + delay, len(places), used, halves)

    def sum_rows(self, address: Address, counts: tuple[int, int, int]) -> Integers:
        rows = generated(address, counts)
        least, most = reach(address, counts)
        if least < 0 or most >= self.machine.accumulators:
            require_within("accumulator", rows, self.machine.accumulators)
        return rows

    def use_sums(self, now: Now, own: Instruction, rows: Integers, *, writes: bool = False) -> None:
        """Records a port use of accumulator rows, (n), in the cycles of the effect."""
        machine, effect = self.machine, own.effect(ACCUMULATORS, writes=writes)
        half, every = machine.half_accumulators, getattr(machine, effect.every) if effect.every else 1

        def halves() -> npt.NDArray[np.int8]:
            return np.repeat((rows >= half).astype(np.int8), every)[:, None]

        used, skew = present(int(rows.min()), int(rows.max()), half), machine.columns if effect.skewed else 0
        begin, ports = now.start + effect.delay.of(machine), self.ports[ACCUMULATORS, writes]
        ports.use(now.unit, now.number, now.start, begin, len(rows) * every, used, halves, skew=skew)

    def read_sums(self, now: Now, own: Instruction, rows: Integers) -> None:
        """Records reads of accumulator rows."""
        self.use_sums(now, own, rows)
        self.of_sums.read(rows, now)

    def _write_lanes(self, now: Now, own: ThroughLanes, table: Table, values: npt.NDArray[np.int8]) -> None:
        places = self._lane_places(own, table, table.lanes)
        self.of_lanes.write(places, now)
        self.use_lanes(now, own, places, writes=True)
        if self.computes:
            self.lanes[places] = values

    def _beats(self, base: Integers, beats: int = 1) -> Integers:
        """Returns the indices of `beats` beats from each base address on, (n * beats)."""
        size = self.machine.bandwidth
        if (base % size).any():
            raise BadInput(f"DRAM is accessed in beats of {size} bytes, got address {base[(base % size).argmax()]:,}")
        found = (base[:, None] // size + np.arange(beats)).reshape(-1)
        require_within("beat", found, len(self.dram) // size)
        return found

    def fetched(self, now: Now, base: Integers, beats: int = 1) -> npt.NDArray[np.uint8]:
        """Reads `beats` beats from each base address on, (n * beats)(B)."""
        if base.size == 1 and beats == 1:
            size = self.machine.bandwidth
            number, rest = divmod(base.item(0), size)
            if not rest and 0 <= number < len(self.dram) // size:
                self.of_dram.read_one(number, now)
                self.read += size
                return self.dram[number * size : number * size + size].reshape(1, size)
        at = self._beats(base, beats)
        self.of_dram.read(at, now, own=False)
        self.read += at.size * self.machine.bandwidth
        found: npt.NDArray[np.uint8] = self._beats_of_dram()[at]
        return found

    def _beats_of_dram(self) -> npt.NDArray[np.uint8]:
        return self.dram.reshape(-1, self.machine.bandwidth)

    # Semantics of each instruction.

    def _load(self, now: Now, own: Load) -> None:
        if own.rows > self.machine.rows:
            raise BadInput(f"it loads {own.rows} rows into an array of {self.machine.rows}")
        if not self.machine.pipelined and self.last_stream >= now.known[UNITS.index("stream")]:
            now.require("stream", self.last_stream + 1, "replaces", "the array's weights", "uses")
        rows = own.weights + np.arange(own.rows)
        require_within("row of weights", rows, self.machine.weight_rows)
        self.of_weights.read(rows, now)
        if not self.brought[rows].all():
            row, column = np.argwhere(~self.brought[rows])[0]
            raise BadInput(f"it reads row of weights {rows[row]}, whose column {column} no instruction has written")
        tile = np.zeros((self.machine.rows if self.computes else 0, self.machine.columns), np.float32)
        if self.computes:
            tile[: own.rows] = self.weights[rows]
        self.tiles.append(tile)

    def _stream(self, now: Now, own: Stream) -> None:
        machine = self.machine
        self.active += own.fresh
        self.last_stream = now.number
        if self.active < 0:
            raise BadInput("it has no weights: no stream up to it is fresh")
        if own.greatest and not own.accumulate:
            raise BadInput("greatest needs accumulate")
        if not machine.pipelined and len(self.tiles) > self.active + 1:
            raise BadInput(
                f"it uses weights that load instruction {len(self.tiles) - 1} has already replaced: that load"
                f" needs wait.stream of {now.number + 1}"
            )
        table = self._table(now, own.table, machine.rows)
        places = self._lane_places(own, table, table.lanes)
        self.of_lanes.read(places, now)
        self.use_lanes(now, own, places)
        rows = self.sum_rows(own.accumulators, own.counts)
        if own.accumulate:
            self.read_sums(now, own, rows)
        self.use_sums(now, own, rows, writes=True)
        self.of_sums.write(rows, now)
        if self.computes:
            self._multiply(rows, self.lanes[places], table.lanes, own)

    def _multiply(self, rows: Integers, streamed: npt.NDArray[np.int8], lanes: Integers, own: Stream) -> None:
        """Updates accumulator rows by a matrix product in float32: fast, and exact for up to 1,024 products of int8."""
        sums = (streamed.astype(np.float32) @ self.tiles[self.active][lanes]).astype(np.int64)
        by = np.maximum if own.greatest else np.add
        if own.accumulate and (np.diff(rows) > 0).all():
            self.sums[rows] = by(self.sums[rows], sums)
        elif own.accumulate:
            by.at(self.sums, rows, sums)  # a row may repeat
        else:
            self.sums[rows] = sums
        require_int32(self.sums[rows])

    def _store(self, now: Now, own: Store) -> None:
        table = self._table(now, own.table, self.machine.rows)
        table.require_selects(self.machine.columns, "column")
        parameters = self._parameters_of(now, own, table)
        rows = self.sum_rows(own.accumulators, own.counts)
        self.read_sums(now, own, rows)
        values = np.zeros((len(rows), len(table.lanes)), np.int8)
        if self.computes:
            sums = self.sums[rows[:, None], table.select] + parameters["bias"]
            require_int32(sums)
            values = requantization.requantised(sums, parameters)
        if own.applies:
            values = self.columns.applied(now, own, values).astype(np.int8)
        self._write_lanes(now, own, table, values)

    def _parameters_of(self, now: Now, own: Store, table: Table) -> npt.NDArray[np.void]:
        """Returns the parameters of each selected column in each iteration, (n or 1)(enabled or 1). Raises BadInput."""
        (least, most), (first, last) = (reach(each, own.counts) for each in (own.parameters, own.column))
        if first < 0 or last >= self.machine.columns:
            require_within("column", generated(own.column, own.counts), self.machine.columns)
        rows = generated(own.parameters, own.counts) if least < most else np.array([least])
        distinct, which = np.unique(rows, return_inverse=True) if least < most else (rows, np.zeros(1, np.intp))
        every = self.entries_of(now, distinct)
        columns = table.select
        if own.alike:
            columns = generated(own.column, own.counts)[:, None] if first < last else np.array([[first]])
        found: npt.NDArray[np.void] = every[which[:, None], columns] if self.computes else every
        return found

    def entries_of(self, now: Now, rows: Integers) -> npt.NDArray[np.void]:
        """Reads rows of parameters, (n)(C). Raises BadInput."""
        require_within("row of parameters", rows, self.machine.parameters)
        self.of_parameters.read(rows, now)
        return np.stack([self.parameters[row] for row in rows.tolist()])

    def _weights(self, now: Now, own: Weights) -> None:
        rows = own.weights + np.arange(own.rows)
        require_within("row of weights", rows, self.machine.weight_rows)
        content = self.fetched(now, np.array([own.dram]), own.rows * self.machine.weight_beats)
        self.of_weights.write(rows, now)
        self.weights[rows] = content.reshape(own.rows, -1)[:, : self.machine.columns].view(np.int8)
        self.brought[rows] = True

    def _spread(self, now: Now, own: Spread) -> None:
        """Scatters bytes of beats to weight columns. Order is checked by rows, as a load reads whole rows."""
        number, width = own.tables, self.machine.bandwidth
        table = self._table(now, own.table, self.machine.columns, number)
        table.require_selects(width, "byte")
        rows = generated(own.weights, own.counts).reshape(-1, number).take(table.which, axis=1) + table.offset
        least, most = reach(own.weights, own.counts)
        if least + table.offsets[0] < 0 or most + table.offsets[1] >= self.machine.weight_rows:
            require_within("row of weights", rows, self.machine.weight_rows)
        content = self.fetched(now, generated(own.dram, own.counts))
        self.of_weights.write(rows, now)
        if self.computes:
            taken = content.reshape(len(rows), -1).take(table.which * width + table.select, axis=1)
            self.weights[rows, table.lanes] = taken.view(np.int8)  # in iteration order: the last write wins
        self.brought[rows, table.lanes] = True

    def _fill(self, now: Now, own: Lanes | Fill) -> None:
        """Writes bytes of beats, or the table's constants, to scratchpad banks."""
        table = self._table(now, own.table, self.machine.rows)
        values = table.select.astype(np.uint8).view(np.int8)
        if isinstance(own, Lanes):
            table.require_selects(self.machine.bandwidth, "byte")
            content = self.fetched(now, generated(own.dram, own.counts))
            values = content[:, table.select].view(np.int8) if self.computes else values
        self._write_lanes(now, own, table, values)

    def _tables(self, now: Now, own: Tables) -> None:
        numbers = own.table + np.arange(own.number)
        require_within("table", numbers, self.machine.tables)
        content = self.fetched(now, np.array([own.dram]), own.number * self.machine.table_beats)
        self.of_tables.write(numbers, now)
        self.tables.write(own.table, content.reshape(own.number, -1))

    def _parameters(self, now: Now, own: Parameters) -> None:
        rows = own.parameters + np.arange(own.rows)
        require_within("row of parameters", rows, self.machine.parameters)
        content = self.fetched(now, np.array([own.dram]), own.rows * self.machine.parameter_beats)
        self.of_parameters.write(rows, now)
        for row, each in zip(rows, content.reshape(own.rows, -1), strict=True):
            self.parameters[row] = requantization.decoded(each, self.machine.columns)

    def _out(self, now: Now, own: Out) -> None:
        table = self._table(now, own.table, self.machine.bandwidth)
        table.require_selects(self.machine.rows, "lane")
        places = self._lane_places(own, table, table.select)
        require_one_address(table)
        self.of_lanes.read(places, now, own=False)
        self.use_lanes(now, own, places)
        values = self.lanes[places] if self.computes else np.zeros(places.shape, np.int8)
        self._put(now, self._beats(generated(own.dram, own.counts)), table.lanes, values)

    def _sums(self, now: Now, own: Sums) -> None:
        machine = self.machine
        rows = self.sum_rows(own.accumulators, own.counts)
        self.read_sums(now, own, rows)
        beats = self._beats(generated(own.dram, own.counts), machine.sum_beats).reshape(len(rows), -1)
        content = self.sums[rows].astype("<i4").view(np.uint8)
        self.of_dram.write(beats, now)
        self.written += beats.size * machine.bandwidth
        # Row by row, as rows may overlap in DRAM.
        at = (machine.bandwidth * beats[:, :, None] + np.arange(machine.bandwidth)).reshape(len(rows), -1)
        self.dram[at[:, : content.shape[1]]] = content

    def _put(self, now: Now, beats: Integers, lanes: Integers, values: npt.NDArray[np.int8]) -> None:
        """Writes bytes of beats to DRAM, (n)(bytes); the last write of a repeated beat wins."""
        self.of_dram.write(beats, now)
        self.written += beats.size * self.machine.bandwidth
        self._beats_of_dram()[beats[:, None], lanes] = values.view(np.uint8)


class Timed(State):
    """A simulation of a whole program, given the times and the happens-before vector of each instruction."""

    def __init__(self, program: NpuProgram, times: Times, known: Mapping[str, Sequence[Known]]) -> None:
        super().__init__(program)
        self.times, self.known = times, known

    def finished(self) -> Run:
        """Executes all instructions by start time."""
        for start, unit, number in in_order(self.times):
            self.do(Now(unit, number, start, self.known[unit][number]), self.program.queue(unit)[number])
        return Run(self.dram, self.times, self.read, self.written)


def in_order(times: Times) -> list[tuple[int, str, int]]:
    """Returns start, unit and number of all instructions by start; two of one cycle do not depend on each other."""
    return sorted((t, unit, i) for unit in UNITS for i, t in enumerate(times.start[unit].tolist()))
