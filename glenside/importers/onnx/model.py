"""A model file: read, checked as a whole, and walked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.importers.onnx.graph import Scope, outputs_of
from glenside.importers.onnx.known import KnownValues
from glenside.importers.onnx.tensors import dtype_name
from glenside.importers.onnx.values import Items, Value
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build

Shapes = Mapping[str, Sequence[int]]
Composed = Array | Sequence[Array] | None
"""A value that is a sequence or optional, as arrays."""


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
    import onnx
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        model.ParseFromString(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except DecodeError:
        raise BadInput("is not an ONNX file, or is cut off") from None
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
    values, inputs, builder = outputs_of_model(model, dims or {}, shapes or {}, folder, allow_opaque, known or {})
    terms = outputs_of(values)
    del inputs
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
    _check(model)
    graph = model.graph
    builder = Builder(graph.name or "model")
    versions = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    functions = {(("" if f.domain == "ai.onnx" else f.domain), f.name): f for f in model.functions}
    scope = Scope(builder, KnownValues(known), versions, functions, folder, allow_opaque)
    initialized = {tensor.name for tensor in graph.initializer}
    unknown = [name for name in shapes if name not in {i.name for i in graph.input}]
    if unknown:
        raise BadInput(f"a shape is given for {unknown[0]!r}, which is no input of the model")
    inputs = []
    for formal in graph.input:
        if composed is not None and formal.name in composed:
            dtype = _element_type(formal, composed=True)
            scope.names[formal.name] = _composed(scope, formal.name, dtype, composed[formal.name])
        elif formal.name not in initialized:
            dtype = _element_type(formal)
            sizes = shapes[formal.name] if formal.name in shapes else _sizes(formal, dims)
            scope.names[formal.name] = leaf = builder.input(formal.name, sizes, dtype)
            inputs.append(leaf)
    return scope.run(graph), inputs, builder


def _check(model: Any) -> None:
    """What must hold before any node is looked at."""
    import onnx

    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise BadInput("is not an ONNX file: it holds no graph")
    if not model.opset_import:
        raise BadInput("requires an opset, got none")
    for opset in model.opset_import:
        newest = onnx.defs.onnx_opset_version()
        if opset.domain in ("", "ai.onnx") and not 1 <= opset.version <= newest:
            raise BadInput(f"requires an opset from 1 to {newest}, got {opset.version}")


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
    kind = formal.type
    while composed and kind.WhichOneof("value") in ("sequence_type", "optional_type"):
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    if kind.WhichOneof("value") != "tensor_type":
        got = kind.WhichOneof("value") or "nothing"
        raise BadInput(f"input {formal.name} requires a tensor, got {got.removesuffix('_type')}")
    try:
        return dtype_name(kind.tensor_type.elem_type)
    except BadInput as error:
        raise BadInput(f"input {formal.name}: {error.message}") from None


def _sizes(formal: Any, dims: Mapping[str, int]) -> list[int]:
    """The shape of an input. Raises BadInput, which names the dims that are open."""
    tensor = formal.type.tensor_type
    if not tensor.HasField("shape"):
        raise BadInput(f"input {formal.name} has no shape; --shape {formal.name}=1,3,224,224 gives it one")
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
        return sizes
    words = " and ".join(f"axis {axis} ({name})" if name else f"axis {axis}" for axis, name in open_)
    named = [f"--dim {name}=1" for _, name in open_ if name]
    how = " ".join(named) if len(named) == len(open_) else f"--shape {formal.name}=.."
    raise BadInput(f"input {formal.name} has open dimensions, {words}; {how} fixes them")
