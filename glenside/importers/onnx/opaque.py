"""Operators without a meaning here, kept as black boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glenside.importers.onnx.node import Node
from glenside.importers.onnx.values import Value
from glenside.ir.errors import BadInput


def black_box(node: Node, proto: Any) -> Sequence[Value]:
    """The outputs of a node as uninterpreted functions of its inputs."""
    raise BadInput(f"the operator {node.op_type} cannot be kept as a black box yet")
