"""Builds ONNX models that no checker has seen, with the message that refuses each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from onnx import TensorProto, helper

from glenside.importers.onnx import program_of_model
from glenside.ir.errors import BadInput

FLOAT = TensorProto.FLOAT


def info(name: str, dims: Sequence[int | str | None] | None = (2, 3), dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, dims)


def model(
    *nodes: Any, inputs: Sequence[Any] = (info("x"),), outputs: Sequence[str] = ("y",), opset: int = 17, **kw: Any
) -> Any:
    """Returns a model with the output y, without ONNX's checker."""
    functions, domains = kw.pop("functions", ()), kw.pop("domains", ())
    graph = helper.make_graph(nodes, "graph", inputs, [info(name, None) for name in outputs], **kw)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def node(op: str, inputs: str = "x", outputs: str = "y", name: str | None = "here", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(","), outputs.split(","), name, **attributes)


def refusal(made: Any, **arguments: Any) -> str:
    """Returns the one sentence with which the model is refused."""
    with pytest.raises(BadInput) as raised:
        program_of_model(made, **arguments)
    message = str(raised.value)
    assert message.isprintable()
    assert len(message) < 400
    return message


def tensor(name: str = "w", dims: Sequence[int] = (2, 3), dtype: int = FLOAT, **fields: Any) -> Any:
    return TensorProto(name=name, dims=dims, data_type=dtype, **fields)
