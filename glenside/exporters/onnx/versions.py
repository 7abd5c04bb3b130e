"""Versions of standard operators: which mean the same, and nodes of older ones as those of today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from glenside.exporters.onnx.graph import OPSET
from glenside.importers.onnx.opaque import BlackBox, read_key
from glenside.importers.onnx.tensors import element_type
from glenside.ir.types import AccessType

if TYPE_CHECKING:
    import onnx


@cache
def since(op: str, version: int) -> int:
    """The version that brought a standard operator as it is in another version."""
    import onnx

    try:
        return int(onnx.defs.get_schema(op, version).since_version)
    except onnx.defs.SchemaError:
        return version


@cache
def means_the_same(op: str, version: int, later: int) -> bool:
    """Whether a node of one version is one of a later version too.

    From OPSET on, versions added dtypes, and attributes and inputs that one can do without, with few exceptions.
    """
    if since(op, version) == since(op, later):
        return True
    if not OPSET <= version < later:
        return False
    added = _added(op, version, later)
    return added is not None and not any(required for required in added.values())


@cache
def _added(op: str, version: int, later: int) -> dict[str, bool] | None:
    """Attributes that an operator got, and whether they are required; None where what it had is not as it was."""
    import onnx

    try:
        old, new = (onnx.defs.get_schema(op, v) for v in (version, later))
    except onnx.defs.SchemaError:
        return None
    had, have = ({n: (a.type, a.required, a.default_value) for n, a in s.attributes.items()} for s in (old, new))
    if any(have.get(name) != attribute for name, attribute in had.items()):
        return None
    for before, after in ((old.inputs, new.inputs), (old.outputs, new.outputs)):
        formals = [[(formal.name, formal.option) for formal in each] for each in (before, after)]
        if formals[0] != formals[1][: len(formals[0])]:
            return None
    return {name: bool(required) for name, (_, required, _) in have.items() if name not in had}


def _only_got_dtypes(op: str, version: int) -> bool:
    """Whether an operator is as of OPSET what it was, but for dtypes that it takes."""
    return since(op, version) == since(op, OPSET) or _added(op, version, OPSET) == {}


@lru_cache(maxsize=4096)
def at_opset(key: str, operands: tuple[AccessType, ...]) -> tuple[BlackBox, tuple[Any, ...]] | None:
    """The node of a key, where it was older as of OPSET, and the arrays of inputs that it got for attributes.

    These come after the operands. Which node that is, the converter of the package onnx says; None where it is no node
    of the same operator.
    """
    box = read_key(key)
    op = box.node.op_type
    if box.node.domain not in ("", "ai.onnx") or box.version >= OPSET:
        return box, ()
    if box.version < 11 and op in ("Upsample", "Resize"):
        return _resized(box)
    if _only_got_dtypes(op, box.version):
        return replace(box, version=OPSET), ()
    converted = _converted(box, operands)
    if converted is None:
        return None
    import onnx

    known = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in converted.graph.initializer}
    nodes = []
    for node in converted.graph.node:
        if node.op_type == "Constant" and [a.name for a in node.attribute] == ["value"]:
            known[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        else:
            nodes.append(node)
    if len(nodes) != 1 or nodes[0].op_type != op or len(nodes[0].output) != len(box.node.output):
        return None
    (node,) = nodes
    order = [name for name in node.input if name]
    own, added = [name for name in order if name not in known], [name for name in order if name in known]
    if order != [*own, *added] or own != [name for name in box.node.input if name]:
        return None
    return BlackBox(node, OPSET, box.output), tuple(known[name] for name in added)


def _resized(box: BlackBox) -> tuple[BlackBox, tuple[Any, ...]] | None:
    """Resize as it was before it had modes for coordinates: the converter takes its places for others."""
    import onnx

    names, mode = [*box.node.input], onnx.helper.get_node_attr_value
    if len(names) != 2:
        return None  # scales were an attribute
    kind = next((mode(box.node, a.name).decode() for a in box.node.attribute if a.name == "mode"), "nearest")
    how = {"mode": kind, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    node = onnx.helper.make_node("Resize", [names[0], "", names[1]], [*box.node.output], **how)
    return BlackBox(node, OPSET, box.output), ()


def _converted(box: BlackBox, operands: Sequence[AccessType]) -> onnx.ModelProto | None:
    import onnx

    helper = onnx.helper
    names = [name for name in box.node.input if name]
    inputs = [
        helper.make_tensor_value_info(name, element_type(kind.dtype), list(kind.dims))
        for name, kind in zip(names, operands, strict=True)
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in box.node.output if name]
    graph = helper.make_graph([box.node], "node", inputs, outputs)
    try:
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", box.version)])
        return onnx.version_converter.convert_version(model, OPSET)
    except (ValueError, RuntimeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
