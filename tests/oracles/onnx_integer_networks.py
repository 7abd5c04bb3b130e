"""Draws quantized ONNX models by a seed, and the bytes on which a network of integer layers is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import glenside as gl
from glenside.importers.onnx.model import program_of_model
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.types import TupleType
from glenside.quantization.layers import IntegerNetwork

MICROSOFT = "com.microsoft"


class Graph:
    """A model under construction: nodes, and named constants."""

    def __init__(self, seed: int = 0) -> None:
        self.draw = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: str) -> str:
        name = f"constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value).astype(dtype), name))
        return name

    def bytes(self, dims: Sequence[int], dtype: str = "int8", low: int = -127, high: int = 128) -> str:
        return self.constant(self.draw.integers(low, high, dims), dtype)

    def scales(self, dims: Sequence[int] = (), least: float = 0.002, most: float = 0.01) -> str:
        return self.constant(self.draw.uniform(least, most, dims), "float32")

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op} {len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [name], name, **attributes))
        return name

    def quantized(self, x: str, scale: float, zero: int, dtype: str = "uint8") -> str:
        both = self.constant(scale, "float32"), self.constant(zero, dtype)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *both), *both)

    def weights(self, dims: Sequence[int], axis: int = 0) -> str:
        """Adds dequantized weights, with a scale for each channel."""
        zeros = self.constant(np.zeros(dims[axis]), "int8")
        return self.node("DequantizeLinear", self.bytes(dims), self.scales((dims[axis],)), zeros, axis=axis)

    def with_bias(self, dims: Sequence[int], scale: float) -> list[str]:
        """Adds such weights and a dequantized bias, whose scales are those of the weights times the scale of the other
        operand.
        """
        scales, zeros = self.draw.uniform(0.002, 0.01, dims[0]), self.constant(np.zeros(dims[0]), "int8")
        whole = self.constant(self.draw.integers(-2000, 2000, dims[0]), "int32")
        both = self.constant(scales, "float32"), self.constant(scales * scale, "float32")
        weights = self.node("DequantizeLinear", self.bytes(dims), both[0], zeros, axis=0)
        return [weights, self.node("DequantizeLinear", whole, both[1], axis=0)]

    def program(self, inputs: Mapping[str, tuple[Sequence[int], str]], *outputs: str) -> Program:
        formals = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims)
            for name, (dims, dtype) in inputs.items()
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", formals, results, self.constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)], ir_version=10
        )
        model = onnx.shape_inference.infer_shapes(model)
        program: Program = program_of_model(model)
        return program


def drawn(program: Program, seed: int) -> dict[str, Array]:
    """Draws inputs: bytes of their dtype, or normal floats."""
    draw, found = np.random.default_rng(seed), dict[str, Array]()
    for name, tensor in program.inputs.items():
        if tensor.dtype == "float32":
            found[name] = draw.standard_normal(tensor.dims).astype("float32")
        else:
            ends = np.iinfo(tensor.dtype)
            found[name] = draw.integers(ends.min, ends.max + 1, tensor.dims).astype(tensor.dtype)
    return found


def results(program: Program, constants: Mapping[str, Array], inputs: Mapping[str, Array]) -> list[Array]:
    (found,) = gl.evaluate([program.term], {**constants, **inputs})
    return [*found] if isinstance(program.term.type, TupleType) else [found]


def as_bytes(network: IntegerNetwork, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Converts inputs, real numbers or integers of the file, to the bytes of a network."""
    return {
        name: np.clip(np.rint(inputs[name] / np.float32(scale)) + zero, -128, 127).astype(np.int8)
        for name, (scale, zero) in network.inputs.items()
    }


def computed(network: IntegerNetwork, inputs: Mapping[str, Array]) -> list[Array]:
    """Returns the real numbers that the results of a network represent, float64."""
    found = results(network.program, network.constants, as_bytes(network, inputs))
    return [(np.asarray(x, np.float64) - zero) * scale for x, (scale, zero) in zip(found, network.outputs, strict=True)]


def by_layers(network: IntegerNetwork, inputs: Mapping[str, Array]) -> None:
    """Computes every layer in numpy: its sums, requantized to bytes, which the next layers read."""
    values = {**network.constants, **as_bytes(network, inputs)}
    done: dict[Any, Array] = {}
    for layer in network.layers:
        assert network.program.layers.get(layer.name) is (None if layer.greatest else layer.sums)
        (sums,) = gl.evaluate([layer.sums], values, given=done)
        (result,) = gl.evaluate([layer.result], values, given=done)
        bias = 0 if layer.bias is None else layer.bias
        if layer.requantised is None:
            want = np.asarray(sums) + bias
        else:
            r = layer.requantised
            assert r.bias.dtype == np.int32
            assert r.scale.dtype == np.float32
            rounded = np.rint((np.asarray(sums) + r.bias).astype(np.float32) * r.scale)
            want = np.clip(rounded.astype(np.int64) + r.zero, r.low, r.high)
            want = want if r.table is None else r.table[want]
        assert np.array_equal(want, result)
        done[layer.result] = np.asarray(result)
    (chained,) = gl.evaluate([network.program.term], values, given=done)
    (alone,) = gl.evaluate([network.program.term], values)
    parts = zip(chained, alone, strict=True) if isinstance(chained, tuple) else [(chained, alone)]
    assert all(np.array_equal(a, b) for a, b in parts)
