"""Draws legal programs of the machine for tests, such that most of their effects stay visible in DRAM."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np

from glenside.npu.isa.address_generators import encoded, generated
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
    Weights,
)
from glenside.npu.isa.column_unit import Apply, Deviation, Functions, Greatest, Mean, Scale, Total
from glenside.npu.isa.fields import Address, Counts
from glenside.npu.machine.model import Machine
from glenside.npu.model.cycle_model import stream_adds, times
from glenside.npu.model.infer_synchronization import waiting
from glenside.npu.program import requantization
from glenside.npu.program.program import NpuProgram

ONCE: Counts = (1, 1, 1)


class Memory:
    """A DRAM image that grows by aligned pieces."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.content = bytearray()

    def put(self, content: bytes, row: int | None = None) -> int:
        """Stores bytes, and returns their address; with `row`, each `row` bytes start a new beat."""
        address = len(self.content)
        row = row or len(content) or 1
        for begin in range(0, len(content), row):
            piece = content[begin : begin + row]
            self.content += piece + bytes(-len(piece) % self.machine.bandwidth)
        return address

    def table(self, select: object, enable: object, offset: object) -> int:
        """Stores a lane table of any number of entries, and returns its address; other entries are not enabled."""
        given = bytes(encoded(select, enable, offset))  # type: ignore[arg-type]
        return self.put(given + bytes(self.machine.entries * 8 - len(given)))

    @property
    def array(self) -> np.ndarray:
        return np.frombuffer(bytes(self.content), np.uint8)


def random_machine(rng: np.random.Generator, rows: int, columns: int, **more: object) -> Machine:
    """Draws a machine with small memories, so that addresses collide."""
    depth = int(rng.integers(4, 20)) * 2
    weights = int(rng.integers(rows, 3 * rows)) * columns
    return Machine(
        rows,
        columns,
        **{  # type: ignore[arg-type]
            "scratchpad": weights + rows * depth,
            "weights": weights,
            "accumulators": int(rng.integers(3, 12)) * 2,
            "parameters": int(rng.integers(1, 4)),
            "tables": int(rng.integers(6, 12)),
            "instructions": int(rng.integers(2, 9)) * 16,
            "bandwidth": int(2 ** rng.integers(0, 6)),
            "latency": int(rng.choice([0, 1, 2, 7, 20])),
            "pipelined": bool(rng.integers(4)),
            **more,
        },
    )


