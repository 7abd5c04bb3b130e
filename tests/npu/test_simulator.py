"""Compares the simulator with numpy, and cycles with the formula of the array; tests messages for wrong programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from npu_programs import ONCE, Memory, drawn, reads_beside_streams, small_machine, stream_beside_a_reader

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
from glenside.npu.isa.fields import Address, Wait
from glenside.npu.isa.table import INSTRUCTIONS
from glenside.npu.machine.model import Machine
from glenside.npu.model.cycle_model import delays, times
from glenside.npu.model.execute import Run, run
from glenside.npu.model.infer_synchronization import waiting
from glenside.npu.program import requantization
from glenside.npu.program.program import NpuProgram


def _machine(rows: int, columns: int, **more: object) -> Machine:
    sizes = {"scratchpad": 1 << 14, "weights": 1 << 12, "accumulators": 32, "bandwidth": 8, "latency": 5, **more}
    return Machine(rows, columns, **sizes)  # type: ignore[arg-type]


def _done(memory: Memory, written: list[Instruction]) -> Run:
    program = NpuProgram(memory.machine, {}, memory.array)
    return run(replace(program, queues=waiting(program, written)))


def _product(machine: Machine, m: int, k: int, n: int, seed: int) -> tuple[Run, np.ndarray, int]:
    """a (m)(k) times b (k)(n), tile by tile, its sums in DRAM at the address returned, n-tile by n-tile."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    rows, columns, size = machine.rows, machine.columns, machine.bandwidth
    memory = Memory(machine)
    written: list[Instruction] = []
    every = np.arange(rows)
    k_tiles, n_tiles = -(-k // rows), -(-n // columns)
    padded = np.zeros((m, k_tiles * rows), np.int8)
    padded[:, :k] = a
    beats = -(-rows // size)
    for part in range(beats):
        lanes = (every // size == part) & (every < rows)
        written.append(Tables(memory.table(every % size, lanes, 0 * every), part, 1))
    written.append(Tables(memory.table(0 * every, 0 * every + 1, 0 * every), beats, 1))
    for tile in range(k_tiles):
        at = memory.put(padded[:, tile * rows : (tile + 1) * rows].tobytes(), rows)
        for part in range(beats):
            dram = Address(at + part * size, (beats * size, 0, 0))
            written.append(Lanes((m, 1, 1), dram, Address(tile * m, (1, 0, 0)), part))
    width = machine.sum_beats * size
    out = memory.put(bytes(n_tiles * m * width))
    row = 0
    for n_tile in range(n_tiles):
        for k_tile in range(k_tiles):
            tile_b = b[k_tile * rows : (k_tile + 1) * rows, n_tile * columns : (n_tile + 1) * columns]
            whole = np.zeros((len(tile_b), columns), np.int8)
            whole[:, : tile_b.shape[1]] = tile_b
            written.append(Weights(memory.put(whole.tobytes(), columns), row, len(tile_b)))
            written.append(Load(row, len(tile_b)))
            lanes_at, sums_at = Address(k_tile * m, (1, 0, 0)), Address(0, (1, 0, 0))
            written.append(Stream((m, 1, 1), lanes_at, beats, sums_at, k_tile > 0, True))
            row += len(tile_b)
        written.append(Sums((m, 1, 1), Address(out + n_tile * m * width, (width, 0, 0)), Address(0, (1, 0, 0))))
    found = _done(memory, written)
    sums = found.dram[out : out + n_tiles * m * width].reshape(n_tiles, m, -1)[:, :, : 4 * columns].copy().view("<i4")
    got = np.moveaxis(sums, 0, 1).reshape(m, -1)[:, :n]
    assert np.array_equal(got, a.astype(np.int64) @ b.astype(np.int64))
    return found, got, out


@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (8, 12), (5, 3)])
def test_a_product_of_several_tiles_is_numpys(rows: int, columns: int, pipelined: bool) -> None:
    machine = _machine(rows, columns, pipelined=pipelined)
    for seed, (m, k, n) in enumerate([(1, 1, 1), (7, 2 * rows + 1, 2 * columns + 1), (32, rows, 3 * columns)]):
        _product(machine, m, k, n, seed)


@pytest.mark.parametrize("bandwidth", [1, 2, 16, 64])
def test_beats_may_be_narrower_or_wider_than_anything(bandwidth: int) -> None:
    _product(_machine(5, 3, bandwidth=bandwidth), 6, 11, 7, bandwidth)


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (5, 3)])
def test_the_greatest_of_products_is_numpys(rows: int, columns: int) -> None:
    """Also where an instruction comes to a row of sums several times."""
    machine, draw = _machine(rows, columns), np.random.default_rng(rows)
    memory, every = Memory(machine), np.arange(rows)
    x = draw.integers(-128, 128, (3, 5, rows))
    weights = draw.integers(-128, 128, (rows, columns))
    at = memory.put(np.pad(x.reshape(15, rows), ((0, 0), (0, machine.bandwidth - rows))).astype(np.int8).tobytes())
    out = memory.put(bytes(5 * machine.sum_beats * machine.bandwidth))
    written: list[Instruction] = [
        Tables(memory.table(every, 0 * every + 1, 0 * every), 0, 1),
        Lanes((15, 1, 1), Address(at, (machine.bandwidth, 0, 0)), Address(0, (1, 0, 0)), 0),
        Weights(memory.put(weights.astype(np.int8).tobytes(), columns), 0, rows),
        Load(0, rows),
        Stream((5, 1, 1), Address(0, (1, 0, 0)), 0, Address(0, (1, 0, 0)), False, True),
        Stream((5, 2, 1), Address(5, (1, 5, 0)), 0, Address(0, (1, 0, 0)), True, False, greatest=True),
        Sums((5, 1, 1), Address(out, (machine.sum_beats * machine.bandwidth, 0, 0)), Address(0, (1, 0, 0))),
    ]
    found = _done(memory, written)
    got = found.dram[out : out + 5 * machine.sum_beats * machine.bandwidth].reshape(5, -1)[:, : 4 * columns]
    assert np.array_equal(got.copy().view("<i4"), (x @ weights).max(axis=0))
    alone = [replace(own, accumulate=False) if getattr(own, "greatest", False) else own for own in written]  # type: ignore[type-var]
    _refused(memory, alone, "stream instruction 1: greatest needs accumulate")


