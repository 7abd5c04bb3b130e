"""Checks a model as a whole before its nodes are imported, and checks options that a user gives for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glenside.importers.onnx.functions import plain_domain
from glenside.ir.bounds import is_whole
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened

Shapes = Mapping[str, Sequence[int]]


def check_model(model: Any) -> None:
    """Raises BadInput if the model is invalid, of an unknown version, or has a name that is not text."""
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
    """Checks that all texts are UTF-8, since protobuf returns others as bytes without an error."""
    stack = [model]
    while stack:
        message = stack.pop()
        if message.DESCRIPTOR.name == "TensorProto":  # its data may be large, and are not checked
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


def dimension_names(graph: Any, allow_opaque: bool = False) -> list[str]:
    """Returns the names of open dimensions of inputs, and with black boxes of declared results too."""
    sized = (*graph.input, *graph.value_info, *graph.output) if allow_opaque else graph.input
    return sorted({d.dim_param for i in sized for d in i.type.tensor_type.shape.dim if d.dim_param})


def check_given(
    graph: Any, dims: Mapping[str, int], shapes: Shapes, allow_opaque: bool, values: Mapping[str, Any]
) -> None:
    """Checks that sizes and values that a user gives name inputs or dimensions of the model.

    The results of black boxes have the sizes that the model declares, which may have names of their own.
    """
    initialized = {tensor.name for tensor in graph.initializer}
    inputs = [formal.name for formal in graph.input if formal.name not in initialized]
    named = dimension_names(graph, allow_opaque)
    every = [formal.name for formal in graph.input]
    for kind, given, known in (("a shape", shapes, inputs), ("a size", dims, named), ("a value", values, every)):
        for name in given:
            if name not in known:
                what = "dimension" if kind == "a size" else "input"
                words = ", ".join([*map(shortened, known[:8]), *[".."] * (len(known) > 8)]) or "none"
                raise BadInput(f"{kind} is given for {shortened(name)}, but the {what}s of the model are {words}")
    for name, sizes in (*shapes.items(), *((name, [size]) for name, size in dims.items())):
        if isinstance(sizes, str) or not isinstance(sizes, Sequence):
            raise BadInput(f"{shortened(name)} requires a list of sizes, got {sizes!r}")
        for size in sizes:
            if not is_whole(size) or size < 0:
                raise BadInput(f"{shortened(name)} requires sizes of at least 0, got {size!r}")
