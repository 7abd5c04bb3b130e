"""Tests the target npu: machines as text, cycles of its timing model, fronts against brute force over all plans."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import mapping_oracle as oracle
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import glenside as gl
from glenside.analysis.element_sources import distinct_elements
from glenside.builder import Builder
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import postorder
from glenside.npu.isa.base import Load, Stream
from glenside.npu.isa.fields import Address
from glenside.npu.lowering.emission.emit_program import lowered, without_dma
from glenside.npu.machine.config_text import read_machine, written
from glenside.npu.machine.energies import PUBLISHED
from glenside.npu.machine.model import Energy, Machine, with_useful_beats
from glenside.npu.model.cycle_model import times
from glenside.npu.program.program import NpuProgram
from glenside.passes.answer import Answer
from glenside.rewrites.mapping.mapping_front import LEVELS
from glenside.semantics.interpreter import evaluate
from glenside.targets.npu.target import SLACK
from glenside.targets.registry import parse_target

FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

ARRAY = 'target = "npu"\n[array]\nrows = 8\ncolumns = 4\n'
BAD_FILES = {
    "no array": ('target = "npu"\n', "rows in [array] is missing: a whole number"),
    "no columns": ('target = "npu"\n[array]\nrows = 8\n', "columns in [array] is missing"),
    "no rows at all": ('target = "npu"\n[array]\nrows = 0\ncolumns = 4\n', "rows of an npu is an integer from 1"),
    "a bool": ('target = "npu"\n[array]\nrows = true\n', "t.toml:3: rows in [array] is a whole number, got True"),
    "a list": ('target = "npu"\n[array]\nrows = [8]\n', "t.toml:3: rows in [array] is a whole number, got [8]"),
    "a float": ('target = "npu"\n[array]\nrows = 8.5\n', "t.toml:3: rows in [array] is a whole number, got 8.5"),
    "unknown key": (ARRAY + "colums = 4\n", "t.toml:5: there is no colums in [array]; did you mean columns?"),
    "unknown table": (ARRAY + "[dam]\n", "t.toml:5: there is no dam of an npu; did you mean dram?"),
    "a key outside": ("bandwidth = 4\n" + ARRAY, "t.toml:1: there is no bandwidth of an npu"),
    "a table that is none": ("dram = 3\n" + ARRAY, "[dram] is a table, got 3"),
    "no bandwidth": (ARRAY + "[dram]\nbandwidth = 0\n", "bandwidth of an npu is an integer from 1 to 1,024, got 0"),
    "odd bandwidth": (ARRAY + "[dram]\nbandwidth = 24\n", "a power of two of bytes per cycle, got 24"),
    "unknown unit": (ARRAY + '[dram]\nbandwidth = "4 GB/s"\n', "whole bytes, such as '32 B/cycle', got '4 GB/s'"),
    "negative": (ARRAY + "[dram]\nlatency = -1\n", "latency in [dram] is a whole number, such as '64 cycles', got -1"),
    "half a byte": (ARRAY + '[memory]\nweights = "0.5 B"\n', "whole bytes, got '0.5 B'"),
    "small weights": (ARRAY + "[memory]\nweights = 31\n", "32 bytes, and has 31: 1 are missing"),
    "small scratchpad": (
        ARRAY + "[memory]\nscratchpad = 40\nweights = 32\n",
        "and has 8 bytes for them: 8 are missing",
    ),
    "odd accumulators": (ARRAY + "[memory]\naccumulators = 5\n", "so their number is even, got 5"),
    "pipelined": (ARRAY + "pipelined = 2\n", "pipelined in [array] is yes or no"),
    "half of the energy": (ARRAY + '[energy]\nproduct = "0.2 pJ"\n', "lane_byte in [energy] is missing"),
    "no such table": (ARRAY + '[energy]\ntable = "horowitz"\n', "energies is one of horowitz-2014, got 'horowitz'"),
    "a table and figures": (
        ARRAY + '[energy]\ntable = "horowitz-2014"\nproduct = "1 pJ"\n',
        "has a published table or figures of its own, and this one has product too",
    ),
    "no source": (ARRAY + '[energy]\nsource = ""\n', "source in [energy] is where the figures are from, got ''"),
}
BAD_OPTIONS = {
    "npu:": "the target npu is written npu:RxC",
    "npu,bandwidth=16": "there is no target 'npu,bandwidth=16'",
    "npu:64": "an npu is written ROWSxCOLUMNS and options",
    "npu:64x64,bandwith=16": "got 'bandwith'; did you mean bandwidth?",
    "npu:64x64,bandwidth": "the option bandwidth of npu is written bandwidth=VALUE: whole bytes",
    "npu:64x64,bandwidth=0": "bandwidth of an npu is an integer from 1 to 1,024, got 0",
    "npu:64x64,bandwidth=3": "a power of two",
    "npu:64x64,bandwidth=16,bandwidth=32": "bandwidth of npu is given twice",
    "npu:64x64,scratchpad=256kg": "the option scratchpad of npu is a size such as '256 KB'",
    "npu:64x64,weights=1KB": "holds a tile of 64 rows of 64 bytes, 4,096 bytes, and has 1,024: 3,072 are missing",
    "npu:64x64,scratchpad=4KB,weights=4KB": "and has 0 bytes for them: 128 are missing",
    "npu:64x64,pipelined=maybe": "pipelined of npu is yes or no",
    "npu:64x64,energy=mine": "a published table of energies is one of horowitz-2014, got 'mine'",
    "npu:2000x2": "rows of an npu is an integer from 1 to 1,024, got 2000",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    text, words = BAD_FILES[name]
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        parse_target(str(path))
    assert words in str(caught.value)
    assert "t.toml" in str(caught.value)
    assert "\n" not in str(caught.value).strip()


@pytest.mark.parametrize("text", BAD_OPTIONS)
def test_bad_options_are_one_sentence(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_target(text)
    assert BAD_OPTIONS[text] in str(caught.value)


def test_alone_it_is_a_machine_of_64x64_and_says_so() -> None:
    assert parse_target("npu").name == parse_target("npu:64x64").name == gl.NPU().name == "npu:64x64"


@st.composite
def machines(draw: Any) -> Machine:
    rows, columns = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    weights = draw(st.none() | st.integers(rows * columns, 1 << 16))
    figures = [draw(st.floats(0.001, 1e3)) for _ in range(5)]
    return Machine(
        rows,
        columns,
        pipelined=draw(st.booleans()),
        scratchpad=draw(st.integers(1 << 17, 1 << 20)),
        weights=weights,
        accumulators=2 * draw(st.integers(1, 999)),
        parameters=draw(st.integers(1, 99)),
        tables=draw(st.integers(1, 99)),
        instructions=draw(st.integers(2, 999)),
        bandwidth=1 << draw(st.integers(0, 10)),
        latency=draw(st.integers(0, 999)),
        clock=draw(st.none() | st.floats(1, 1e12)),
        energy=draw(st.none() | st.just(Energy(*figures, 'a "table", 45 nm'))),
    )


def test_published_energies_are_those_of_each_memory() -> None:
    """As printed where sizes are, twice as much for four times the size below 32 KB, and said of the machine's own."""
    energy = parse_target("npu:16x32,scratchpad=160KB,weights=32KB,accumulators=2048,energy=horowitz-2014").npu.energy  # type: ignore[attr-defined]
    assert energy.lane_byte == pytest.approx(10 / 8)
    assert energy.weight_byte == pytest.approx(20 / 8)
    assert energy.accumulator_word == pytest.approx(4 * 10 / 8)
    assert (energy.product, energy.dram_byte) == (pytest.approx(0.3), pytest.approx(1950 / 8))
    assert "ISSCC 2014" in energy.source
    table = PUBLISHED["horowitz-2014"]
    assert table.byte(2 << 10) == pytest.approx(5 / 8)
    assert table.byte(1 << 20) == pytest.approx(100 / 8)
    assert 20 / 8 < table.byte(256 << 10) < 100 / 8
    assert table.byte(4 << 20) > 100 / 8


