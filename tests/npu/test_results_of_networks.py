"""Tests results of programs for every kind of last layer: every entry point has the quantized network's values."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run
from fuzzing import Fuzzing
from slow_cases import quick

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.npu.machine.model import Machine
from glenside.npu.model.accuracy import accuracy
from glenside.npu.program import binary_format, text_format
from glenside.npu.program.program import NpuProgram
from glenside.npu.program.results import computed, dtypes
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.quantize_program import integers
from glenside.semantics.interpreter import evaluate

helper = pytest.importorskip("onnx.helper")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

MACHINE = Machine(4, 4, scratchpad=1 << 14, accumulators=128, bandwidth=8, latency=3, tables=16)


@dataclass
class Network:
    """A model of floats that ends in what a seed draws."""

    seed: int
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw, self.rng = random.Random(self.seed), np.random.default_rng(self.seed)

    def constant(self, value: Any, dtype: str = "float32") -> str:
        name = f"constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value).astype(dtype), name))
        return name

    def weights(self, *dims: int) -> str:
        return self.constant(self.rng.normal(size=dims))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op} {len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [name], name, **attributes))
        return name

    def body(self) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Returns a tensor of sums, or of bytes; the dims of the input and its own."""
        kind = self.draw.choice(["conv", "depthwise", "transposed", "conv 3d", "matmul", "sum", "two", "pool"])
        c, m = self.draw.choice([1, 3, 4]), self.draw.choice([1, 2, 5])
        if kind == "matmul":
            return self.node("MatMul", "x", self.weights(6, m)), (2, 3, 6), (2, 3, m)
        if kind == "transposed":
            y = self.node("ConvTranspose", "x", self.weights(c, m, 2, 2), strides=[2, 2])
            return y, (1, c, 3, 3), (1, m, 6, 6)
        if kind == "conv 3d":
            return self.node("Conv", "x", self.weights(m, c, 2, 2, 2)), (1, c, 3, 4, 3), (1, m, 2, 3, 2)
        if kind == "depthwise":
            y = self.node("Conv", "x", self.weights(c, 1, 3, 3), group=c, pads=[1] * 4)
            return y, (1, c, 4, 5), (1, c, 4, 5)
        y = self.node("Conv", "x", self.weights(m, c, 3, 3), self.weights(m), pads=[1] * 4)
        if kind == "two":
            y = self.node("Conv", self.node("Relu", y), self.weights(m, m, 1, 1))
        if kind == "sum":
            y = self.node("Add", y, self.node("Conv", "x", self.weights(m, c, 1, 1)))
        if kind == "pool":
            y = self.node("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4)
        return y, (1, c, 4, 5), (1, m, 4, 5)

    def step(self, y: str, dims: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        """One more operator, which keeps floats."""
        channel = (dims[1],) + (1,) * (len(dims) - 2)
        op = self.draw.choice(sorted(_STEPS))
        if op == "Transpose":
            order = [*range(len(dims))]
            self.draw.shuffle(order)
            return self.node(op, y, perm=order), tuple(dims[i] for i in order)
        if op == "Reshape":
            whole = (dims[0], int(np.prod(dims[1:])))
            return self.node(op, y, self.constant(whole, "int64")), whole
        if op == "Slice" and dims[-1] > 1:
            at = [self.constant(own, "int64") for own in ([1], [dims[-1]], [len(dims) - 1])]
            return self.node(op, y, *at), (*dims[:-1], dims[-1] - 1)
        if op == "Pad":
            more = [0] * len(dims) + [0] * (len(dims) - 1) + [2]
            return self.node(op, y, self.constant(more, "int64"), self.constant(0.5)), (*dims[:-1], dims[-1] + 2)
        if op == "Concat":
            return self.node(op, y, self.node("Relu", y), axis=1), (dims[0], 2 * dims[1], *dims[2:])
        if op == "Clip":
            ends = sorted(self.rng.normal(size=2))
            return self.node(op, y, *map(self.constant, ends)), dims
        if op in ("Add", "Mul", "PRelu", "Max", "Min", "Sub", "Div"):
            one = self.draw.random() < 0.5
            by = self.rng.choice([-1.5, 0.3, 2]) if one else self.rng.normal(size=channel)
            return self.node(op, y, self.constant(by)), dims
        if op in ("Softmax", "LogSoftmax"):
            return self.node(op, y, axis=self.draw.choice([1, -1])), dims
        if op == "ReduceMean":
            axes = self.constant([len(dims) - 1], "int64")
            return self.node(op, y, axes, keepdims=1), (*dims[:-1], 1)
        return self.node(op, y), dims

    def end(self, y: str, dims: tuple[int, ...]) -> str:
        """Returns the last operator, of any dtype."""
        op = self.draw.choice(["", "", "", "Cast", "ArgMax", "Greater", "Round"])
        if op == "Cast":
            to = self.draw.choice([helper.TensorProto.FLOAT16, helper.TensorProto.DOUBLE, helper.TensorProto.INT32])
            return self.node(op, y, to=to)
        if op == "ArgMax":
            return self.node(op, y, axis=1, keepdims=self.draw.choice([0, 1]))
        if op == "Greater":
            return self.node(op, y, self.constant(0.1))
        return self.node(op, y) if op else y

    def model(self) -> Any:
        y, given, dims = self.body()
        made = [y]
        for _ in range(self.draw.choice([0, 1, 1, 2, 3])):
            y, dims = self.step(y, dims)
            made.append(y)
        made.append(self.end(y, dims))
        more = [name for name in made[:-1] if self.draw.random() < 0.2]
        outputs = [*dict.fromkeys([*more, made[-1]])]
        self.draw.shuffle(outputs)
        formal = helper.make_tensor_value_info("x", helper.TensorProto.FLOAT, given)
        ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", [formal], ends, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


_STEPS = {
    *("Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Selu", "Neg", "Abs", "Sigmoid", "Tanh", "HardSwish", "Softplus"),
    *("Add", "Sub", "Mul", "Div", "Max", "Min", "Softmax", "LogSoftmax", "ReduceMean", "Exp", "Floor"),
    *("Transpose", "Reshape", "Slice", "Pad", "Concat", "Identity"),
}


def _loaded(model: Any) -> Program:
    import onnx

    from glenside.importers.onnx.model import program_of_model

    program: Program = program_of_model(onnx.shape_inference.infer_shapes(model))
    return program


def _exact(network: IntegerNetwork, given: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the interpreter's results of the network."""
    (left,) = evaluate([network.program.term], {**network.constants, **given})
    every = left if isinstance(left, tuple) else (left,)
    return computed(network, dict(zip(network.program.result_names(), every, strict=True)))


def _made(seed: int) -> tuple[Any, Program, IntegerNetwork, NpuProgram, dict[str, Array]] | None:
    """Returns a network, and what is made of it; None for one that is refused, with a sentence."""
    model = Network(seed).model()
    program = _loaded(model)
    given = {"x": np.random.default_rng(seed).normal(size=program.inputs["x"].dims).astype(np.float32)}
    with suppress(BadInput):
        asked = integers(program, given)
        assert asked is not None
        return model, program, asked.network, gl.npu_program(program, gl.NPU(MACHINE), quantize=given), given
    return None


def _check(seed: int, folder: Path) -> bool:
    """True if the network of a seed is one for the machine; what is wrong with its results is an assertion."""
    own = _made(seed)
    if own is None:
        return False
    model, program, network, made, given = own
    place = made.inputs["x"]
    assert place.stands_for is not None
    wanted = _exact(network, {"x": place.stands_for.integers(given["x"], "int8")})
    floats = evaluate([program.term], {**program.constants, **given})[0]
    whole = dict(zip(program.result_names(), floats if isinstance(floats, tuple) else (floats,), strict=True))
    binary_format.save(made, folder / "p.bin")
    for by in (made, binary_format.load(folder / "p.bin"), text_format.parse(text_format.text(made))):
        found = by.run(given)
        assert [*found] == [*whole] == [*dtypes(by)] == [value.name for value in model.graph.output]
        for name, value in found.items():
            assert np.array_equal(value, wanted[name], equal_nan=value.dtype.kind == "f"), (seed, name)
            assert (value.dtype, value.shape) == (whole[name].dtype, whole[name].shape), (seed, name)
            assert dtypes(by)[name] == value.dtype.name
    if not _JUMPS & {node.op_type for node in model.graph.node}:
        for name, value in found.items():
            assert _decibels(value, whole[name]) > 15, (seed, name)
    return True


_JUMPS = {"Floor", "Greater", "ArgMax", "Cast", "Round", "Div"}
"""Operators whose results jump where what they take moves a little, or grow without end."""


def _decibels(found: Array, wanted: Array) -> float:
    """How far noise is below the signal, whose mean is taken off."""
    off = found.astype(np.float64) - wanted
    return float(10 * np.log10(max(wanted.astype(np.float64).std(), 0.1) ** 2 / max((off**2).mean(), 1e-30)))


def test_results_are_those_of_the_quantized_network(tmp_path: Path, fuzzing: Fuzzing) -> None:
    found = [_check(seed, tmp_path) for seed in fuzzing.seeds(3)]
    assert sum(found) >= 0.7 * len(found)


def test_a_relu_and_a_round_at_the_end(tmp_path: Path) -> None:
    """Numbers with no upper bound do not become bytes: the host clips and rounds."""
    assert _check(1079, tmp_path)


@pytest.mark.slow
def test_results_of_many_networks(tmp_path: Path, fuzzing: Fuzzing) -> None:
    found = [_check(seed, tmp_path) for seed in fuzzing.seeds(300, first=1000)]
    assert sum(found) >= 0.7 * len(found)


@pytest.mark.slow
def test_results_are_near_those_of_onnxruntime(fuzzing: Fuzzing) -> None:
    runtime = pytest.importorskip("onnxruntime")
    for seed in fuzzing.seeds(60, first=2000):
        own = _made(seed)
        if own is None or _JUMPS & {node.op_type for node in own[0].graph.node}:
            continue
        model, _, _, made, given = own
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        for name, wanted in zip(names, session.run(None, given), strict=True):
            assert _decibels(made.run(given)[name], wanted) > 15, (seed, name)


def test_the_accuracy_that_is_told_is_that_of_the_results() -> None:
    for seed in (3, 5):
        own = _made(seed)
        assert own is not None
        _, program, network, made, given = own
        found, wanted = made.run(given), evaluate([program.term], {**program.constants, **given})[0]
        every = dict(zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True))
        for name, told in accuracy(program, network, [given]).items():
            signal = np.asarray(every[name], np.float64)
            off = np.asarray(found[name], np.float64) - signal
            assert told.equal == np.mean(off == 0)
            if told.decibels is not None:
                assert told.decibels == pytest.approx(10 * np.log10((signal**2).sum() / (off**2).sum()))


@pytest.mark.parametrize("end", quick(["relu", "relu6", "softmax"], 1, 2))
def test_commands_do_what_is_left_to_the_host(
    end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    b = gl.Builder("n")
    y = b.conv(b.input("x", (1, 3, 5, 5)), b.constant("a", (2, 3, 3, 3)))
    program = b.finish(getattr(b, end)(y)).seeded_constants(0)
    gl.save(program, "n.onnx")
    x = np.random.default_rng(0).normal(size=(1, 3, 5, 5)).astype(np.float32)
    np.savez("x.npz", x=x)
    np.save("x.npy", x)
    made = ("tensorize", "n.onnx", "--target", "npu:4x4", "--quantize", "x.npz", "-o", "n.bin", "--no-cache")
    assert run(*made) == 0
    printed = capsys.readouterr().out
    assert f"Left to the host: scale, {'softmax' if end == 'softmax' else 'clip to 0'}" in printed
    assert f"on the same samples: {program.result_names()[0]} " in printed
    assert run("run", "n.bin", "--on", "simulator", "--input", "x=x.npy", "-o", "y.npz", "--json", "y.json") == 0
    (wanted,) = evaluate([program.term], {**program.constants, "x": x})
    (found,) = np.load("y.npz").values()
    assert _decibels(found, np.asarray(wanted)) > 25
    told = json.loads(Path("y.json").read_text())["outputs"][0]
    assert (told["dtype"], told["shape"], told["least"]) == ("float32", [1, 2, 3, 3], float(found.min()))
    assert found.min() >= 0


def test_files_of_before_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.bin").write_bytes(b"GLNPU 1\n" + bytes(100))
    (tmp_path / "old.asm").write_text("npu 1\ndram 0\n")
    with pytest.raises(BadInput, match=r"old\.bin: it was written by Glenside 0\.5 or before, .* make it again"):
        binary_format.load(tmp_path / "old.bin")
    with pytest.raises(BadInput, match=r"old\.asm:1:1: it was written by Glenside 0\.5 or before, .* make it again"):
        text_format.parse((tmp_path / "old.asm").read_text(), str(tmp_path / "old.asm"))