def _tiles(machine: Machine, sizes: list[int]) -> tuple[NpuProgram, int]:
    """Tiles back to back, of so many rows each, and the number of DMA's instructions before them."""
    memory = Memory(machine)
    every = np.arange(machine.rows)
    written: list[Instruction] = [
        Tables(memory.table(0 * every, 0 * every + 1, 0 * every), 0, 1),
        Fill((max(sizes), 1, 1), Address(0, (1, 0, 0)), 0),
        Weights(memory.put(bytes(machine.rows * machine.columns), machine.columns), 0, machine.rows),
    ]
    ready = Wait(dma=len(written))
    for m in sizes:
        written.append(Load(0, machine.rows, wait=ready))
        written.append(Stream((m, 1, 1), Address(0, (1, 0, 0)), 0, Address(0, (1, 0, 0)), False, True, wait=ready))
        if not machine.pipelined:
            ready = Wait(stream=sum(isinstance(i, Stream) for i in written))
    program = NpuProgram(machine, {}, memory.array)
    return replace(program, queues=waiting(program, written)), 3


def test_tiles_back_to_back_take_the_rows_of_the_larger() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        machine = _machine(int(rng.integers(2, 9)), int(rng.integers(2, 9)))
        sizes = rng.integers(1, 20, int(rng.integers(1, 9))).tolist()
        program, _ = _tiles(machine, sizes)
        found = times(program)
        array = machine.rows + sum(max(machine.rows, m) for m in sizes[:-1]) + sizes[-1] + delays(machine)["stream"]
        assert found.completed["stream"][-1] - found.start["load"][0] == array


def test_a_serial_array_drains_between_tiles() -> None:
    machine = _machine(4, 6, pipelined=False)
    sizes = [3, 9, 1]
    found = times(_tiles(machine, sizes)[0])
    drain = delays(machine)["stream"]
    assert found.completed["stream"][-1] - found.start["load"][0] == sum(4 + m + drain for m in sizes)


