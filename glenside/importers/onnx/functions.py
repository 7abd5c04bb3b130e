"""Finds the bodies of functions: those that a model declares, and ONNX's own definitions of composite operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from glenside.importers.onnx.node import Attribute, Items, Node, Value
from glenside.importers.onnx.schema import decoded, given_attributes
from glenside.importers.onnx.tensors import element_type
from glenside.ir.bounds import MOST_NODES
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened

FunctionName = tuple[str, str, str]
"""The domain, the name and the overload of a function."""


def plain_domain(domain: str) -> str:
    """Returns the canonical name of a domain: the standard one has two names."""
    return "" if domain == "ai.onnx" else domain


def function_name(proto: Any) -> FunctionName:
    """Returns the function that a node calls if the model declares it."""
    return plain_domain(proto.domain), proto.op_type, proto.overload


@dataclass(frozen=True)
class Body:
    """A FunctionProto, the versions of its operators, and the default values of its attributes."""

    function: Any
    versions: Mapping[str, int]
    standard: Mapping[str, Attribute]


def functions_of(model: Any) -> Mapping[FunctionName, Any]:
    """Returns the functions of a model by name. Raises BadInput for two functions of one name, and for a function that
    calls itself.
    """
    functions: dict[FunctionName, Any] = {}
    for function in model.functions:
        name = (plain_domain(function.domain), function.name, function.overload)
        if name in functions:
            raise BadInput(f"function {_spelled(name)} is declared twice")
        functions[name] = function
        made = {output for node in function.node for output in node.output}.union(function.input)
        for output in function.output:
            if output not in made:
                raise BadInput(f"output {shortened(output, True)} of function {_spelled(name)} is made by no node")
        for formal, count in Counter(function.input).items():
            if count > 1:
                raise BadInput(f"function {_spelled(name)} has two inputs of the name {shortened(formal, True)}")
    if functions:
        _check_calls(functions)
    return functions


def _spelled(name: FunctionName) -> str:
    return shortened(".".join(filter(None, name)))


def _check_calls(functions: Mapping[FunctionName, Any]) -> None:
    """Raises BadInput for a function that calls itself, or that is too long including the functions that it calls."""
    import networkx

    calls = {
        name: [c for c in map(function_name, all_nodes(f.node)) if c in functions] for name, f in functions.items()
    }
    graph = networkx.DiGraph(calls)
    if not networkx.is_directed_acyclic_graph(graph):
        (first, _), *_ = networkx.find_cycle(graph)
        raise BadInput(f"function {_spelled(first)} calls itself, which ONNX does not allow")
    lengths: dict[FunctionName, int] = {}
    for name in reversed(list(networkx.topological_sort(graph))):
        # An untaken branch may be dropped once the condition is known.
        own = [function_name(node) for node in functions[name].node]
        lengths[name] = sum(1 + lengths.get(called, 0) for called in own)
        if lengths[name] > MOST_NODES:
            words = f"has more than {MOST_NODES} nodes, those of what it calls included"
            raise BadInput(f"function {_spelled(name)} {words}; a model may have no more")


def all_nodes(nodes: Any) -> Iterator[Any]:
    """Yields the nodes, and the nodes of their subgraphs."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                stack += graph.node


def body_of(function: Any) -> Body:
    """Returns the body of a FunctionProto."""
    versions = {plain_domain(opset.domain): opset.version for opset in function.opset_import}
    standard = {attribute.name: decoded(attribute) for attribute in function.attribute_proto}
    return Body(function, versions, standard)


def standard_body(node: Node, proto: Any) -> Body | None:
    """Returns ONNX's own definition of an operator as a body, or None."""
    import onnx

    try:
        schema = onnx.defs.get_schema(node.op_type, node.version, node.domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_context_dependent_function:
        function = _dependent(schema, node, proto)
    elif schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= node.version] or [schema.since_version]
        function = schema.get_function_with_opset_version(max(versions))
    else:
        return None
    if function is None:
        return None
    function = function if isinstance(function, onnx.FunctionProto) else onnx.FunctionProto.FromString(function)
    if node.op_type == "AffineGrid":
        _keep_batch_of_one(function)
    body = body_of(function)
    defaults = [attribute.default_value for attribute in schema.attributes.values()]
    standard = {default.name: decoded(default) for default in defaults if default.name}
    return replace(body, versions={**node.scope.versions, **body.versions}, standard={**standard, **body.standard})


def _keep_batch_of_one(function: Any) -> None:
    """Gives their axis to the two Squeeze of ONNX's AffineGrid without one, which remove a batch of 1 as well."""
    for node in all_nodes(function.node):
        if node.op_type == "Squeeze" and [*node.input] in (["r1"], ["r2"]):
            node.input.append("one_1d")


def _dependent(schema: Any, node: Node, proto: Any) -> Any:
    """Returns the body of a function that depends on the types of its inputs."""
    bound = type(proto)()
    bound.CopyFrom(proto)
    del bound.attribute[:]
    bound.attribute.extend(given_attributes(proto, node.attributes))
    types = [_type(value) for value in node.inputs]
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.version]
    version = max(versions, default=schema.since_version)
    try:
        return schema.get_context_dependent_function_with_opset_version(version, bound.SerializeToString(), types)
    except RuntimeError as error:  # onnx formats the node's names into a text and parses it
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
