"""Makes the ONNX message of a graph, and selects the versions of operators that it imports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import glenside
from glenside.builder.dropout import SEED
from glenside.exporters.onnx.emitter import Emitter, Function
from glenside.exporters.onnx.fuse_nodes import fused
from glenside.exporters.onnx.graph import OPSET, Encoded, Graph, Node, Reference
from glenside.exporters.onnx.movement_casts import with_movement_casts
from glenside.exporters.onnx.versions import means_the_same, since
from glenside.exporters.writer import Value
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.packages import import_onnx
from glenside.ir.packing import packed
from glenside.ir.program import Program

if TYPE_CHECKING:
    import onnx

# The first version with local functions.
_IR_VERSION = 8

_SEED = SEED.name, SEED.dims, SEED.dtype

# (message of a constant, its array): stores the bytes, in the message or elsewhere.
Store = Callable[[Any, Array], None]


def inline(tensor: Any, array: Array) -> None:
    """Stores the bytes of a constant in its message."""
    tensor.raw_data = packed(array).tobytes()


def model_of(program: Program, emit: Emitter, outputs: Mapping[str, Value], store: Store = inline) -> onnx.ModelProto:
    """Returns the model of a graph with named results; `store` stores the values of the program's constants."""
    onnx = import_onnx()
    name = program.name.encode(errors="replace").decode() or "program"
    model = onnx.ModelProto(ir_version=_IR_VERSION, producer_name="glenside", producer_version=glenside.__version__)
    model.doc_string = f"The program {name}, written by Glenside."
    model.metadata_props.add(key="program", value=name)
    model.graph.name = name
    nodes = nodes_of(program, emit, outputs)
    renamed = _renamed(emit.graph, outputs, nodes)
    for tensor in program.inputs.values():
        _describe(model.graph.input.add(), Value(tensor.name, tensor.dims, tensor.dtype), onnx)
    if SEED in program.inputs.values():  # an optional input
        _fill_tensor(model.graph.initializer.add(), Value(*_SEED), onnx, np.zeros((), np.uint32), inline)
    for output, value in outputs.items():
        _describe(model.graph.output.add(), replace(value, name=output), onnx)
    for node in nodes:
        model.graph.node.append(_node(node, renamed, onnx))
        for value in (emit.graph.typed.get(value.name, value) for value in node.outputs):
            name = renamed.get(value.name, value.name)
            if value.dtype and name not in outputs:
                _describe(model.graph.value_info.add(), replace(value, name=name), onnx)
    _add_constants(model.graph, emit.graph, program, nodes, store, onnx, renamed)
    called = {node.op: emit.functions[node.op] for node in nodes if node.domain == "glenside"}
    held = [value.dtype for node in nodes for value in (*node.inputs, *node.outputs)]
    held += [tensor.dtype for tensor in program.inputs.values()]
    versions = _opsets(emit.versions, nodes, max((RECORDS[d].opset for d in held if d in RECORDS), default=OPSET))
    if versions[""] > OPSET:
        model.ir_version = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", versions[""])], True)
    for function in called.values():
        _fill_function(model.functions.add(), function, versions[""], onnx)
    for domain, version in {**versions, **({"glenside": 1} if called else {})}.items():
        model.opset_import.add(domain=domain, version=version)
    return model


def nodes_of(program: Program, emit: Emitter, outputs: Mapping[str, Value]) -> list[Node]:
    """Returns the nodes of a graph's model, in order."""
    nodes = _joined(emit.graph.used([*outputs.values()]), outputs.values())
    nodes = fused(emit.graph, nodes, outputs.values(), program.constants)
    return _sorted([*with_movement_casts(emit.graph, nodes)])


def _sorted(nodes: Sequence[Node]) -> list[Node]:
    """Sorts the nodes topologically, and stably if they already are in order."""
    made = {value.name for node in nodes for value in node.outputs if value.name}
    found: list[Node] = []
    rest, done = [*nodes], set[str]()
    while rest:
        later = []
        for node in rest:
            if all(value.name in done or value.name not in made for value in node.inputs):
                found.append(node)
                done.update(value.name for value in node.outputs)
            else:
                later.append(node)
        assert len(later) < len(rest), "a graph has no cycle"
        rest = later
    return found


def _renamed(graph: Graph, outputs: Mapping[str, Value], nodes: Sequence[Node]) -> dict[str, str]:
    """Returns the names of values that differ in the file: an output has its own name, and no other value has it."""
    renamed = {value.name: output for output, value in outputs.items()}
    values = (value for node in nodes for value in (*node.inputs, *node.outputs))
    for name in dict.fromkeys(value.name for value in values if value.name in outputs):
        if name not in renamed:
            renamed[name] = graph.name(name)
    return renamed