def test_a_machine_of_published_energies_is_what_it_is_written_as() -> None:
    target = parse_target("npu:8x8,bandwidth=16,energy=horowitz-2014")
    assert target.name == "npu:8x8,bandwidth=16,energy=horowitz-2014"
    machine = target.npu  # type: ignore[attr-defined]
    assert read_machine("t.toml", tomllib.loads(written(machine))) == machine
    assert 'table = "horowitz-2014"' in written(machine)


@MANY
@given(machines())
def test_a_machine_is_what_it_is_written_as(machine: Machine) -> None:
    assert read_machine("t.toml", tomllib.loads(written(machine))) == machine
    target = parse_target(str(machine))
    assert isinstance(target, gl.NPU)
    assert target.npu == replace(machine, energy=None), "energy is said by files alone"
    assert target.name == str(machine)


def test_the_usual_machine_is_that_of_the_documentation() -> None:
    target = parse_target("npu:64x64")
    assert isinstance(target, gl.NPU)
    assert target.npu == Machine(64, 64, True, 1 << 20, None, 512, bandwidth=32, latency=100)
    changed = parse_target("npu:64x64,bandwidth=16 B/cycle,scratchpad=256KB,latency=0,pipelined=no,clock=1.5 GHz")
    assert isinstance(changed, gl.NPU)
    expected = Machine(64, 64, pipelined=False, scratchpad=1 << 18, bandwidth=16, latency=0, clock=1.5e9)
    assert changed.npu == expected
    assert gl.NPU(64, 64, bandwidth=16, scratchpad=1 << 18, latency=0, pipelined=False, clock=1.5e9).npu == expected