def test_every_unit_runs_beside_the_others() -> None:
    found = run(drawn(3, 8, 8, steps=120))
    overlap = sum(found.times.busy.values()) + 50 * len(found.times.start["dma"])
    assert found.cycles < overlap
    assert found.read > 0
    assert found.written > 0


def _requantised(sums: np.ndarray, bias: int, scale: np.float32, zero: int, low: int, high: int) -> np.ndarray:
    """QLinear's meaning, one number at a time."""
    product = np.rint((sums + bias).astype(np.float32) * scale)
    return np.clip(product.astype(np.float64) + zero, low, high).astype(np.int8)


def test_requantisation_is_float32s_to_the_last_tie() -> None:
    rng = np.random.default_rng(1)
    int32 = [-(2**31), 2**31 - 1, -(2**24) - 1, 2**24 + 1, 2**25 + 3, 0, 1, -1, 3, 5, -5, 127, 128, 255]
    sums = np.concatenate([int32, np.arange(-40, 40), rng.integers(-(2**31), 2**31, 200)]).astype(np.int64)
    for scale in (0.0, 0.5, 0.25, 1.0, 3.4e38, 1.2e-38, 2**-9, 2**-25, *10.0 ** rng.uniform(-12, 2, 30)):
        for zero, low, high in ((0, -128, 127), (-128, -128, 127), (127, -5, 90), (3, 3, 3)):
            own = requantization.decoded(requantization.encoded([0], np.float32(scale), [zero], [low], [high]), 1)
            with np.errstate(over="ignore"):
                expected = _requantised(sums, 0, np.float32(scale), zero, low, high)
            assert np.array_equal(requantization.requantised(sums[:, None], own)[:, 0], expected), scale


def test_a_tie_goes_to_the_even_neighbour() -> None:
    own = requantization.decoded(requantization.encoded([0], np.float32(0.5), [0], [-128], [127]), 1)
    assert requantization.requantised(np.array([[1], [3], [5], [-1], [-3]]), own)[:, 0].tolist() == [0, 2, 2, 0, -2]


@pytest.mark.parametrize("scale", [np.inf, np.nan, 1e-40, -1e-40, -0.0])
def test_scales_that_no_network_has_are_refused(scale: float) -> None:
    with pytest.raises(BadInput, match="the scale of column 0 is 0 or a normal float32"):
        requantization.decoded(requantization.encoded([0], np.float32(scale), [0], [-128], [127]), 1)


def _stored(*, high: int = 127, parameters: int = 0) -> tuple[Memory, list[Instruction]]:
    machine = _machine(4, 4)
    memory = Memory(machine)
    every = np.arange(4)
    ones = np.ones(4, int)
    own = requantization.encoded(every, np.float32(0.5), 0 * every, 0 * every - 128, 0 * every + high)
    return memory, [
        Tables(memory.table(every, ones, 0 * ones), 0, 1),
        Fill((8, 1, 1), Address(0, (1, 0, 0)), 0),
        Weights(memory.put(bytes(16), 4), 0, 4),
        Parameters(memory.put(own.tobytes()), parameters, 1),
        Load(0, 4),
        Stream((8, 1, 1), Address(0, (1, 0, 0)), 0, Address(0, (1, 0, 0)), False, True),
        Store((8, 1, 1), Address(0, (1, 0, 0)), Address(8, (1, 0, 0)), 0, Address(parameters)),
        Out((8, 1, 1), Address(memory.put(bytes(64)), (8, 0, 0)), Address(8, (1, 0, 0)), 0),
    ]


def test_a_stored_bias_comes_out_of_memory() -> None:
    memory, written = _stored()
    found = _done(memory, written).dram[-64:].view(np.int8).reshape(8, 8)
    assert (found[:, :4] == [0, 0, 1, 2]).all()
    assert not found[:, 4:].any()


