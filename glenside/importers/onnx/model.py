"""A model file: read, checked as a whole, and walked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.importers.onnx.functions import functions_of, plain_domain
from glenside.importers.onnx.graph import KnownValues, Scope
from glenside.importers.onnx.node import Items, Value
from glenside.importers.onnx.tensors import check_size, dtype_name
from glenside.ir.errors import BadInput
from glenside.ir.files import read_bytes
from glenside.ir.names import shortened
from glenside.ir.operand import Array
from glenside.ir.operators.requirements import spelled
from glenside.ir.packages import import_onnx
from glenside.ir.program import Program
from glenside.ir.term import Term, build

Shapes = Mapping[str, Sequence[int]]
Composed = Array | Sequence[Array] | None
"""A value that is a sequence or optional, as arrays."""

PROTOBUF = (1 << 31) - 1
"""What a protobuf message may have in bytes."""


def load_onnx(
    path: str | os.PathLike[str],
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
    allow_opaque: bool = False,
) -> Program:
    """The program of an ONNX file; `dims` gives sizes to names such as batch, `shapes` whole shapes to inputs.

    Several outputs are a tuple. Raises BadInput, with the path.
    """
    try:
        return program_of_model(
            read_model(path), dims=dims, shapes=shapes, folder=Path(path).parent, allow_opaque=allow_opaque
        )
    except BadInput as error:
        raise BadInput(f"{os.fspath(path)}: {error.message}") from None


def read_model(path: str | os.PathLike[str]) -> Any:
    """The ModelProto of a file, its external data left where they are. Raises BadInput."""
    onnx = import_onnx()
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        size = Path(path).stat().st_size
        if size > PROTOBUF:
            beside = "larger weights lie in files beside it"
            raise BadInput(f"has {size} bytes, and a protobuf file has at most {PROTOBUF}; {beside}")
        model.ParseFromString(read_bytes(path, PROTOBUF))
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except DecodeError:
        raise BadInput("is not an ONNX file, or is cut off, or nested deeper than protobuf reads") from None
    return model


def program_of_model(
    model: Any,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
    folder: Path | None = None,
    allow_opaque: bool = False,
    known: Mapping[str, Array] | None = None,
) -> Program:
    """The program of a ModelProto.

    known  values of inputs of this one run: what a node needs as a shape or an axis may depend on them

    Raises BadInput, which names the node.
    """
    values, _, builder = outputs_of_model(model, dims or {}, shapes or {}, folder, allow_opaque, known or {})
    terms = [_tensor(value) for value in values]
    term = terms[0] if len(terms) == 1 else build("construct-tuple", *terms)
    return builder.finish(term)


def outputs_of_model(
    model: Any,
    dims: Mapping[str, int],
    shapes: Shapes,
    folder: Path | None,
    allow_opaque: bool,
    known: Mapping[str, Array],
    composed: Mapping[str, Composed] | None = None,
) -> tuple[list[Value], list[Term], Builder]:
    """The outputs, the inputs that are tensors, and the builder that made them.

    composed  values of inputs of this one run that are sequences or optional: their elements become constants
    """
    _check_model(model)
    _check_sizes(model.graph, dims, shapes, allow_opaque)
    graph = model.graph
    builder = Builder(graph.name or "model")
    versions = {plain_domain(opset.domain): opset.version for opset in model.opset_import}
    scope = Scope(builder, KnownValues(known), versions, functions_of(model), folder, allow_opaque, dims=dims)
    initialized = {tensor.name for tensor in graph.initializer}
    inputs = []
    for formal in graph.input:
        if composed is not None and formal.name in composed:
            dtype = _element_type(formal, composed=True)
            scope.names[formal.name] = _composed(scope, formal.name, dtype, composed[formal.name])
        elif formal.name not in initialized:
            dtype = _element_type(formal)
            sizes = _sizes(formal, dims, shapes.get(formal.name))
            scope.names[formal.name] = leaf = builder.input(formal.name, sizes, dtype)
            inputs.append(leaf)
    scope.declare(graph)
    return scope.evaluate(graph), inputs, builder


def _tensor(value: Value) -> Term:
    if not isinstance(value, Term):
        raise BadInput(f"an output requires a tensor, got {'nothing' if value is None else 'a sequence'}")
    return value


def _check_model(model: Any) -> None:
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


def _check_sizes(graph: Any, dims: Mapping[str, int], shapes: Shapes, allow_opaque: bool) -> None:
    """The sizes that a user gives are sizes, of something that the model has.

    The results of black boxes have the sizes that the model declares, which may have names of their own.
    """
    initialized = {tensor.name for tensor in graph.initializer}
    inputs = [formal.name for formal in graph.input if formal.name not in initialized]
    sized = (*graph.input, *graph.value_info, *graph.output) if allow_opaque else graph.input
    named = sorted({d.dim_param for i in sized for d in i.type.tensor_type.shape.dim if d.dim_param})
    for kind, given, known in (("a shape", shapes, inputs), ("a size", dims, named)):
        for name in given:
            if name not in known:
                what = "input" if kind == "a shape" else "dimension"
                words = ", ".join([*map(shortened, known[:8]), *[".."] * (len(known) > 8)]) or "none"
                raise BadInput(f"{kind} is given for {shortened(name)}, but the {what}s of the model are {words}")
    for name, sizes in (*shapes.items(), *((name, [size]) for name, size in dims.items())):
        if min(sizes, default=0) < 0:
            raise BadInput(f"{shortened(name)} requires sizes of at least 0, got {min(sizes)}")


def _composed(scope: Scope, name: str, dtype: str, value: Composed) -> Value:
    """The value of an input that is a sequence or optional."""
    if value is None:
        return None
    if not isinstance(value, np.ndarray):
        elements = (_composed(scope, f"{name}/{i}", dtype, element) for i, element in enumerate(value))
        return Items(tuple(elements), dtype)
    if value.dtype.name != dtype:
        raise BadInput(f"input {name} requires dtype {dtype}, got {value.dtype}")
    return scope.constant(name, value)


def _element_type(formal: Any, composed: bool = False) -> str:
    if not formal.name:
        raise BadInput("an input of the model requires a name, got none")
    name, kind = shortened(formal.name), formal.type
    while composed and kind.WhichOneof("value") in ("sequence_type", "optional_type"):
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    if kind.WhichOneof("value") != "tensor_type":
        got = kind.WhichOneof("value") or "nothing"
        raise BadInput(f"input {name} requires a tensor, got {got.removesuffix('_type')}")
    try:
        return dtype_name(kind.tensor_type.elem_type)
    except BadInput as error:
        raise BadInput(f"input {name}: {error.message}") from None


def _sizes(formal: Any, dims: Mapping[str, int], given: Sequence[int] | None) -> list[int]:
    """The shape of an input, `given` or the file's. Raises BadInput, which names the dims that are open."""
    tensor, name = formal.type.tensor_type, shortened(formal.name)
    if given is not None:
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(given):
            raise BadInput(f"input {name} requires a shape of {len(tensor.shape.dim)} sizes, got {spelled(given)}")
        return check_size(f"input {name}", given)
    if not tensor.HasField("shape"):
        raise BadInput(f"input {name} has no shape; --shape {name}=1,3,224,224 gives it one")
    sizes, open_ = [], []
    for axis, dim in enumerate(tensor.shape.dim):
        kind = dim.WhichOneof("value")
        if kind == "dim_value" and dim.dim_value >= 0:
            sizes.append(dim.dim_value)
        elif kind == "dim_param" and dim.dim_param in dims:
            sizes.append(dims[dim.dim_param])
        else:
            open_.append((axis, dim.dim_param if kind == "dim_param" else ""))
    if not open_:
        return check_size(f"input {name}", sizes)
    words = " and ".join(f"axis {axis} ({shortened(param)})" if param else f"axis {axis}" for axis, param in open_)
    named = [f"--dim {shortened(param)}=1" for _, param in open_ if param]
    fixed = ",".join(str(dim.dim_value) if dim.dim_value > 0 else "1" for dim in tensor.shape.dim)
    how = " ".join(named) if len(named) == len(open_) else f"--shape {name}={fixed}"
    raise BadInput(f"input {name} has open dimensions, {words}; {how} fixes them")
