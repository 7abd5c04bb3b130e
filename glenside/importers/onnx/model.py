"""Imports a model file: reads it, checks it as a whole, and walks its graph."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.builder.dropout import SEED
from glenside.importers.known_values import KnownValues
from glenside.importers.onnx.checks import Shapes, check_given, check_model
from glenside.importers.onnx.functions import functions_of, plain_domain
from glenside.importers.onnx.graph import Scope
from glenside.importers.onnx.node import DependsOnData, Items, NoTerm, Value
from glenside.importers.onnx.tensors import check_size, dtype_name
from glenside.importers.onnx.topological_order import part_of
from glenside.ir import option_hints
from glenside.ir.errors import BadInput
from glenside.ir.files import read_bytes
from glenside.ir.names import shortened
from glenside.ir.operand import Array
from glenside.ir.operators.requirements import spelled
from glenside.ir.packages import import_onnx
from glenside.ir.program import Program, Signature, valued
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

Composed = Array | Sequence[Array] | None
"""A value that is a sequence or optional, as arrays."""

PROTOBUF = (1 << 31) - 1
"""The maximum bytes of a protobuf message."""


def load_onnx(
    path: str | os.PathLike[str],
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
    allow_opaque: bool = False,
    values: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
) -> Program:
    """Returns the program of an ONNX file, as `program_of_model` does. Raises BadInput, with the path."""
    folder = Path(path).parent
    try:
        return program_of_model(
            read_model(path),
            dims=dims,
            shapes=shapes,
            folder=folder,
            allow_opaque=allow_opaque,
            values=values,
            outputs=outputs,
        )
    except BadInput as error:
        raise BadInput(f"{os.fspath(path)}: {error.message}") from None


def read_model(path: str | os.PathLike[str]) -> Any:
    """Returns the ModelProto of a file without its external data. Raises BadInput."""
    onnx = import_onnx()
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        size = Path(path).stat().st_size
        if size > PROTOBUF:
            beside = "larger weights must be stored as external data"
            raise BadInput(f"has {size} bytes, and a protobuf file has at most {PROTOBUF}; {beside}")
        model.ParseFromString(read_bytes(path, PROTOBUF))
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except DecodeError:
        raise BadInput("is not an ONNX file, or is cut off, or nested deeper than protobuf reads") from None
    return model


def input_sizes(path: str | os.PathLike[str]) -> dict[str, list[int | str]]:
    """Returns the sizes of an ONNX file's inputs that have a rank: numbers, names, or "" for neither.

    Raises BadInput.
    """
    try:
        graph = read_model(path).graph
    except BadInput as error:
        raise BadInput(f"{os.fspath(path)}: {error.message}") from None
    known = {tensor.name for tensor in graph.initializer}
    formal = {i.name: i.type.tensor_type for i in graph.input if i.name not in known}
    return {
        name: [d.dim_value if d.WhichOneof("value") == "dim_value" else d.dim_param for d in kind.shape.dim]
        for name, kind in formal.items()
        if kind.HasField("shape")
    }


def program_of_model(
    model: Any,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
    folder: Path | None = None,
    allow_opaque: bool = False,
    values: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
) -> Program:
    """Returns the program of a ModelProto; several results are a tuple, and its signature has their names.

      dims     sizes of named dimensions, such as batch
      shapes   whole shapes of inputs
      values   of inputs, which become constants: shapes and conditions may then depend on them; arrays or Python
               numbers, a single number being repeated everywhere
      outputs  tensors of the graph to use as results instead of its own outputs; nodes that these do not need are
               dropped; a list of names, or one text of names with commas

    Raises BadInput, which names the node.
    """
    outputs = outputs.split(",") if isinstance(outputs, str) else outputs
    walked = walk(model, dims or {}, shapes or {}, folder, allow_opaque, values=values or {}, outputs=outputs)
    terms = [_tensor(value) for value in walked.outputs]
    term = terms[0] if len(terms) == 1 else build("construct-tuple", *terms)
    names = tuple(outputs or (value.name for value in model.graph.output))
    program = walked.builder.finish(term)
    fixed = frozenset(
        name for name, t in program.constants_declared.items() if build("access-tensor", t) not in walked.weights
    )
    signature = Signature(tuple(walked.inputs), names, walked.values, walked.remarks, fixed)
    return replace(program, signature=signature, origins=walked.origins, nodes=walked.nodes)


@dataclass(frozen=True)
class Walked:
    """The outputs of a model, its inputs that are tensors without a value, and the builder that made them."""

    outputs: list[Value]
    inputs: list[Tensor]
    builder: Builder
    values: Mapping[str, Array]
    remarks: tuple[str, ...]
    origins: Mapping[Term, Term]
    nodes: Mapping[Term, str]
    weights: Container[Term]


def walk(
    model: Any,
    dims: Mapping[str, int],
    shapes: Shapes,
    folder: Path | None = None,
    allow_opaque: bool = False,
    *,
    values: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    known: Mapping[str, Array] | None = None,
    composed: Mapping[str, Composed] | None = None,
) -> Walked:
    """Imports a model for `program_of_model`.

    known     values of inputs of this one run, which stay inputs
    composed  values of inputs that are sequences or optional: their elements become constants
    """
    values, composed = values or {}, composed or {}
    check_model(model)
    check_given(model.graph, dims, shapes, allow_opaque, values)
    optional = {SEED.name} & {formal.name for formal in model.graph.input}  # of a file that Glenside wrote
    graph = part_of(model.graph, outputs, {*values, *optional})
    builder = Builder(model.graph.name or "model")
    versions = {plain_domain(opset.domain): opset.version for opset in model.opset_import}
    given = " ".join([*([option_hints.dims(dims)] if dims else []), *([option_hints.shapes(shapes)] if shapes else [])])
    scope = Scope(builder, KnownValues(known or {}), versions, functions_of(model), folder, allow_opaque)
    scope.dims, scope.given = dims, given
    initialized = {tensor.name for tensor in graph.initializer if tensor.name not in optional}
    inputs, fixed = [], dict[str, Array]()
    for formal in graph.input:
        if formal.name in composed:
            dtype = _element_type(formal, composed=True)
            scope.names[formal.name] = _composed(scope, formal.name, dtype, composed[formal.name])
        elif formal.name not in initialized:
            dtype, value = _element_type(formal), values.get(formal.name)
            if value is not None:
                fixed[formal.name] = array = _valued(formal, dtype, dims, shapes, value)
                scope.names[formal.name] = scope.constant(formal.name, array)
                continue
            sizes = _sizes(formal, dims, shapes.get(formal.name))
            scope.names[formal.name] = builder.input(formal.name, sizes, dtype)
            inputs.append(builder.tensors[formal.name])
    scope.declare(graph)
    try:
        results = scope.evaluate(graph)
    except NoTerm as error:
        names = scope.computable(graph.node, {value.name for value in graph.output})
        needed = error.unknown(scope.known) if isinstance(error, DependsOnData) else []
        raise NoTerm(error.message + _valued_by(needed) + _cut(names)) from None
    inputs += [SEED] if builder.tensors.get(SEED.name) == SEED else []
    tally = scope.tally
    return Walked(results, inputs, builder, fixed, tuple(tally.remarks), tally.origins, tally.made, tally.weights)


def _valued_by(inputs: Sequence[Tensor]) -> str:
    """Suggests the option whose values make a term known that depends on these inputs."""
    if not inputs:
        return ""
    given = option_hints.values({tensor.name: prod(tensor.dims) for tensor in inputs})
    return f"; {given} make{'s' * (len(inputs) == 1)} it known"


def _cut(names: Sequence[str]) -> str:
    """Suggests the option that cuts the model at these tensors, the last ones before a refused node."""
    if not names:
        return ""
    words = ",".join(names)
    if len(words) > _WORDS:
        first = option_hints.outputs([shortened(names[0])])
        return f"; {first} drops this node and its readers, and so can {len(names) - 1} other tensors"
    return f"; {option_hints.outputs(names)} drops this node and its readers"


_WORDS = 160  # characters of names in one sentence


def _tensor(value: Value) -> Term:
    if not isinstance(value, Term):
        raise BadInput(f"an output requires a tensor, got {'nothing' if value is None else 'a sequence'}")
    return value


def _composed(scope: Scope, name: str, dtype: str, value: Composed) -> Value:
    """Returns the value of an input that is a sequence or optional."""
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


def _valued(formal: Any, dtype: str, dims: Mapping[str, int], shapes: Shapes, value: Any) -> Array:
    """Returns the value of an input as an array of its dtype and shape; the value sets dims that the file leaves
    open.
    """
    shape: Sequence[int] | None = None
    with suppress(ValueError):  # of nested lists of unequal lengths, which are refused below
        shape = np.shape(value)
    sizes = _sizes(formal, dims, shapes.get(formal.name, shape or None))
    fixed = [dim.dim_value for dim in formal.type.tensor_type.shape.dim]
    if formal.name not in shapes and any(size > 0 and size != got for size, got in zip(fixed, sizes, strict=False)):
        wanted = spelled([size or -1 for size in fixed]).replace("-1", "any")
        raise BadInput(f"the value of {shortened(formal.name)} requires shape {wanted}, got {spelled(sizes)}")
    return valued(Tensor(formal.name, Dims(sizes), dtype), value)


def _sizes(formal: Any, dims: Mapping[str, int], given: Sequence[int] | None) -> list[int]:
    """Returns the shape of an input, `given` or the file's. Raises BadInput, which names the open dims."""
    tensor, name = formal.type.tensor_type, shortened(formal.name)
    if given is not None:
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(given):
            raise BadInput(f"input {name} requires a shape of {len(tensor.shape.dim)} sizes, got {spelled(given)}")
        return check_size(f"input {name}", given)
    if not tensor.HasField("shape"):
        raise BadInput(
            f"input {name} has no shape; {option_hints.shapes({formal.name: [1, 3, 224, 224]})} gives it one"
        )
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
    likely = {axis: 1 if axis < 2 else 64 for axis in range(len(tensor.shape.dim))}  # which can be halved repeatedly
    fixed = [dim.dim_value if dim.dim_value > 0 else likely[axis] for axis, dim in enumerate(tensor.shape.dim)]
    whole = not all(param for _, param in open_)
    how = (
        option_hints.shapes({formal.name: fixed})
        if whole
        else option_hints.dims({param: likely[axis] for axis, param in open_})
    )
    raise BadInput(f"input {name} has open dimensions, {words}; {how} fixes them")
