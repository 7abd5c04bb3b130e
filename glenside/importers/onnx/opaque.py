"""Keeps operators of unknown meaning as black boxes with known result types, from which their nodes can be exported.

The key of a black box is `domain/operator/version#output`, a space, and the node in base64: its attributes, and which
inputs and outputs it has, under generated names.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from glenside.importers.onnx.node import Items, Node, Value
from glenside.importers.onnx.runtime_types import inferred_types
from glenside.importers.onnx.schema import given_attributes
from glenside.importers.onnx.tensors import dtype_name, element_type
from glenside.ir.dtypes import COMPUTED, DTYPES
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build, postorder, tensors
from glenside.ir.types import AccessType, Dims

_KEY = re.compile(r"(?P<domain>[^ /]+)/(?P<op>[^ /]+)/(?P<version>\d{1,9})#(?P<output>\d{1,9}) (?P<node>\S+)")
# Two nodes that draw random numbers are different functions, even if they are equal.
_RANDOM = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)
Types = Mapping[str, tuple[str, list[int]]]
"""Output name -> dtype and dims."""

_KNOWN = 1024  # elements of an input whose value type inference may read: a shape, axes, counts
_SPELLED = 1 << 14  # elements of an operand that is written as numbers: zero points of channels


@dataclass(frozen=True)
class BlackBox:
    """The content of a key: a node without its names, the version of its domain's operators, and the number of the
    output.
    """

    node: Any
    version: int
    output: int


def black_box(node: Node, proto: Any) -> Sequence[Value]:
    """Returns the outputs of a node as uninterpreted functions of its inputs, one for each used output.

    Their types are those that ONNX infers from the inputs, that the graph declares, or that onnxruntime reports. Raises
    BadInput if none of them is complete, if an input or output is not a tensor, and if the node has a subgraph.
    """
    bare = _bare(node, proto)
    operands = []
    for i, value in enumerate(node.inputs):
        if isinstance(value, Items):
            raise BadInput(f"a black box requires tensors, got a sequence as input {i}")
        operands += [] if value is None else [value]
    model = _model(node, bare)
    inferred = {} if model is None else _inferred(node, model)
    # If ONNX knows the operator and leaves a size open, it depends on data.
    reported = cache(lambda: {} if model is None or _is_standard(node) else _reported(model))
    results: list[Value] = []
    for i, output in enumerate(node.outputs):
        if not output:
            results.append(None)
            continue
        dtype, dims = _type(i, inferred.get(f"o{i}"), node.scope.types.get(output), node.scope.dims, reported)
        key = spelled_key(BlackBox(bare, node.version, i))
        results.append(build("opaque", key, ((), dims), dtype, *operands))
    return results


def spelled_key(box: BlackBox) -> str:
    """Returns the key of a node, whose inputs and outputs get generated names."""
    text = base64.b64encode(box.node.SerializeToString(deterministic=True)).decode("ascii")
    return f"{box.node.domain or 'ai.onnx'}/{box.node.op_type}/{box.version}#{box.output} {text}"


def origins_of(node: Node, proto: Any, made: Sequence[Value]) -> dict[Term, Term]:
    """Returns the outputs of a node of known meaning -> the black boxes that they would be, if the node is worth
    keeping.

    Small known operands that the outputs do not read become numbers. Operands that they read, such as transposed
    weights, stay terms, since they may be given other values.
    """
    import onnx

    names = "INT INTS FLOAT FLOATS STRING STRINGS".split()
    plain = all(
        onnx.AttributeProto.AttributeType.Name(a.type) in names and not a.ref_attr_name for a in proto.attribute
    )
    operands = [value for value in node.inputs if isinstance(value, Term)]
    if not plain or not operands or node.op_type in _RANDOM or any(isinstance(v, Items) for v in node.inputs):
        return {}
    wanted = {
        i: value
        for i, (output, value) in enumerate(zip(node.outputs, made, strict=False))
        if output and isinstance(value, Term) and isinstance(value.type, AccessType) and value not in operands
    }
    read = {child for term in postorder(*wanted.values(), without={*operands}) for child in term.children}
    operands = [value if value in read else _as_numbers(node, value, read) for value in operands]
    bare = _bare(node, proto)
    found = {}
    for i, value in wanted.items():
        key = spelled_key(BlackBox(bare, node.version, i))
        found[value] = build("opaque", key, ((), value.access.dims), value.access.dtype, *operands)
    return found


def _as_numbers(node: Node, term: Term, read: Container[Term]) -> Term:
    """Returns a term as numbers if they are known, few and finite, and if it reads no tensor of `read`."""
    kind = term.access
    array = node.scope.known(term) if kind.size <= _SPELLED and kind.dtype in COMPUTED else None
    if array is None or any(leaf in read for leaf in tensors(term)):
        return term
    return numbers_of(array) or term


def numbers_of(array: Array) -> Term | None:
    """Returns the term that spells an array; None if it contains inf, nan or -0, which have no text."""
    if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and not _are_rational(array)):
        return None
    words = " ".join(str(Fraction(n)) for n in array.reshape(-1).tolist())
    return build("numbers", Dims(array.shape), words, array.dtype.name)


def _are_rational(array: Array) -> bool:
    return bool(np.isfinite(array).all()) and not bool((np.signbit(array) & (array == 0)).any())


def node_of_key(key: str) -> Any:
    """Returns the NodeProto of a black box: its inputs and outputs are named i0, o0 and so on, or empty. Raises
    BadInput.
    """
    return read_key(key).node


def read_key(key: str) -> BlackBox:
    """Parses the key of a black box that was imported from ONNX. Raises BadInput."""
    import onnx
    from google.protobuf.message import DecodeError

    match = _KEY.fullmatch(key)
    wanted = "a key requires the form domain/operator/version#output and a node in base64"
    if match is None:
        raise BadInput(f"{wanted}, got {key[:60]!r}")
    node = onnx.NodeProto()
    try:
        node.ParseFromString(base64.b64decode(match["node"], validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise BadInput(f"{wanted}, got {key[:60]!r}") from None
    output = int(match["output"])
    if (node.domain or "ai.onnx", node.op_type) != (match["domain"], match["op"]) or output >= len(node.output):
        raise BadInput(f"{wanted} that agree, got {key[:60]!r}")
    return BlackBox(node, int(match["version"]), output)


def holds_graph(proto: Any) -> bool:
    """True if the node has subgraphs, as loops do."""
    import onnx

    return any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in proto.attribute)


def _bare(node: Node, proto: Any) -> Any:
    """Returns the node without names, with references to a function's attributes resolved for this call."""
    import onnx

    result = onnx.NodeProto(op_type=proto.op_type, domain=node.domain)
    if holds_graph(proto):
        raise BadInput("a black box requires a node without a graph in it, got one")
    result.attribute.extend(sorted(given_attributes(proto, node.attributes), key=lambda a: a.name))
    for attribute in result.attribute:
        attribute.ClearField("doc_string")
    result.input.extend("" if value is None else f"i{i}" for i, value in enumerate(node.inputs))
    result.output.extend(f"o{i}" if output else "" for i, output in enumerate(node.outputs))
    if node.op_type in _RANDOM:
        result.name = node.scope.box_name(node.name)
    return result


