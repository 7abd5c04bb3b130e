"""Relates versions of standard operators: which have the same meaning, and how older nodes are converted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from glenside.exporters.onnx.graph import OPSET
from glenside.importers.onnx.opaque import BlackBox, read_key
from glenside.importers.onnx.tensors import element_type
from glenside.ir.errors import GlensideError
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.ir.types import AccessType
from glenside.semantics.interpreter import evaluate

if TYPE_CHECKING:
    import onnx

Given: TypeAlias = AccessType | Term
"""The type of an operand, or the term of one that is numbers."""


@cache
def since(op: str, version: int) -> int:
    """Returns the version that introduced a standard operator's definition in `version`."""
    import onnx

    try:
        return int(onnx.defs.get_schema(op, version).since_version)
    except onnx.defs.SchemaError:
        return version


@cache
def means_the_same(op: str, version: int, later: int) -> bool:
    """True if a node of one version has the same meaning in a later version.

    From OPSET on, versions only added dtypes and optional attributes and inputs, with few exceptions.
    """
    if since(op, version) == since(op, later):
        return not _is_deprecated(op, later)
    if not OPSET <= version < later:
        return False
    added = _added(op, version, later)
    return added is not None and not any(required for required in added.values())


_BROADCASTS = 9
"""The version from which all operators broadcast as today, PRelu last: before, nodes of one schema may differ."""
_READ_OTHERWISE = {"STFT": {"onesided": 1}}
"""Operator -> attributes whose default ONNX's shape inference gets wrong: they are written explicitly."""
_SAME_SCHEMA_OTHER_MEANING = {
    ("GroupNormalization", 18, 21),  # scale and bias had an element per group, and now have one per channel
}
"""(operator, version, later version) with equal attributes, inputs and outputs, but another meaning."""


@cache
def _is_deprecated(op: str, version: int) -> bool:
    import onnx

    return bool(onnx.defs.has(op, version, "") and onnx.defs.get_schema(op, version).deprecated)


@cache
def _added(op: str, version: int, later: int) -> dict[str, bool] | None:
    """Returns added attributes -> True if required; None if older ones changed."""
    import onnx

    try:
        old, new = (onnx.defs.get_schema(op, v) for v in (version, later))
    except onnx.defs.SchemaError:
        return None
    if new.deprecated or (op, old.since_version, new.since_version) in _SAME_SCHEMA_OTHER_MEANING:
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
    """True if an operator has been unchanged since OPSET, except for the dtypes that it takes."""
    if _is_deprecated(op, OPSET):
        return False
    return since(op, version) == since(op, OPSET) or _added(op, version, OPSET) == {}


@lru_cache(maxsize=4096)
def at_opset(key: str, operands: tuple[Given, ...]) -> tuple[BlackBox, tuple[Any, ...]] | None:
    """Returns the node of a key as of OPSET, and the arrays of the inputs that replace its former attributes.

    These come after the operands. The converter of the package onnx proposes a node; it is used only if the importer
    reads the same term from both. None if it proposes no node of the same operator, or the operator is deprecated.

    operands  their types, or the terms of those that are numbers
    """
    box = read_key(key)
    op = box.node.op_type
    if box.node.domain not in ("", "ai.onnx"):
        return box, ()
    if box.version >= OPSET:
        return None if _is_deprecated(op, box.version) else (box, ())
    for name, value in _READ_OTHERWISE.get(op, {}).items():
        if all(attribute.name != name for attribute in box.node.attribute):
            import onnx

            box.node.attribute.append(onnx.helper.make_attribute(name, value))
    if _only_got_dtypes(op, box.version):
        found: tuple[BlackBox, tuple[Any, ...]] | None = replace(box, version=OPSET), ()
        if box.version >= _BROADCASTS:
            return found
    else:
        found = _resized(box) if box.version < 11 and op in ("Upsample", "Resize") else _upgraded(box, operands)
    return found if found is not None and _reads_the_same(box, *found, operands) else None


@lru_cache(maxsize=4096)
def is_valid(key: str, operands: tuple[AccessType, ...], result: AccessType) -> bool:
    """True if ONNX infers no other type for the output of a node than that; false where it refuses its operands."""
    import onnx

    box = read_key(key)
    names = [name for name in box.node.input if name]
    inputs = [
        onnx.helper.make_tensor_value_info(name, element_type(own.dtype), list(own.dims))
        for name, own in zip(names, operands, strict=True)
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in box.node.output if name]
    graph = onnx.helper.make_graph([box.node], "node", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", box.version)])
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError):
        return False
    name = box.node.output[box.output]
    kind = next(output.type.tensor_type for output in inferred.graph.output if output.name == name)
    if kind.elem_type and kind.elem_type != element_type(result.dtype):
        return False
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    known = kind.HasField("shape")
    return not known or (
        len(sizes) == result.rank and all(n in (None, size) for n, size in zip(sizes, result.dims, strict=True))
    )


def _reads_the_same(old: BlackBox, new: BlackBox, added: Sequence[Any], operands: Sequence[Given]) -> bool:
    """True if the importer reads the same terms from both nodes."""
    first, second = _read(old, operands, ()), _read(new, operands, added)
    return first is not None and first is second


def _read(box: BlackBox, operands: Sequence[Given], added: Sequence[Any]) -> Term | None:
    """Returns the term of a node; None if the importer refuses it."""
    import onnx

    from glenside.importers.onnx.model import program_of_model

    names = [name for name in box.node.input if name]
    inputs = [
        onnx.helper.make_tensor_value_info(name, element_type(own.dtype), list(own.dims))
        for name, own in zip(names, map(_type, operands), strict=False)
    ]
    known = [
        onnx.numpy_helper.from_array(array, name)
        for name, array in zip(names, [*map(_value, operands), *added], strict=True)
        if array is not None
    ]
    given = {tensor.name for tensor in known}
    outputs = [onnx.ValueInfoProto(name=name) for name in box.node.output if name]
    graph = onnx.helper.make_graph([box.node], "node", [i for i in inputs if i.name not in given], outputs, known)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", box.version)])
    try:
        return program_of_model(model).term
    except (GlensideError, ValueError):
        return None


def _type(operand: Given) -> AccessType:
    return operand.access if isinstance(operand, Term) else operand


def _value(operand: Given) -> Array | None:
    """Returns the array of an operand that is numbers."""
    if not isinstance(operand, Term):
        return None
    array: Array = evaluate([operand], {})[0]
    return array


def _upgraded(box: BlackBox, operands: Sequence[Given]) -> tuple[BlackBox, tuple[Any, ...]] | None:
    """Converts an older node with the converter of the package onnx."""
    op = box.node.op_type
    converted = _converted(box, [*map(_type, operands)])
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
    """Converts Resize from before it had coordinate modes, which the converter gets wrong."""
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