@FEW
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 30), st.integers(1, 12), st.booleans())
def test_cycles_of_tiles_are_those_of_the_timing(rows: int, columns: int, m: int, tiles: int, pipelined: bool) -> None:
    target = gl.NPU(rows, columns, pipelined=pipelined)
    stream = Stream((m, 1, 1), Address(0, (1, 0, 0)), 0, Address(0, (1, 0, 0)), False, True)
    queues = {"load": (Load(0, rows),) * tiles, "stream": (stream,) * tiles}
    exact = times(NpuProgram(target.npu, queues, np.zeros(0, np.uint8))).cycles
    waits = max(rows - m, 0) if pipelined else 0  # for weights that the next layer loads
    assert target.array.streamed(1, 1, tiles, 1, m).cycles == exact + waits


@pytest.mark.parametrize("pipelined", [True, False])
def test_cycles_of_layers_are_those_of_their_instructions(pipelined: bool) -> None:
    """What is lowered streams the tiles that were priced, of all layers but the last row of a last tile."""
    b = Builder("small")
    y = b.relu(b.conv(b.input("x", (1, 4, 20, 20)), b.constant("v", (16, 4, 3, 3)), padding=1, name="conv"))
    y = b.relu(b.conv(y, b.constant("w", (16, 1, 3, 3)), strides=2, padding=1, groups=16, name="dw"))
    program = b.finish(b.conv(y, b.constant("u", (24, 16, 1, 1)), name="pw"))
    target = gl.NPU(8, 8, pipelined=pipelined)
    result = gl.optimize(program, target, verify=False)
    instructions = lowered(result.program, result.prepared, target.npu)
    assert len(instructions.stretches) == 3
    for row, stretch in zip(result.report.layers, instructions.stretches, strict=True):
        cycles = row.measures["cycles"]
        assert cycles is not None
        assert 0 <= cycles - without_dma(instructions, stretch) < (8 if pipelined else 1), row