def _model(node: Node, bare: Any) -> Any:
    """Returns a model of the node alone, with the types of inputs and the values of small ones; None if that fails."""
    import onnx

    inputs, known = [], []
    for name, value in zip(bare.input, node.inputs, strict=True):
        if isinstance(value, Term):
            kind = value.access
            inputs.append(onnx.helper.make_tensor_value_info(name, element_type(kind.dtype), list(kind.dims)))
            array = node.scope.known(value) if kind.size <= _KNOWN else None
            if array is not None:
                known.append(onnx.numpy_helper.from_array(array, name))
    outputs = [onnx.ValueInfoProto(name=name) for name in bare.output if name]
    graph = onnx.helper.make_graph([bare], "node", inputs, outputs, known)
    domains = {node.domain: node.version, "": node.scope.versions.get("", onnx.defs.onnx_opset_version())}
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in domains.items()]
    try:
        return onnx.helper.make_model(graph, opset_imports=opsets)
    except ValueError:
        return None


def _inferred(node: Node, model: Any) -> Mapping[str, Any]:
    """Returns output name -> TypeProto, as far as ONNX infers it."""
    import onnx

    # Inference makes a dimension of each element of an integer vector, known or not.
    kinds = [value.access for value in node.inputs if isinstance(value, Term)]
    propagate = all(kind.rank != 1 or kind.size <= _KNOWN for kind in kinds)
    try:
        found = onnx.shape_inference.infer_shapes(model, data_prop=propagate)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError, MemoryError):
        return {}
    return {output.name: output.type for output in found.graph.output}


def _is_standard(node: Node) -> bool:
    import onnx

    return bool(onnx.defs.has(node.op_type, node.domain))


def _reported(model: Any) -> Types:
    """Returns output name -> the type that onnxruntime reports; inputs with known values become initializers."""
    run = type(model)()
    run.CopyFrom(model)
    values = {tensor.name for tensor in run.graph.initializer}
    kept = [formal for formal in run.graph.input if formal.name not in values]
    del run.graph.input[:]
    run.graph.input.extend(kept)
    # the oldest version with the features used here, since onnxruntime lags behind onnx
    run.ir_version = min(run.ir_version, 10)
    found = inferred_types(run.SerializeToString()) or []
    names = [output.name for output in run.graph.output]
    return {name: reported for name, reported in zip(names, found, strict=False) if reported[0] in DTYPES}


def _type(
    i: int,
    inferred: Any,
    declared: Any,
    sizes: Mapping[str, int],
    reported: Callable[[], Types],
) -> tuple[str, list[int]]:
    """Returns the dtype and dims of output i: inferred by ONNX, or else declared by the graph, or else from
    onnxruntime.

      reported  returns the types that onnxruntime reports
    """
    kinds = [kind for kind in (inferred, declared) if kind is not None and kind.WhichOneof("value")]
    if any(kind.WhichOneof("value") != "tensor_type" for kind in kinds):
        raise BadInput(f"a black box requires tensors, got a {kinds[0].WhichOneof('value')} as output {i}")
    tensors = [kind.tensor_type for kind in kinds]
    element = next((t.elem_type for t in tensors if t.elem_type), 0)
    shapes = [[_size(dim, sizes) for dim in t.shape.dim] for t in tensors if t.HasField("shape")]
    if not element or not shapes:
        if f"o{i}" in reported():
            return reported()[f"o{i}"]
        sources = "neither ONNX nor onnxruntime infers it, nor does the graph declare it in its value_info"
        raise BadInput(f"a black box requires the type of output {i}: {sources}")
    ranked = [shape for shape in shapes if len(shape) == len(shapes[0])]
    dims = [next((size for size in column if size is not None), None) for column in zip(*ranked, strict=True)]
    if None in dims and f"o{i}" in reported():
        return reported()[f"o{i}"]
    if None in dims:
        raise BadInput(f"a black box requires all sizes of output {i}, got none for axis {dims.index(None)}")
    return dtype_name(element), [size for size in dims if size is not None]


def _size(dim: Any, sizes: Mapping[str, int]) -> int | None:
    if dim.WhichOneof("value") == "dim_value":
        return int(dim.dim_value)
    return sizes.get(dim.dim_param) if dim.dim_param else None