def test_a_store_turns_its_table_and_steps_through_parameters() -> None:
    """Against loops over iterations, entries and lanes: a row's columns begin at any lane, with biases of its own."""
    rng = np.random.default_rng(3)
    counts, turn, own = (3, 2, 2), Address(4, (2, 3, 1)), Address(1, (1, -1, 2))
    machine = _machine(5, 3)
    memory, every = Memory(machine), np.arange(5)
    select, enable, offset = rng.integers(0, 3, 5), np.array([1, 0, 1, 1, 1]), rng.integers(0, 4, 5)
    bias = rng.integers(-60, 60, (6, 3))
    row = [requantization.encoded(b, np.float32(1), 0 * b, 0 * b - 128, 0 * b + 127).tobytes() for b in bias]
    written: list[Instruction] = [
        Tables(memory.table(0 * every, 0 * every + 1, 0 * every), 0, 1),
        Tables(memory.table(select, enable, offset), 1, 1),
        Fill((64, 1, 1), Address(0, (1, 0, 0)), 0),
        Weights(memory.put(bytes(15), 3), 0, 5),
        Parameters(memory.put(b"".join(row), 48), 0, 6),
        Load(0, 5),
        Stream(ONCE, Address(0), 0, Address(0), False, True),
        Store(counts, Address(0), Address(0, (1, 3, 6)), 1, own, turn=turn),
    ]
    got = _every_lane(memory, written, 64)
    expected = np.zeros((64, 5), np.int8)
    for i2, i1, i0 in np.ndindex(*counts[::-1]):
        turned = turn.base + i0 * turn.strides[0] + i1 * turn.strides[1] + i2 * turn.strides[2]
        line = own.base + i0 * own.strides[0] + i1 * own.strides[1] + i2 * own.strides[2]
        for entry in every[enable == 1]:
            at = i0 + 3 * i1 + 6 * i2 + offset[entry]
            expected[at, (entry + turned) % 5] = bias[line, select[entry]]
    assert np.array_equal(got, expected)


def test_out_turns_the_lanes_that_it_takes_and_fill_writes_any_byte() -> None:
    machine = _machine(6, 2)
    memory, every = Memory(machine), np.arange(6)
    byte = np.array([0, 255, 128, 127, 0x1234, 7])
    select, enable = np.array([5, 0, 1, 4, 4, 2, 3, 0]), np.array([1, 1, 0, 1, 1, 1, 1, 1])
    place = memory.put(bytes([9] * 8 * 12))
    written: list[Instruction] = [
        Tables(memory.table(byte, 0 * every + 1, 2 * every), 0, 1),
        Tables(memory.table(select, enable, 0 * select), 1, 1),
        Fill((24, 1, 1), Address(0, (1, 0, 0)), 0),
        Out((4, 3, 1), Address(place, (8, 32, 0)), Address(10), 1, Address(3, (5, 1, 0))),
    ]
    got = _done(memory, written).dram[place : place + 96].reshape(3, 4, 8)
    for i1, i0, j in np.ndindex(3, 4, 8):
        lane = (select[j] + 3 + 5 * i0 + i1) % 6
        assert got[i1, i0, j] == (byte[lane] % 256 if enable[j] else 9)


def test_a_turn_is_less_than_the_lanes() -> None:
    memory, written = _stored()
    for turn in (Address(4), Address(0, (0, 5, 0))):
        own = Store(ONCE, Address(0), Address(8), 0, Address(0), turn=turn)
        _refused(memory, [*written, own], f"turn {max(turn.base, *turn.strides)} is outside of the 4")
    with pytest.raises(BadInput, match="turn_stride0 of out is from 0 to 1,023, got -1"):
        Out(ONCE, Address(0), Address(0), 0, Address(0, (-1, 0, 0))).require_fit()


def _every_lane(memory: Memory, written: list[Instruction], depth: int) -> np.ndarray:
    """What lanes hold at the end, (depth)(R), of no more lanes than bytes of a beat."""
    every, size = np.arange(memory.machine.rows), memory.machine.bandwidth
    place = memory.put(bytes(size * depth))
    out = Out((depth, 1, 1), Address(place, (size, 0, 0)), Address(0, (1, 0, 0)), 63)
    table = Tables(memory.table(every, 0 * every + 1, 0 * every), 63, 1)
    found = _done(memory, [*written, table, out])
    return found.dram[place : place + size * depth].view(np.int8).reshape(depth, size)[:, : len(every)]


