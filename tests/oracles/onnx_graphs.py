"""Builds ONNX models node by node, as exporters write them: named nodes, weights as raw bytes, open dims by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Size = int | str | None


class Graph:
    """A graph under construction. Methods return the name of a value."""

    def __init__(self, name: str, *, opset: int = 17, seed: int = 0) -> None:
        self.name, self.opset = name, opset
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def input(self, name: str, dims: Sequence[Size], dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def tensor(self, value: Any, name: str | None = None) -> str:
        """Adds an initializer; numbers of Python are int64 or float32."""
        array = np.asarray(value)
        if not isinstance(value, np.ndarray | np.generic):
            array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        name = name or f"onnx::const_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, *dims: int, scale: float | None = None) -> str:
        """Adds random weights, scaled so that the numbers of a network stay moderate."""
        spread = scale if scale is not None else 1 / math.sqrt(max(1, math.prod(dims[1:])))
        return self.tensor((self.random.standard_normal(dims) * spread).astype(np.float32), name)

    def positive(self, name: str, *dims: int) -> str:
        """Adds random positive numbers, such as variances and gains: from 0.5 to 1.5."""
        return self.tensor(self.random.uniform(0.5, 1.5, dims).astype(np.float32), name)

    def constant(self, value: Any) -> str:
        """Adds a number as a Constant node, as PyTorch does."""
        array = np.asarray(value)
        if not isinstance(value, np.ndarray | np.generic):
            array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        return self.node("Constant", value=numpy_helper.from_array(array))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.several(1, op, *inputs, **attributes)[0]

    def several(self, outputs: int, op: str, *inputs: str, **attributes: Any) -> list[str]:
        """Adds a node with several outputs."""
        label = f"/{op}_{len(self.nodes)}"
        names = [f"{label}_output_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, label, **attributes))
        return names

    def model(self, outputs: Mapping[str, int], *, integers: Sequence[str] = ()) -> onnx.ModelProto:
        """Returns the checked model with outputs of these ranks, float32 unless listed as int64."""
        infos = [
            helper.make_tensor_value_info(
                name,
                TensorProto.INT64 if name in integers else TensorProto.FLOAT,
                [f"{name}_dim_{i}" for i in range(rank)],
            )
            for name, rank in outputs.items()
        ]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, infos, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(made)
        return made

    # What PyTorch's exporter writes for its modules.

    def conv(self, x: str, name: str, filters: int, channels: int, k: int = 3, *, bias: bool = True, **kw: Any) -> str:
        """Adds a convolution with a square window; padding keeps the size unless `pad` is given."""
        groups, stride, pad = kw.pop("groups", 1), kw.pop("stride", 1), kw.pop("pad", k // 2)
        weights = [self.weight(f"{name}.weight", filters, channels // groups, k, k)]
        if bias:
            weights.append(self.weight(f"{name}.bias", filters, scale=0.1))
        return self.node(
            "Conv", x, *weights, kernel_shape=[k, k], pads=[pad] * 4, strides=[stride] * 2, dilations=[1, 1],
            group=groups,
        )  # fmt: skip

    def batch_norm(self, x: str, name: str, channels: int) -> str:
        gamma, var = (self.positive(f"{name}.{part}", channels) for part in ("weight", "running_var"))
        beta, mean = (self.weight(f"{name}.{part}", channels, scale=0.1) for part in ("bias", "running_mean"))
        return self.node("BatchNormalization", x, gamma, beta, mean, var, epsilon=1e-5, momentum=0.9)

    def linear(self, x: str, name: str, outputs: int, inputs: int) -> str:
        """Adds a linear layer on more than two axes: MatMul and Add, the bias first."""
        product = self.node("MatMul", x, self.weight(f"{name}.weight", inputs, outputs, scale=inputs**-0.5))
        return self.node("Add", self.weight(f"{name}.bias", outputs, scale=0.1), product)

    def size(self, x: str, axis: int) -> str:
        """Adds nodes that read one dim of a tensor, as the shape arithmetic of a traced model does."""
        return self.node("Gather", self.node("Shape", x), self.constant(axis), axis=0)

    def dims(self, *sizes: str | int) -> str:
        """Adds a shape concatenated from numbers."""
        axes = self.tensor([0])
        parts = [
            self.node("Unsqueeze", s, axes) if isinstance(s, str) else self.constant(np.array([s], np.int64))
            for s in sizes
        ]
        return self.node("Concat", *parts, axis=0)

    def gelu(self, x: str) -> str:
        """Adds the exact GELU in parts, as exports before opset 20 have it."""
        erf = self.node("Erf", self.node("Div", x, self.constant(math.sqrt(2))))
        doubled = self.node("Mul", x, self.node("Add", erf, self.constant(1.0)))
        return self.node("Mul", doubled, self.constant(0.5))

    def layer_norm(self, x: str, name: str, depth: int, *, parts: bool = False) -> str:
        """Adds a layer norm: one node, or in parts as exports before opset 17 have it."""
        gamma, beta = self.positive(f"{name}.weight", depth), self.weight(f"{name}.bias", depth, scale=0.1)
        if not parts:
            return self.node("LayerNormalization", x, gamma, beta, axis=-1, epsilon=1e-5)
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        variance = self.node("ReduceMean", self.node("Pow", centred, self.constant(2.0)), axes=[-1])
        deviation = self.node("Sqrt", self.node("Add", variance, self.constant(1e-5)))
        return self.node("Add", self.node("Mul", self.node("Div", centred, deviation), gamma), beta)