def _joined(nodes: Sequence[Node], outputs: Iterable[Value]) -> list[Node]:
    """Merges chains of concatenations along one axis, since a chain copies its first part repeatedly."""
    uses = Counter(value.name for node in nodes for value in node.inputs)
    uses.update(value.name for value in outputs)
    joins = {node.output.name: node for node in nodes if node.op == "Concat"}

    def inner(value: Value, axis: int) -> Node | None:
        node = joins.get(value.name)
        return node if node and uses[value.name] == 1 and node.attributes["axis"] == axis else None

    gone = {v.name for node in joins.values() for v in node.inputs if inner(v, node.attributes["axis"])}
    result = []
    for node in nodes:
        if node.output.name in gone:
            continue
        if node.output.name in joins:
            parts: list[Value] = []
            stack = [*reversed(node.inputs)]
            while stack:
                value = stack.pop()
                joined = inner(value, node.attributes["axis"])
                if joined:
                    stack += reversed(joined.inputs)
                else:
                    parts.append(value)
            node = replace(node, inputs=tuple(parts))
        result.append(node)
    return result


def _node(node: Node, renamed: Mapping[str, str], onnx: Any) -> Any:
    inputs, outputs = ([renamed.get(v.name, v.name) for v in values] for values in (node.inputs, node.outputs))
    name = node.name or next(filter(None, (value.name for value in node.outputs)))
    made = onnx.helper.make_node(node.op, inputs, outputs, name, domain=node.domain)
    made.attribute.extend(_attribute(key, value, onnx) for key, value in sorted(node.attributes.items()))
    if node.doc:
        made.doc_string = node.doc
    return made


def _attribute(name: str, value: Any, onnx: Any) -> Any:
    kinds = onnx.AttributeProto
    if isinstance(value, Reference):
        return kinds(name=name, ref_attr_name=value.name, type=kinds.INTS)
    if isinstance(value, Encoded):
        return kinds.FromString(value.message)
    if name == "to":
        value = _data_type(value, onnx)
    return onnx.helper.make_attribute(name, value, attr_type=kinds.INTS if isinstance(value, tuple) else None)


def _data_type(dtype: str, onnx: Any) -> int:
    return int(onnx.TensorProto.DataType.Value(RECORDS[dtype].onnx))


def _describe(info: Any, value: Value, onnx: Any) -> None:
    info.name = value.name
    info.type.tensor_type.elem_type = _data_type(value.dtype, onnx)
    shape = info.type.tensor_type.shape
    shape.SetInParent()  # no axes differ from an unknown number of axes
    for size in value.dims:
        shape.dim.add().dim_value = size


def _add_constants(
    graph: Any,
    source: Graph,
    program: Program,
    nodes: Sequence[Node],
    store: Store,
    onnx: Any,
    renamed: Mapping[str, str],
) -> None:
    """Adds the constants that nodes read, in the order of their first use."""
    for value in dict.fromkeys(value for node in nodes for value in node.inputs):
        named = replace(value, name=renamed.get(value.name, value.name))
        if value.name in source.arrays:
            _fill_tensor(graph.initializer.add(), named, onnx, source.arrays[value.name], store)
        elif value.name in source.weights:
            _fill_tensor(graph.initializer.add(), named, onnx, program.constants[value.name], store)


def _fill_tensor(tensor: Any, value: Value, onnx: Any, array: Array, store: Store) -> None:
    tensor.name, tensor.data_type = value.name, _data_type(value.dtype, onnx)
    tensor.dims.extend(value.dims)
    store(tensor, array)


def _fill_function(proto: Any, function: Function, version: int, onnx: Any) -> None:
    proto.name, proto.domain, proto.doc_string = function.name, "glenside", function.doc
    proto.input.extend(["a", "b"])
    proto.output.append("result")
    proto.attribute.extend(function.attributes)
    proto.opset_import.add(domain="", version=version)
    nodes = function.graph.used([function.output])
    for value in dict.fromkeys(value for node in nodes for value in node.inputs):
        if value.name in function.graph.arrays:
            constant = proto.node.add(op_type="Constant", name=value.name, output=[value.name])
            attribute = constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
            _fill_tensor(attribute.t, value, onnx, function.graph.arrays[value.name], inline)
    proto.node.extend(_node(node, {function.output.name: "result"}, onnx) for node in nodes)


def _opsets(wanted: Iterable[tuple[str, str, int]], nodes: Sequence[Node], least: int) -> dict[str, int]:
    """Returns domain -> version, such that nodes of (domain, operator, version) in `wanted` keep their meaning.

    Other nodes are standard operators as of OPSET, with dtypes that exist from version `least` on. Raises BadInput if
    no version suits all nodes of a domain.
    """
    used = {(node.domain, node.op) for node in nodes}
    needs = sorted(each for each in wanted if each[:2] in used)
    found = {"": max(OPSET, least)}
    for domain, op, version in needs:
        found[domain] = max(found.get(domain, 0), version if domain else since(op, version))
    for domain, op, version in needs:
        have = found[domain]
        if have != version and (domain or not means_the_same(op, version, have)):
            name = f"{domain}.{op}" if domain else op
            raise BadInput(f"an ONNX file of {name} as of version {version} requires no node of another, got {have}")
    return found