def _refused(memory: Memory, written: list[Instruction], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        _done(memory, written)


def test_what_is_outside_is_refused_by_name() -> None:
    memory, written = _stored()
    far = memory.machine.depth
    _refused(
        memory, [*written, Fill(ONCE, Address(far), 0)], rf"dma instruction 5: lane address {far:,} is outside.*fill"
    )
    _refused(memory, [*written, Load(memory.machine.weight_rows - 1, 2)], "row of weights .* is outside")
    _refused(memory, [*written, Weights(0, 4, 1), Load(0, 5)], "it loads 5 rows into an array of 4")
    _refused(memory, [*written, Sums(ONCE, Address(4), Address(0))], "in beats of 8 bytes, got address 4")
    _refused(memory, [*written, Sums(ONCE, Address(1 << 20), Address(0))], "beat .* is outside")
    _refused(memory, [*written, Fill(ONCE, Address(0), 64)], "table 64 is outside of the 64")
    _refused(memory, [*written, Stream(ONCE, Address(0), 0, Address(32), False, False)], "accumulator 32 is outside")


def test_what_was_never_written_is_not_read() -> None:
    memory, written = _stored()
    _refused(
        memory, [*written, Stream(ONCE, Address(99), 0, Address(0), False, False)], "reads lane 0 at 99 before any"
    )
    _refused(memory, [*written, Stream(ONCE, Address(0), 0, Address(9), True, False)], "reads accumulator 9 before any")
    _refused(
        memory,
        [*written, Store(ONCE, Address(0), Address(0), 0, Address(1))],
        "reads row of parameters 1 before any",
    )
    _refused(memory, [*written, Fill(ONCE, Address(0), 3)], "reads table 3 before any")
    _refused(memory, [*written, Load(4, 1)], "reads row of weights 4 before any")
    _refused(memory, written[4:], "reads row of weights 0 before any")


def _program(memory: Memory, written: list[Instruction]) -> NpuProgram:
    program = NpuProgram(memory.machine, {}, memory.array)
    return replace(program, queues=waiting(program, written))


def _without(program: NpuProgram, unit: str, number: int) -> NpuProgram:
    queue = list(program.queue(unit))
    queue[number] = replace(queue[number], wait=Wait())  # type: ignore[type-var]
    return replace(program, queues={**program.queues, unit: tuple(queue)})


def test_a_wait_that_is_missing_is_refused_even_where_it_is_lucky() -> None:
    program = _program(*_stored())
    for unit, number, match in (
        ("load", 0, "load instruction 0 reads row of weights 0 before any instruction has written it"),
        ("store", 0, "store instruction 0 reads (accumulator|table|row of parameters) 0"),
        ("dma", 4, "dma instruction 4 reads (lane|table) 0"),
        (
            "dma",
            1,
            r"dma instruction 1 reads table 0 without waiting for dma instruction 0, .* needs wait.dma of 1 \(fil",
        ),
    ):
        with pytest.raises(BadInput, match=match):
            run(_without(program, unit, number))


def test_a_program_that_does_not_end_is_told_why() -> None:
    memory, written = _stored()
    program = _program(memory, written)
    late = replace(program.queue("load")[0], wait=Wait(stream=1))  # type: ignore[type-var]
    with pytest.raises(BadInput, match=r"load instruction 0 \(load\) waits until stream has completed 1, and only 0"):
        run(replace(program, queues={**program.queues, "load": (late,)}))
    with pytest.raises(BadInput, match=r"stream instruction 0 \(stream\) waits for weights that no load brings"):
        run(replace(program, queues={**program.queues, "load": ()}))
    twice = (*program.queue("load"), Load(0, 4), Load(0, 4))
    with pytest.raises(BadInput, match=r"load instruction 2 \(load\) waits for a fresh stream"):
        run(replace(program, queues={**program.queues, "load": twice}))


def test_two_readers_of_a_bank_in_one_cycle_are_refused() -> None:
    memory, written = _stored()
    program = _program(memory, written)
    ready = Wait(dma=4, store=1)
    end = times(program).completed["store"][-1]
    more = Stream((64, 1, 1), Address(0, (0, 0, 0)), 0, Address(8), False, False, wait=ready)
    queues = {**program.queues, "stream": (*program.queue("stream"), more)}
    with pytest.raises(BadInput, match="both use the read port of a lane's bank of one half in cycle") as found:
        run(replace(program, queues=queues))
    assert f"cycle {end + 2}" in str(found.value)
    other = replace(more, lanes=Address(memory.machine.half_depth))
    zeros = Fill(ONCE, Address(memory.machine.half_depth), 0, wait=Wait(dma=1))
    dma = (*program.queue("dma")[:4], zeros, *program.queue("dma")[4:])
    other = replace(other, wait=Wait(dma=5, store=1))
    run(replace(program, queues={**queues, "dma": dma, "stream": (*program.queue("stream"), other)}))


@pytest.mark.parametrize("reader", ["store", "sums"])
def test_sums_are_read_while_a_stream_replaces_others_of_that_half(reader: str) -> None:
    """A stream that adds needs the read port of its half for itself, one that does not leaves it to a reader."""
    memory, written = stream_beside_a_reader(reader, small_machine(5, 3), adds=False)
    program = _program(memory, written)
    assert reads_beside_streams(program)[reader] == 5 * (1 if reader == "store" else memory.machine.sum_beats)
    found = run(program)
    adding = _with_stream(program, 2, accumulate=True)
    unit = "store" if reader == "store" else "dma"
    number = len(program.queue(unit)) - 1
    both = (
        f"({unit} instruction {number} and stream instruction 2|stream instruction 2 and {unit} instruction {number})"
    )
    with pytest.raises(BadInput, match=f"{both} both use the read port of the accumulators of one half in cycle"):
        run(adding)
    other = _with_stream(adding, 2, accumulators=Address(memory.machine.half_accumulators))
    before = _with_stream(other, 1, accumulators=Address(memory.machine.half_accumulators))
    assert run(before).cycles == found.cycles


@pytest.mark.parametrize("reader", ["store", "sums"])
def test_a_wait_is_put_in_where_a_stream_that_adds_meets_a_reader(reader: str) -> None:
    unit = "store" if reader == "store" else "dma"
    for adds in (False, True):
        memory, written = stream_beside_a_reader(reader, small_machine(5, 3), adds=adds)
        program = _program(memory, written)
        run(program)
        assert program.queue(unit)[-1].wait.stream == (3 if adds else 1)
        assert (reads_beside_streams(program)[reader] == 0) == adds
        # The other way round it is the stream that waits.
        program = _program(memory, [*written[:-2], written[-1], written[-2]])
        run(program)
        assert getattr(program.queue("stream")[2].wait, unit) == (len(program.queue(unit)) if adds else 0)


def _with_stream(program: NpuProgram, number: int, **more: object) -> NpuProgram:
    queue = list(program.queue("stream"))
    queue[number] = replace(queue[number], **more)  # type: ignore[arg-type]
    return replace(program, queues={**program.queues, "stream": tuple(queue)})


def test_a_sum_that_leaves_int32_is_refused() -> None:
    memory, written = _stored()
    every = np.arange(4)
    own = requantization.encoded(0 * every - 2**31, np.float32(0.5), 0 * every, 0 * every - 128, 0 * every + 127)
    written[1] = Lanes((8, 1, 1), Address(memory.put(bytes([128] * 8))), Address(0, (1, 0, 0)), 0)
    written[2] = Weights(memory.put(bytes([1] * 16), 4), 0, 4)
    written[3] = Parameters(memory.put(own.tobytes()), 0, 1)
    _refused(memory, written, r"store instruction 0: the sum -2,147,484,160 is not an int32 \(store\)")


def test_random_programs_are_legal_and_cover_every_instruction() -> None:
    seen: set[type] = set()
    for seed in range(12):
        program = drawn(seed, *[(4, 4), (8, 12), (5, 3), (1, 1)][seed % 4])
        run(program)
        seen |= {type(i) for queue in program.queues.values() for i in queue}
    assert seen == set(INSTRUCTIONS)
