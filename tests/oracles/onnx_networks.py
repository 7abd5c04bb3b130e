"""Builds whole networks as ONNX models, small and of full size, with inputs; also those of the onnx package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_images as images
import onnx_sequences as sequences
import onnxruntime
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Network:
    """A builder function with its arguments; `dims` are sizes of open dimensions, `highest` bounds integer inputs."""

    make: Callable[..., onnx.ModelProto]
    small: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    highest: int = 2
    exact: bool = False


SMALL_BERT = {"layers": 2, "hidden": 24, "heads": 3, "intermediate": 40, "vocabulary": 31, "positions": 12}
TEXT = {"batch": 2, "sequence": 9}


def _super_resolution(**arguments: Any) -> Network:
    return Network(images.super_resolution, {"height": 6, "width": 10, "channels": 8, **arguments}, {"N": 1})


NETWORKS: dict[str, Network] = {
    "mobilenet_v2": Network(images.mobilenet_v2, {"width": 0.25, "resolution": 64, "classes": 5}, {"batch": 2}),
    "residual": Network(images.residual, {"blocks": 6, "resolution": 8}, {"N": 2}),
    "quantised": Network(images.quantised, exact=True),
    "quantised_qdq": Network(images.quantised_qdq, dims={"N": 3}, exact=True),
    "unet": Network(images.unet, dims={"N": 1}),
    "pooling": Network(images.pooling),
    "maxvit": Network(images.maxvit, {"counts": (2, 1)}),
    "mobilevit": Network(images.mobilevit, {"encoders": (1,), "size": 4}),
    "bert": Network(sequences.bert, SMALL_BERT, TEXT),
    "bert_whole_norms": Network(sequences.bert, {**SMALL_BERT, "norm_in_parts": False}, TEXT),
    "vit": Network(
        sequences.vit,
        {"layers": 2, "hidden": 20, "heads": 4, "patch": 8, "resolution": 24, "classes": 5},
        {"batch": 2},
    ),
    "lstm_tagger": Network(sequences.lstm_tagger, dims={"batch": 3, "length": 7}, highest=50),
    "super_resolution": _super_resolution(),
    "super_resolution_dcr": _super_resolution(mode="DCR"),
    "super_resolution_nhwc": _super_resolution(layout="NHWC"),
    "super_resolution_nhwc_each": _super_resolution(layout="NHWC-each", mode="DCR"),
    "super_resolution_relu": _super_resolution(relu_after_shuffle=True),
    "super_resolution_nhwc_each_relu": _super_resolution(layout="NHWC-each", relu_after_shuffle=True),
}

LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))
"""Networks of the onnx package in full size, with random weights."""


def weighted(path: Path) -> onnx.ModelProto:
    """Returns a network of the onnx package with random weights; its own weights are all one number, which hides
    permutations. A softmax at the end is removed, because it saturates to 0 and 1.

    A softmax at the end is left out: it makes 0 and 1 of what comes before it.
    """
    model, random = onnx.load(path), np.random.default_rng(0)
    shapes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = []
    last = model.graph.node[-1]
    if last.op_type == "Softmax":
        model.graph.output[0].name = last.input[0]
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            nodes += [node] if node is not last or last.op_type != "Softmax" else []
            continue
        dims = shapes[node.input[0]]
        if len(dims) == 1:
            value = random.uniform(0.5, 1.5, dims)
        else:
            value = random.standard_normal(dims, np.float32) * np.float32((2 / np.prod(dims[1:])) ** 0.5)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def small(name: str) -> onnx.ModelProto:
    """Returns a small network by name."""
    network = NETWORKS[name]
    return network.make(**network.small)


def random_inputs(model: onnx.ModelProto, dims: Mapping[str, int], *, highest: int = 2, seed: int = 0) -> Arrays:
    """Draws an array for every input without an initializer."""
    random = np.random.default_rng(seed)
    initialized = {tensor.name for tensor in model.graph.initializer}
    arrays = {}
    for formal in model.graph.input:
        if formal.name in initialized:
            continue
        tensor = formal.type.tensor_type
        shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "f":
            arrays[formal.name] = random.standard_normal(shape).astype(dtype)
        else:
            arrays[formal.name] = random.integers(0, highest, shape).astype(dtype)
    return arrays


def run_onnxruntime(model: onnx.ModelProto | str, inputs: Arrays) -> list[NDArray[Any]]:
    """Returns the outputs of onnxruntime for the file, without its optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    source = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, dict(inputs))]
