"""Imports blocked layouts of channels, which onnxruntime's optimizer writes for the processor that it runs on.

Here tensors keep the layout (N C d..): a reordering pads the channels to whole blocks, or removes the padding. Only
weights, which the file stores in blocks, are transposed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np

from glenside.builder.layout import pad, reshape, slice_axis, transpose
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.operators.com_microsoft.products import channels_first, channels_last, fused_conv
from glenside.importers.onnx.operators.pools import average_pool, max_pool, of_channels
from glenside.importers.onnx.operators.resizing import resize
from glenside.ir.errors import BadInput
from glenside.ir.term import Term

DOMAIN = "com.microsoft.nchwc"
blocked_operator = partial(onnx_operator, domain=DOMAIN)
ALIGNMENT = 4
"""onnxruntime blocks channels in multiples of this."""


@cache
def block_size() -> int:
    """Returns the channels per block on this processor, which no file contains. Raises BadInput without onnxruntime."""
    try:
        import onnxruntime
    except ImportError:
        raise BadInput(
            "the size of a block requires the package onnxruntime on the machine that wrote the file"
        ) from None
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, ALIGNMENT, 1, 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("ReorderInput", ["x"], ["y"], domain=DOMAIN)], "graph", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.zeros((1, ALIGNMENT, 1, 1), np.float32)})
    return int(result.shape[1])


@blocked_operator("ReorderInput")
def reorder_input(node: Node) -> Term:
    x = channels_first(node.term(0)) if node.integer("channels_last", 0) else node.term(0)
    return pad(x, [(0, 0), (0, -x.access.dims[1] % block_size()), *[(0, 0)] * (x.access.rank - 2)])


@blocked_operator("ReorderOutput")
def reorder_output(node: Node) -> Term:
    x, channels = node.term(0), node.integer("channels", 0)
    if not 1 <= channels <= x.access.dims[1]:
        raise BadInput(f"attribute channels requires 1 to {x.access.dims[1]}, got {channels}")
    y = slice_axis(x, 1, 0, channels)
    return channels_last(y) if node.integer("channels_last", 0) else y


def in_order(node: Node, w: Term) -> Term:
    """Unblocks weights ()(O I k..) that are stored as blocks of O, or of O and I if I has at least one block."""
    block, (outputs, inputs, *kernel) = block_size(), w.access.dims
    if outputs % block or (inputs >= block and inputs % block):
        raise BadInput(f"input 1 requires blocks of {block} channels, as this processor has them, got {w.access}")
    if inputs < block:
        parts = reshape(w, (outputs // block, inputs, *kernel, block))
        order = (0, len(kernel) + 2, *range(1, len(kernel) + 2))
    else:
        parts = reshape(w, (outputs // block, inputs // block, *kernel, block, block))
        last = len(kernel) + 2
        order = (0, last + 1, 1, last, *range(2, last))
    return reshape(transpose(parts, order), w.access.dims)


@blocked_operator("Conv")
def blocked_conv(node: Node) -> Term:
    weights = in_order(node, node.term(1))
    return fused_conv(replace(node, inputs=(node.inputs[0], weights, *node.inputs[2:])))


@blocked_operator("MaxPool")
def blocked_max_pool(node: Node) -> Term:
    return max_pool(node)[0]


blocked_operator("AveragePool")(average_pool)


@blocked_operator("GlobalMaxPool", "GlobalAveragePool")
def blocked_global_pool(node: Node) -> Term:
    return of_channels("reduce-max" if node.op_type == "GlobalMaxPool" else "reduce-mean", node.term(0))


@blocked_operator("Upsample")
def blocked_upsample(node: Node) -> Term:
    scales = node.constant(np.array(node.integers("scales", []), np.float32), f"{node.name}.scales")
    names = "mode", "coordinate_transformation_mode"
    given = {name: node.attributes[name] for name in names if name in node.attributes}
    standard = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    inputs = (node.inputs[0], None, scales)
    return resize(replace(node, domain="", version=13, inputs=inputs, attributes={**standard, **given}))