class Drawn:
    """Draws a program, instruction by instruction."""

    def __init__(self, rng: np.random.Generator, machine: Machine) -> None:
        self.rng, self.machine = rng, machine
        self.memory = Memory(machine)
        self.written: list[Instruction] = []
        self.rows_written: set[int] = set()
        self.brought = np.zeros((machine.weight_rows, machine.columns), bool)
        self.parameter_rows: set[int] = set()
        self.functions: dict[int, bool] = {}
        self.loaded = 0
        self.input = self.memory.put(rng.integers(0, 256, 40 * machine.bandwidth, np.uint8).tobytes())
        self.output = self.memory.put(bytes(40 * machine.bandwidth))
        self.roles: dict[str, list[int]] = {"stream": [], "store": [], "lanes": [], "out": [], "fill": [], "spread": []}
        self.offset = machine.depth // 4
        self.row_offset = machine.weight_rows // 4
        self.spreads: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.numbers = count()
        for role in (*self.roles, "spread", "stream", "lanes")[: machine.tables - 1]:
            self.new_table(role, next(self.numbers))
        self.dense = next(self.numbers)
        self._table_to(self.dense, np.zeros(machine.rows), np.ones(machine.rows), np.zeros(machine.rows))
        self.written.append(Fill((machine.depth, 1, 1), Address(0, (1, 0, 0)), self.dense))
        self.fill(whole=True)

    def _table_to(self, number: int, select: object, enable: object, offset: object) -> None:
        self.written.append(Tables(self.memory.table(select, enable, offset), number, 1))

    def new_table(self, role: str, number: int) -> None:
        machine, rng = self.machine, self.rng
        size = {"out": machine.bandwidth, "spread": machine.columns}.get(role, machine.rows)
        most = {
            "stream": 4,
            "store": machine.columns,
            "lanes": machine.bandwidth,
            "out": machine.rows,
            "fill": 1 << 16,
            "spread": machine.bandwidth,
        }[role]
        most_offset = self.row_offset if role == "spread" else self.offset
        offsets = rng.integers(-most_offset, most_offset + 1, machine.rows if role == "out" else size)
        select = rng.integers(0, most, size)
        offset = offsets[select] if role == "out" else offsets
        enable = rng.integers(0, 4, size) > 0
        self._table_to(number, select, enable, offset)
        self.spreads[number] = np.flatnonzero(enable), offset
        if number not in self.roles[role]:
            self.roles[role].append(number)

    def counts(self, most: int = 60) -> Counts:
        while True:
            found = tuple(int(n) for n in self.rng.choice([1, 1, 2, 3, 5, 9], 3))
            if np.prod(found) <= most:
                return found  # type: ignore[return-value]

    def address(self, counts: Counts, size: int, margin: int = 0, scale: int = 1, more: object = 0) -> Address:
        """Draws an address within [margin, size - margin), in steps of `scale`, and loop increments."""
        strides = self.rng.integers(-4, 5, 3)
        while True:
            at = generated(Address(0, tuple(int(s) for s in strides)), counts) + more  # type: ignore[arg-type]
            low, high = margin - int(at.min()), size - margin - 1 - int(at.max())
            if low <= high:
                base = int(self.rng.integers(low, high + 1))
                return Address(base * scale, tuple(int(s) * scale for s in strides))  # type: ignore[arg-type]
            strides = (
                strides // 2 if (strides > 0).any() else np.zeros(3, int) if (strides == -1).all() else strides + 1
            )

    def lanes(self, counts: Counts, turn: Address | None = None) -> Address:
        """Draws lane addresses; with a carried turn, so far before the last row that no entry leaves the memory."""
        if turn is None:
            return self.address(counts, self.machine.depth, self.offset)
        past = generated(turn, counts) // self.machine.rows
        return self.address(counts, self.machine.depth - 1, self.offset, more=past)

    def placed(self, counts: Counts, carry: bool) -> tuple[Address, Address]:
        """Draws a lane address and its turn."""
        turn = self.turn()
        room = self.machine.depth - 2 * self.offset - 2
        while carry and generated(turn, counts).max() // self.machine.rows > room:
            turn = Address(turn.base, tuple(stride // 2 for stride in turn.strides))  # type: ignore[arg-type]
        return self.lanes(counts, turn if carry else None), turn

    def beats(self, counts: Counts, begin: int) -> Address:
        own = self.address(counts, 40, 0, self.machine.bandwidth)
        return Address(own.base + begin, own.strides)

    def pick(self, role: str) -> int:
        return int(self.rng.choice(self.roles[role]))

    def fill(self, whole: bool = False) -> None:
        counts: Counts = (self.machine.depth - 2 * self.offset, 1, 1) if whole else self.counts()
        carry = self.carry()
        lanes, turn = (Address(self.offset, (1, 0, 0)), Address(0)) if whole else self.placed(counts, carry)
        size = self.machine.bandwidth
        dram = Address(self.input, (0, 0, 0)) if whole and counts[0] > 40 else self.beats(counts, self.input)
        if whole:
            dram = Address(self.input, (size if counts[0] <= 40 else 0, 0, 0))
        self.written.append(Lanes(counts, dram, lanes, self.pick("lanes"), turn, carry))

    def constants(self) -> None:
        counts = self.counts(12)
        carry = self.carry()
        lanes, turn = self.placed(counts, carry)
        self.written.append(Fill(counts, lanes, self.pick("fill"), turn, carry))

    def out(self) -> None:
        counts = self.counts()
        beats = self.beats(counts, self.output)
        carry = self.carry()
        lanes, turn = self.placed(counts, carry)
        self.written.append(Out(counts, beats, lanes, self.pick("out"), turn, carry))

    def carry(self) -> bool:
        return bool(self.rng.integers(2))

    def turn(self) -> Address:
        """Draws a turn modulo the lanes, often 0."""
        base, *strides = (int(n) for n in self.rng.integers(0, self.machine.rows, 4) * self.rng.integers(0, 2, 4))
        return Address(base, tuple(strides))  # type: ignore[arg-type]

    def weights(self) -> None:
        machine = self.machine
        rows = int(self.rng.integers(1, machine.rows + 1))
        content = self.rng.integers(0, 256, rows * machine.columns, np.uint8).tobytes()
        first = int(self.rng.integers(0, machine.weight_rows - rows + 1))
        self.written.append(Weights(self.memory.put(content, machine.columns), first, rows))
        self.brought[first : first + rows] = True

    def spread(self) -> None:
        """Loads some columns of some rows sparsely, and uses one of these rows if all its columns are loaded."""
        if self.roles["spread"]:
            counts, table, increment = self.counts(), self.pick("spread"), bool(self.rng.integers(2))
            behind = [own for own in self.roles["spread"] if own >= table]  # side by side
            counts = (min(counts[0], len(behind)), *counts[1:]) if increment else counts
            weights = self.address(counts, self.machine.weight_rows, self.row_offset)
            self.written.append(Spread(counts, self.beats(counts, self.input), weights, table, increment))
            every, rows = generated(weights, counts).reshape(-1, counts[0]), set[int]()
            for step in range(counts[0]):
                columns, offset = self.spreads[table + step * increment]
                own = every[:, step, None] + offset[columns]
                self.brought[own, columns] = True
                rows |= set(own.reshape(-1).tolist())
            self.load(rows)

    def load(self, among: set[int] | None = None) -> None:
        """Loads existing rows, among them a given one."""
        machine = self.machine
        rows = int(self.rng.integers(1, machine.rows + 1))
        good = [
            f
            for f in range(machine.weight_rows - rows + 1)
            if self.brought[f : f + rows].all() and (among is None or not among.isdisjoint(range(f, f + rows)))
        ]
        if good:
            self.written.append(Load(int(self.rng.choice(good)), rows))
            self.loaded += 1
            self.stream(fresh=True)

    def stream(self, fresh: bool = False) -> None:
        if self.loaded:
            counts = self.counts()
            sums = self.address(counts, self.machine.accumulators)
            self._stream(counts, sums, *self.placed(counts, carry=True), self.pick("stream"), fresh)

    def _stream(self, counts: Counts, sums: Address, lanes: Address, turn: Address, table: int, fresh: bool) -> None:
        rows = set(generated(sums, counts).tolist())
        adds = bool(rows <= self.rows_written and self.rng.integers(4))
        greatest = adds and not (counts[0] + sums.base) % 3  # whatever is drawn next stays what it was
        self.written.append(Stream(counts, lanes, table, sums, adds, fresh, turn, greatest))
        self.rows_written |= rows

    def _sums(self) -> tuple[Counts, Address] | None:
        for _ in range(8):
            counts = self.counts()
            address = self.address(counts, self.machine.accumulators)
            if set(generated(address, counts).tolist()) <= self.rows_written:
                return counts, address
        row = next(iter(self.rows_written), None)
        return None if row is None else (ONCE, Address(row))

    def parameters(self) -> None:
        machine, rng = self.machine, self.rng
        row = int(rng.integers(0, machine.parameters))
        rows = int(rng.integers(1, machine.parameters - row + 1))
        size = rows * machine.columns
        scale = np.float32(2.0) ** rng.uniform(-14, 2, size).astype(np.float32)
        scale = np.where(rng.integers(3, size=size) > 0, scale, np.float32(2.0) ** rng.integers(-9, 2))
        low = rng.integers(-128, 1, size)
        content = requantization.encoded(
            rng.integers(-(2**20), 2**20, size) // rng.choice([1, 2**8, 2**16]),
            scale.astype(np.float32),
            rng.integers(-128, 128, size),
            low,
            rng.integers(low, 128),
        )
        self.written.append(Parameters(self.memory.put(content.tobytes(), 16 * machine.columns), row, rows))
        self.parameter_rows |= set(range(row, row + rows))

    def beside(self) -> None:
        """Adds a stream into some rows of a half, and a reader of its other rows, which may run at the same time."""
        half, depth, rng = self.machine.half_accumulators, self.machine.half_depth, self.rng
        first, split = half * int(rng.integers(2)), int(rng.integers(1, half))
        low, high = (first, split), (first + split, half - split)
        own, others = (low, high) if rng.integers(2) else (high, low)
        counts = self.counts()
        found = counts, _further(self.address(counts, others[1]), others[0])
        if not self.loaded or not set(generated(found[1], counts).tolist()) <= self.rows_written:
            return
        into = self.counts()
        sums = _further(self.address(into, own[1]), own[0])
        turn = Address(int(rng.integers(self.machine.rows)))
        self._stream(into, sums, self.address(into, depth - 1), turn, self.dense, False)
        if rng.integers(2):
            self.sums(found)
        elif self.parameter_rows:
            self._store(*found, _further(self.address(counts, depth), depth), self.turn(), self.dense, False)

    def store(self) -> None:
        found = self._sums()
        if found and self.parameter_rows:
            carry = self.carry()
            self._store(*found, *self.placed(found[0], carry), self.pick("store"), carry)

    def _store(self, counts: Counts, sums: Address, lanes: Address, turn: Address, table: int, carry: bool) -> None:
        alike = bool(self.rng.integers(2))
        column = self.address(counts, self.machine.columns) if alike else Address(0)
        own = self._parameter_rows(counts)
        applies = bool(self.functions and self.rng.integers(3) == 0)
        function = int(self.rng.choice([*self.functions])) if applies else 0
        self.written.append(Store(counts, sums, lanes, table, own, alike, column, turn, carry, applies, function))

    def new_functions(self) -> None:
        machine, rng = self.machine, self.rng
        first = int(rng.integers(machine.functions))
        number = int(rng.integers(1, machine.functions - first + 1))
        positive = bool(rng.integers(2))
        content = rng.integers(1 if positive else -(2**15), 2**15, 256 * number).astype("<i2")
        self.written.append(Functions(self.memory.put(content.tobytes(), 512), first, number))
        self.functions |= dict.fromkeys(range(first, first + number), positive)

    def columns(self) -> None:
        """Adds column instructions: applies a function to rows, and then subtracts or divides by row statistics."""
        machine, rng, found = self.machine, self.rng, self._sums()
        if not found or not self.functions:
            return
        counts, sums = found
        if len(set(generated(sums, counts).tolist())) < np.prod(counts):
            counts, sums = ONCE, Address(sums.base)
        row, size, n = int(rng.integers(machine.parameters)), machine.columns, int(np.prod(counts))
        scale = np.float32(2.0) ** rng.uniform(-12, -2, size).astype(np.float32)
        own = requantization.encoded(rng.integers(1, 99, size), scale, rng.integers(-9, 9, size), -128 + 0 * scale, 127)
        self.written.append(Parameters(self.memory.put(own.tobytes(), 16 * size), row, 1))
        function = int(rng.choice([*self.functions]))
        positive = self.functions[function]
        self.written += [Greatest(counts, sums), Apply(counts, sums, row, function)]
        if positive and rng.integers(2):
            scale = scale * np.float32(8000 * n)
        elif rng.integers(2):
            scale = np.full(size, 1 / n, np.float32)
        own = requantization.encoded(
            rng.integers(1, 99, size), scale.astype(np.float32), 0 * scale, 0 * scale, 0 * scale
        )
        self.written.append(Parameters(self.memory.put(own.tobytes(), 16 * size), row, 1))
        self.parameter_rows.add(row)
        kinds = [[Greatest(counts, sums)], [Mean(counts, sums, row)], [Total(counts, sums, row)]]
        self.written += kinds[int(rng.integers(2 + positive))]
        if not positive or rng.integers(2):
            self.written.append(Deviation(counts, sums, row))
        else:
            self.written.append(Total(counts, sums, row))
        self.written.append(Scale(counts, sums))

    def _parameter_rows(self, counts: Counts) -> Address:
        """Draws a written parameter row for each iteration."""
        for _ in range(8):
            address = self.address(counts, self.machine.parameters)
            if set(generated(address, counts).tolist()) <= self.parameter_rows:
                return address
        return Address(int(self.rng.choice(sorted(self.parameter_rows))))

    def sums(self, found: tuple[Counts, Address] | None = None) -> None:
        found = found or self._sums()
        if found:
            counts, sums = found
            size = self.machine.sum_beats * self.machine.bandwidth
            place = self.memory.put(bytes(size * int(np.prod(counts))))
            strides = (size, size * counts[0], size * counts[0] * counts[1])
            self.written.append(Sums(counts, Address(place, strides), sums))

    def table(self) -> None:
        role = str(self.rng.choice(list(self.roles)))
        if self.roles[role]:
            self.new_table(role, self.pick(role))

    def draw(self, steps: int, ports: bool = True) -> NpuProgram:
        """Draws a number of steps, and then stores the content of all memories to DRAM."""
        for own in (self.weights, self.load, self.parameters, self.new_functions):
            own()
        kinds: list[Callable[[], None]] = [
            self.weights, self.load, self.load, self.stream, self.stream, self.store, self.store, self.fill,
            self.constants, self.out, self.sums, self.parameters, self.table, self.beside, self.beside, self.spread,
            self.columns, self.columns, self.new_functions,
        ]  # fmt: skip
        for kind in self.rng.integers(0, len(kinds), steps):
            kinds[kind]()
        self.finish()
        program = NpuProgram(self.machine, {}, self.memory.array)
        return NpuProgram(self.machine, waiting(program, self.written, ports=ports), self.memory.array)

    def finish(self) -> None:
        machine = self.machine
        size = machine.sum_beats * machine.bandwidth
        for row in sorted(self.rows_written):
            self.written.append(Sums(ONCE, Address(self.memory.put(bytes(size))), Address(row)))
        for begin in range(0, machine.rows, machine.bandwidth):
            lanes = np.arange(begin, min(begin + machine.bandwidth, machine.rows))
            self._table_to(self.dense, lanes, np.ones(len(lanes)), np.zeros(len(lanes)))
            place = self.memory.put(bytes(machine.depth * machine.bandwidth))
            dram = Address(place, (machine.bandwidth, 0, 0))
            self.written.append(Out((machine.depth, 1, 1), dram, Address(0, (1, 0, 0)), self.dense))


def _further(address: Address, by: int) -> Address:
    return Address(address.base + by, address.strides)


def drawn(seed: int, rows: int, columns: int, steps: int = 40, **more: object) -> NpuProgram:
    """Draws a legal program for a random machine with this array."""
    rng = np.random.default_rng(seed)
    return Drawn(rng, random_machine(rng, rows, columns, **more)).draw(steps)


def small_machine(rows: int, columns: int, **more: object) -> Machine:
    """Returns one machine for many programs, because building its RTL takes long."""
    return Machine(
        rows,
        columns,
        **{  # type: ignore[arg-type]
            "scratchpad": 3 * rows * columns + rows * 24,
            "weights": 3 * rows * columns,
            "accumulators": 14,
            "parameters": 3,
            "tables": 10,
            "instructions": 64,
            "bandwidth": 8,
            "latency": 3,
            **more,
        },
    )


def drawn_for(machine: Machine, seed: int, steps: int = 40, *, ports: bool = True) -> NpuProgram:
    """Draws a program for a machine; it is legal, except that without `ports` two units may use one port."""
    return Drawn(np.random.default_rng(seed), machine).draw(steps, ports)


def stream_beside_a_reader(reader: str, machine: Machine, *, adds: bool) -> tuple[Memory, list[Instruction]]:
    """Builds a program in which a store or DMA reads five sums while a long stream writes another
    row of the same half.
    """
    memory = Memory(machine)
    rows, columns = machine.rows, machine.columns
    every, each = np.arange(rows), np.arange(columns)
    own = requantization.encoded(each, np.float32(0.5), 0 * each, 0 * each - 128, 0 * each + 127)
    content = np.arange(rows * columns, dtype=np.uint8).tobytes()
    table = Tables(memory.table(every % columns, every >= 0, 0 * every), 0, 1)
    size = machine.sum_beats * machine.bandwidth
    other = Address(machine.half_accumulators - 1)
    last = {
        "store": Store((5, 1, 1), Address(0, (1, 0, 0)), Address(machine.half_depth, (1, 0, 0)), 0, Address(0)),
        "sums": Sums((5, 1, 1), Address(memory.put(bytes(5 * size)), (size, 0, 0)), Address(0, (1, 0, 0))),
    }[reader]
    return memory, [
        table,
        Fill((5, 1, 1), Address(0, (1, 0, 0)), 0),
        Weights(memory.put(content, columns), 0, rows),
        Parameters(memory.put(own.tobytes()), 0, 1),
        Load(0, rows),
        Stream((5, 1, 1), Address(0, (1, 0, 0)), 0, Address(0, (1, 0, 0)), False, True),
        Stream(ONCE, Address(0), 0, other, False, False),
        Stream((100, 1, 1), Address(0), 0, other, adds, False),
        last,
    ]


def reads_beside_streams(program: NpuProgram) -> dict[str, int]:
    """Returns the cycles in which a store or DMA reads a half while a stream writes its first column."""
    machine, found = program.machine, times(program)

    def halves(kind: type[Instruction], delay: int, every: int = 1) -> dict[int, bool]:
        """Returns the half in each cycle."""
        used = {}
        for unit, queue in program.queues.items():
            for own, start in zip(queue, found.start[unit], strict=True):
                if isinstance(own, kind):
                    rows = np.repeat(generated(own.accumulators, own.counts), every)  # type: ignore[attr-defined]
                    used |= dict(zip(count(int(start) + delay), (rows >= machine.half_accumulators).tolist()))
        return used

    written = halves(Stream, stream_adds(machine))
    read = {"store": halves(Store, 1), "sums": halves(Sums, 2, machine.sum_beats)}
    return {name: sum(written.get(c) == half for c, half in own.items()) for name, own in read.items()}
