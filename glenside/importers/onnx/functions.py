"""Composite operators as ONNX itself defines them: the bodies of functions, a model's own and the standard's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from glenside.importers.onnx.attributes import Attribute, decoded, encoded
from glenside.importers.onnx.checks import FunctionName, function_name
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.tensors import element_type
from glenside.importers.onnx.values import Items, Value
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened


@dataclass(frozen=True)
class Body:
    """A function: nodes between named inputs and outputs; `standard` are values of attributes that are not given."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: Sequence[Any]
    versions: Mapping[str, int]
    standard: Mapping[str, Attribute] = field(default_factory=dict)


def body_of(function: Any, standard: Mapping[str, Attribute] | None = None) -> Body:
    """The body that a FunctionProto holds."""
    versions = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import}
    own = {a.name: decoded(a) for a in function.attribute_proto}
    inputs, outputs = list(function.input), list(function.output)
    return Body(inputs, outputs, list(function.node), versions, {**(standard or {}), **own})


def function_body(functions: Mapping[FunctionName, Any], proto: Any) -> Body | None:
    """The function of the model that a node calls, or None."""
    function = functions.get(function_name(proto))
    return None if function is None else body_of(function)


def standard_body(node: Node, proto: Any) -> Body | None:
    """The expansion of an operator in ONNX's own definition, or None where it has none."""
    import onnx

    try:
        schema = onnx.defs.get_schema(node.op_type, node.version, node.domain)
    except onnx.defs.SchemaError:
        return None
    standard = {
        name: decoded(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    if schema.has_context_dependent_function:
        function = _dependent(schema, node, _bound(node, proto))
    elif schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= node.version] or [schema.since_version]
        function = schema.get_function_with_opset_version(max(versions))
    else:
        return None
    if function is None:
        return None
    parsed = function if isinstance(function, onnx.FunctionProto) else onnx.FunctionProto.FromString(function)
    body = body_of(parsed, standard)
    return Body(body.inputs, body.outputs, body.nodes, {**node.scope.versions, **body.versions}, body.standard)


def _bound(node: Node, proto: Any) -> Any:
    """The node with values for those of its attributes that refer to the function around it."""
    import onnx

    result = onnx.NodeProto()
    result.CopyFrom(proto)
    del result.attribute[:]
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            result.attribute.append(attribute)
        elif attribute.name in node.attributes:
            result.attribute.append(encoded(attribute.name, node.attributes[attribute.name], attribute.type))
    return result


def _dependent(schema: Any, node: Node, proto: Any) -> Any:
    """The body of a function that depends on the types of its inputs."""
    types = [_type(value) for value in node.inputs]
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.version]
    version = max(versions, default=schema.since_version)
    try:
        return schema.get_context_dependent_function_with_opset_version(version, proto.SerializeToString(), types)
    except RuntimeError as error:  # onnx writes the names of the node into a text, and reads that
        reason = " ".join(str(error).split())
        raise BadInput(f"ONNX's definition of {node.op_type} does not fit the node: {shortened(reason)}") from None


def _type(value: Value) -> bytes:
    import onnx

    if value is None:
        kind = onnx.TypeProto()
    elif isinstance(value, Items):
        kind = onnx.helper.make_tensor_type_proto(element_type(value.dtype), None)
        kind = onnx.helper.make_sequence_type_proto(kind)
    else:
        access = value.access
        kind = onnx.helper.make_tensor_type_proto(element_type(access.dtype), list(access.dims))
    return bytes(kind.SerializeToString())
