"""What must hold of a model before any node of it is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.names import shortened

FunctionName = tuple[str, str, str]
"""The domain, the name and the overload of a function."""


def plain_domain(domain: str) -> str:
    """A domain's one name: the standard one has two."""
    return "" if domain == "ai.onnx" else domain


def function_name(proto: Any) -> FunctionName:
    """Which function a node calls, if the model declares it."""
    return plain_domain(proto.domain), proto.op_type, proto.overload


def check_model(model: Any) -> None:
    """Raise BadInput where the model is none, or not of a version that we know, or its names are no text."""
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise BadInput("is not an ONNX file: it holds no graph")
    _check_texts(model)
    if not model.graph.output:
        raise BadInput("the graph requires an output, got none")
    if not model.opset_import:
        raise BadInput("requires an opset, got none")
    _check_versions(model.opset_import)
    for function in model.functions:
        _check_versions(function.opset_import)


def _check_versions(opsets: Any) -> None:
    import onnx

    versions: dict[str, int] = {}
    for opset in opsets:
        domain = plain_domain(opset.domain)
        of = f" of the domain {shortened(domain, True)}" if domain else ""
        newest = (1 << 31) - 1 if domain else onnx.defs.onnx_opset_version()
        if not 1 <= opset.version <= newest:
            raise BadInput(f"requires an opset{of} from 1 to {newest}, got {opset.version}")
        if versions.setdefault(domain, opset.version) != opset.version:
            raise BadInput(f"requires one opset{of}, got {versions[domain]} and {opset.version}")


def _check_texts(model: Any) -> None:
    """protobuf hands over what is not UTF-8 as bytes, without a word; nothing after this has to think of that."""
    stack = [model]
    while stack:
        message = stack.pop()
        if message.DESCRIPTOR.name == "TensorProto":  # its data may be large, so they are not looked at
            fields = [("name", [message.name])]
            stack += message.external_data
        else:
            fields = [(field.name, _several(value)) for field, value in message.ListFields() if _text_or_message(field)]
        for name, values in fields:
            for value in values:
                if isinstance(value, bytes):
                    what = f"{message.DESCRIPTOR.name.removesuffix('Proto')} {name}"
                    raise BadInput(f"a name requires UTF-8 text, got {value[:20]!r} as {what}")
            stack += [value for value in values if not isinstance(value, str)]


UNREAD = ("doc_string", "metadata_props", "training_info", "quantization_annotation")


def _text_or_message(field: Any) -> bool:
    return field.type in (field.TYPE_STRING, field.TYPE_MESSAGE) and field.name not in UNREAD


def _several(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | bytes) or hasattr(value, "DESCRIPTOR") else list(value)


def functions_of(model: Any) -> Mapping[FunctionName, Any]:
    """The functions of a model by name. Raises BadInput for two of one name, and for one that calls itself."""
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
    _check_recursion(functions)
    return functions


def _spelled(name: FunctionName) -> str:
    return shortened(".".join(filter(None, name)))


def _check_recursion(functions: Mapping[FunctionName, Any]) -> None:
    calls = {name: [c for c in map(function_name, _nodes(f.node)) if c in functions] for name, f in functions.items()}
    done: set[FunctionName] = set()
    for root in functions:
        path: dict[FunctionName, Iterator[FunctionName]] = {root: iter(calls[root])}
        while path:
            name, rest = next(reversed(path.items()))
            called = next(rest, None)
            if called is None:
                done.add(name)
                del path[name]
            elif called in path:
                raise BadInput(f"function {_spelled(called)} calls itself, which ONNX does not allow")
            elif called not in done:
                path[called] = iter(calls[called])


def _nodes(nodes: Any) -> Iterator[Any]:
    """The nodes, and those of the graphs that they hold."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                stack += graph.node