@st.composite
def layers(draw: Any) -> Program:
    """Returns a small convolution of one or two axes, in groups or not."""
    axes = draw(st.integers(1, 2))
    groups = draw(st.sampled_from((1, 1, 2, 3, 5)))
    channels, filters = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(axes)]
    strides = [draw(st.integers(1, 2)) for _ in range(axes)]
    sizes = [draw(st.integers(1, 9 if axes == 1 else 5)) for _ in range(axes)]
    padding = [(draw(st.integers(0, 1)), draw(st.integers(0, 1))) for _ in range(axes)]
    for n, k, (before, after) in zip(sizes, kernel, padding, strict=True):
        assume(n + before + after >= k)
    b = Builder("random")
    x = b.input("x", (draw(st.integers(1, 2)), channels, *sizes))
    w = b.constant("w", (filters, channels // groups, *kernel))
    return b.finish(b.conv(x, w, strides=strides, padding=padding, groups=groups))


def plans(layer: oracle.Layer) -> Iterator[tuple[bool, tuple[int, int, int, int]]]:
    """Whether operands are swapped, and (g, m, k, o) as the array takes them: of every plan there is."""
    axes = list(zip(layer.sizes, layer.kernels, layer.strides, layer.dilations, strict=True))
    for factors in product(*(range(1, size + 1) for size in layer.sizes)):
        g, m, k, o = oracle.products(layer, oracle.Mapping(0, factors, 1, False))
        assert o == layer.filters * prod(factors)
        assert len(axes) == len(factors)
        for r, p in product(range(1, m + 1), range(1, g + 1)):
            sizes = (-(-g // p), -(-m // r), k * r * p, o * r * p)
            yield False, sizes
            yield True, (sizes[0], sizes[3], sizes[2], sizes[1])
    g, m, k, o = oracle.products(layer, oracle.Mapping(0, (1,) * len(axes), 1, False))
    for p in range(2, g + 1):  # crossed: below each other on both sides
        yield False, (-(-g // p), m * p, k, o * p)
        yield True, (-(-g // p), o * p, k, m * p)


def hold_to_brute_force(program: Program, target: gl.NPU) -> None:
    """The best mapping is the best of all plans; on each level of cycles none moves fewer bytes or needs less room."""
    result = gl.optimize(program, target, exact_order=True)
    (row,) = result.report.layers
    (layer,) = oracle.layers_of(program).values()
    assert result.report.ok
    assert result.stopped == "saturated"
    (dot,) = program.layers.values()
    left, right = (distinct_elements(child) for child in dot.children[0].children)
    machine, found = target.npu, []
    beat = with_useful_beats(machine).bandwidth  # a wider port is planned as a narrower one
    row_bytes = -(-machine.columns // beat) * beat
    for swapped, (g, m, k, o) in plans(layer):
        row_tiles = -(-m // (machine.accumulators // 2))
        of_tile = -(-m // row_tiles)
        tiles = g * row_tiles * -(-k // machine.rows) * -(-o // machine.columns)
        drain = machine.rows + machine.columns + 2
        if machine.pipelined:
            cycles = machine.rows + tiles * max(machine.rows, of_tile) + drain
        else:
            cycles = tiles * (machine.rows + of_tile + drain)
        loaded, lanes = g * k * -(-o // machine.columns) * row_bytes, g * row_tiles * of_tile * k
        streamed, constant = (right, right) if swapped else (left, 0)
        found.append((cycles, streamed + loaded + dot.access.size, loaded + constant, lanes + loaded))
    least = min(cycles for cycles, *_ in found)
    assert row.measures["cycles"] == row.lower_bound == least, row
    front = [tuple(c.measures[name] for name in target.front or ()) for c in row.front]
    assert {*front} <= {*found}, "what a mapping takes is what a plan takes"
    for one, other in product(front, front):
        assert one == other or not all(a <= b for a, b in zip(one, other, strict=True)), "of which none beats another"
    for level in range(LEVELS):
        within = [one for one in found if (one[0] - least) * (LEVELS - 1) ** 2 <= (SLACK - 1) * least * level**2]
        kept = [one for one in front if one[0] <= max(cycles for cycles, *_ in within)]
        for part, what in enumerate(target.front or ()):
            assert min(one[part] for one in kept) <= min(one[part] for one in within), f"of all plans the least {what}"


SIZES = st.integers(1, 12)


@settings(FEW, max_examples=5)
@given(layers(), SIZES, SIZES, st.booleans(), st.sampled_from((2, 6, 512)))
def test_fronts_are_held_to_brute_force(program: Program, rows: int, columns: int, fast: bool, sums: int) -> None:
    hold_to_brute_force(program, gl.NPU(rows, columns, pipelined=fast, accumulators=sums, bandwidth=4))


@pytest.mark.slow
@MANY
@given(layers(), SIZES, SIZES, st.booleans(), st.sampled_from((2, 4, 6, 10, 512)))
def test_fronts_are_held_to_brute_force_many(program: Program, rows: int, columns: int, fast: bool, sums: int) -> None:
    hold_to_brute_force(program, gl.NPU(rows, columns, pipelined=fast, accumulators=sums, bandwidth=4))


@pytest.mark.slow
def test_mobilenet_v1_takes_what_a_prototype_took() -> None:
    """Its figures are 2,133,012 and 289,580, of 512 rows that stream and a drain four cycles shorter, once a layer."""
    report = gl.optimize(gl.models.mobilenet_v1(), gl.NPU(64, accumulators=1024), verify=False).report
    assert (report.baseline["cycles"], report.total["cycles"]) == (2_133_012 + 28 * 4, 289_580 + 28 * 4)


@pytest.mark.slow
def test_mobilenet_v1_takes_a_seventh_of_the_baseline_cycles() -> None:
    """As many as the oracle of all windows, packs and swaps, of which rows taken together are not found to be better.

    Only half of the accumulators are rows of one stream: the other half is stored meanwhile.
    """
    program, target = gl.models.mobilenet_v1(), gl.NPU(64)

    def cycles(groups: Any, m: Any, k: Any, n: Any, rows: int, columns: int) -> Any:
        row_tiles = -(-m // 256)
        tiles = groups * row_tiles * -(-k // rows) * -(-n // columns)
        return rows + tiles * np.maximum(rows, -(-m // row_tiles)) + rows + columns + 2

    report = gl.optimize(program, target, verify=False).report
    assert (report.baseline["cycles"], report.total["cycles"], report.gap) == (2_134_900, 289_724, 0)
    for row, layer in zip(report.layers, oracle.layers_of(program).values(), strict=True):
        assert row.measures["cycles"] == oracle.best(layer, 64, 64, cycles).cycles
        assert row.baseline["cycles"] == oracle.baseline(layer, 64, 64, cycles)
        told = row.details["machine"]
        assert told["streamed"] + told["loaded"] + told["stored"] == row.measures["bytes"]
        raw = layer.groups * layer.filters * layer.channels * prod(layer.kernels)
        assert row.details["plan"]["swapped"] or told["loaded"] - told["zeros"] - told["copies"] == raw


def test_what_is_read_is_counted_once() -> None:
    b = Builder("strided")
    x = b.input("x", (1, 2, 7, 7))
    program = b.finish(b.conv(x, b.constant("w", (3, 2, 1, 1)), strides=2))
    (dot,) = program.layers.values()
    assert [distinct_elements(child) for child in dot.children[0].children] == [2 * 4 * 4, 6]
    b = Builder("padded")
    x = b.input("x", (1, 2, 7, 7))
    program = b.finish(b.conv(x, b.constant("w", (3, 2, 3, 3)), padding=1))
    (dot,) = program.layers.values()
    assert [distinct_elements(child) for child in dot.children[0].children] == [2 * 7 * 7, 54]


def test_a_machine_of_a_file_is_used_and_said(tmp_path: Path) -> None:
    machine = Machine(8, 4, bandwidth=4, scratchpad=1 << 12, latency=3, accumulators=16)
    path = tmp_path / "small.toml"
    path.write_text(written(machine))
    b = Builder("small")
    y = b.conv(b.input("x", (1, 6, 9, 9)), b.constant("w", (6, 1, 3, 3)), padding=1, groups=6, name="dw")
    result = gl.optimize(b.finish(b.conv(y, b.constant("v", (10, 6, 1, 1)), name="pw")), parse_target(str(path)))
    assert result.report.ok
    assert result.report.target == str(machine)
    content = json.loads(json.dumps(result.report.as_dict()))
    for layer in content["layers"]:
        assert [m["measures"] for m in layer["mappings"]] == [c["measures"] for c in layer["front"]]
        for mapping in layer["mappings"]:
            assert mapping["plan"]["matrices"].keys() == {"groups", "m", "k", "n"}
            assert mapping["machine"]["loaded"] == mapping["machine"]["weights"]


def test_objectives_and_ways_that_it_has_not_are_refused() -> None:
    with pytest.raises(BadInput, match="an objective of an npu is one of cycles, bytes, got 'copies'"):
        gl.NPU(8, objectives=("copies",))
    program = Builder("empty")
    x = program.input("x", (2, 3))
    with pytest.raises(BadInput, match="has no option --extract"):
        gl.optimize(program.finish(x), gl.NPU(8), method="exact")


def test_the_fewest_bytes_are_chosen_where_they_come_first() -> None:
    b = Builder("depthwise")
    x = b.input("x", (1, 16, 14, 14))
    program = b.finish(b.conv(x, b.constant("w", (16, 1, 3, 3)), padding=1, groups=16))
    by_cycles, by_bytes = (
        gl.optimize(program, gl.NPU(16, objectives=order), verify=False).report.total
        for order in (("cycles", "bytes"), ("bytes", "cycles"))
    )
    assert by_bytes["bytes"] < by_cycles["bytes"]  # type: ignore[operator]
    assert by_bytes["cycles"] > by_cycles["cycles"]  # type: ignore[operator]


@settings(FEW, max_examples=5)
@given(layers(), SIZES, SIZES)
def test_zeros_among_weights_are_those_of_the_program(program: Program, rows: int, columns: int) -> None:
    """Weights without a zero of their own, as the answer rearranges them: of each tile the rows that are no padding."""
    answer = gl.optimize(program, gl.NPU(rows, columns, bandwidth=1), verify=False, exact_order=True).answer
    assert isinstance(answer, Answer)
    (layer,) = answer.layers.values()
    ones = {t.name: np.ones(t.dims, t.dtype) for t in program.tensors.values()}
    for variant in layer.variants:
        assert variant.term is not None
        if not variant.details["plan"]["swapped"]:
            call = next(t for t in postorder(variant.term) if t.operator.name == "systolic-array")
            (weights,) = evaluate([call.children[1]], ones)
            told = variant.details["machine"]
            assert int((weights[:, 0] != 0).sum()) == told["loaded"] - told["zeros"], variant.label
