"""Describes ONNX models as small JSON texts: drawn, built and shrunk."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glenside.fuzzing.cases import Case
from glenside.ir.dtypes import RECORDS
from glenside.ir.operand import Array
from glenside.ir.packages import import_onnx

Spec = tuple[str, tuple[int, ...]]
"""The dtype and the dims of a value."""


@dataclass
class Model:
    """A model as a JSON description.

    inputs     name -> dtype and dims
    constants  name -> dtype, dims, and numbers, or None for values drawn by the name
    nodes      operator, domain, inputs, outputs, attributes
    types      types of results of operators that ONNX itself does not define
    """

    opset: int
    inputs: dict[str, Spec] = field(default_factory=dict)
    constants: dict[str, tuple[str, tuple[int, ...], list[float] | None]] = field(default_factory=dict)
    nodes: list[tuple[str, str, list[str], list[str], dict[str, Any]]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    types: dict[str, Spec] = field(default_factory=dict)

    def text(self) -> str:
        """Returns the description as JSON, a line for each part."""
        lines = [f'{{"opset": {self.opset},', f' "inputs": {json.dumps(self.inputs)},']
        lines += [f' "constants": {json.dumps(self.constants)},', ' "nodes": [']
        lines += [f"  {json.dumps(node)}{',' if node is not self.nodes[-1] else ''}" for node in self.nodes]
        ends = f' "outputs": {json.dumps(self.outputs)}, "types": {json.dumps(self.types)}}}'
        return "\n".join([*lines, " ],", ends])

    @staticmethod
    def of(text: str) -> Model:
        """Returns the model of a description."""
        read = json.loads(text)
        return Model(
            read["opset"],
            {name: (dtype, tuple(dims)) for name, (dtype, dims) in read["inputs"].items()},
            {name: (dtype, tuple(dims), values) for name, (dtype, dims, values) in read["constants"].items()},
            [(op, domain, ins, outs, attributes) for op, domain, ins, outs, attributes in read["nodes"]],
            read["outputs"],
            {name: (dtype, tuple(dims)) for name, (dtype, dims) in read["types"].items()},
        )

    def values(self) -> dict[str, Array]:
        """Returns the values of the constants."""
        found = {}
        for number, (name, (dtype, dims, values)) in enumerate(self.constants.items()):
            if values is None:
                rng = np.random.default_rng(number)
                whole = RECORDS[dtype].kind != "float"
                drawn = rng.integers(0, 4, dims) if whole else rng.standard_normal(dims)
                if not whole and rng.random() < 0.5:  # some elements equal those of other tensors
                    drawn = rng.integers(-4, 5, dims) / rng.choice((1, 2))
                found[name] = drawn.astype(dtype)
            else:
                found[name] = np.array(values).astype(dtype).reshape(dims)
        return found

    def proto(self, types: Mapping[str, Spec] | None = None) -> Any:
        """Returns the ModelProto. Outputs have the given types, or those that shape inference finds."""
        onnx = import_onnx()
        kind = {name: onnx.TensorProto.DataType.Value(record.onnx) for name, record in RECORDS.items()}
        make = onnx.helper

        def formal(name: str, spec: Spec | None) -> Any:
            if spec is None:
                return make.make_empty_tensor_value_info(name)
            return make.make_tensor_value_info(name, kind[spec[0]], spec[1])

        nodes = []
        for op, domain, ins, outs, attributes in self.nodes:
            plain = {
                name: kind[value[1]] if isinstance(value, list) and value[:1] == ["dtype"] else value
                for name, value in attributes.items()
            }
            nodes.append(make.make_node(op, ins, outs, domain=domain, **plain))
        graph = make.make_graph(
            nodes,
            "model",
            [formal(name, spec) for name, spec in self.inputs.items()],
            [formal(name, {**self.types, **(types or {})}.get(name)) for name in self.outputs],
            [onnx.numpy_helper.from_array(value, name) for name, value in self.values().items()],
            value_info=[formal(name, spec) for name, spec in self.types.items() if name not in self.outputs],
        )
        domains = {domain for _, domain, *_ in self.nodes if domain}
        opsets = [make.make_opsetid("", self.opset), *(make.make_opsetid(domain, 1) for domain in sorted(domains))]
        model = make.make_model(graph, opset_imports=opsets, ir_version=10 if self.opset >= 13 else 8)
        if types is None:
            model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        return model

    def used(self) -> Model:
        """Returns the model without nodes, inputs and constants on which no output depends."""
        needed, nodes = {*self.outputs}, []
        for node in reversed(self.nodes):
            if needed.intersection(node[3]):
                nodes.append(node)
                needed |= {*node[2]}
        return replace(
            self,
            nodes=nodes[::-1],
            inputs={name: spec for name, spec in self.inputs.items() if name in needed},
            constants={name: spec for name, spec in self.constants.items() if name in needed},
            types={name: spec for name, spec in self.types.items() if any(name in node[3] for node in nodes)},
        )


def types_of(model: Model) -> dict[str, Spec]:
    """Returns the types of all values by shape inference. Raises ONNX's errors for a model that is not valid."""
    onnx = import_onnx()
    proto = onnx.shape_inference.infer_shapes(model.proto({}), check_type=True, strict_mode=True, data_prop=True)
    names = {record.onnx: name for name, record in RECORDS.items()}
    found = {}
    for value in (*proto.graph.value_info, *proto.graph.output):
        kind = value.type.tensor_type
        name = names.get(onnx.TensorProto.DataType.Name(kind.elem_type))
        sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
        if name is not None and kind.HasField("shape") and -1 not in sizes:
            found[value.name] = (name, tuple(sizes))
    return found


def shrunk_model(case: Case, fails: Callable[[Case], bool], seconds: float, tries: int) -> Case:
    """Returns the smallest description found that still fails."""
    until, best, seen = time.monotonic() + seconds, case, {case.text}
    again = True
    while again:
        again = False
        for candidate in _smaller(Model.of(best.text)):
            if tries <= 0 or time.monotonic() > until:
                return best
            text = candidate.used().text()
            if text in seen or len(text) > len(best.text):
                continue
            seen.add(text)
            tries -= 1
            if fails(replace(best, text=text)):
                best, again = replace(best, text=text), True
                break
    return best


def _smaller(model: Model) -> Iterator[Model]:
    """Yields models that are smaller in one respect, the largest steps first."""
    if len(model.outputs) > 1:
        yield from (replace(model, outputs=[name]) for name in model.outputs)
    yield from (replace(model, outputs=[node[3][0]]) for node in model.nodes[:-1])
    yield from _without_nodes(model)
    yield from _without_attributes(model)
    dims = [*(spec[1] for spec in model.inputs.values()), *(spec[1] for spec in model.constants.values())]
    for size in sorted({n for own in dims for n in own}, reverse=True):
        yield from (_resized(model, size, less) for less in sorted({1, 2, size // 2, size - 1}) if 0 < less < size)


def _without_nodes(model: Model) -> Iterator[Model]:
    """Yields models without one node: its result becomes an input, or one of its operands."""
    types: dict[str, Spec] = {}
    with suppress(Exception):
        types = types_of(model)
    for node in reversed(model.nodes):
        others = [other for other in model.nodes if other is not node]
        for name in node[3]:
            if name in types:
                yield replace(model, nodes=others, inputs={**model.inputs, name: types[name]})
        for source in filter(None, node[2]):
            yield replace(model, nodes=[_renamed(other, node[3][0], source) for other in others])


def _renamed(node: Any, old: str, new: str) -> Any:
    op, domain, ins, outs, attributes = node
    return op, domain, [new if name == old else name for name in ins], outs, attributes


def _without_attributes(model: Model) -> Iterator[Model]:
    for at, (op, domain, ins, outs, attributes) in enumerate(model.nodes):
        for name in attributes:
            rest = {other: value for other, value in attributes.items() if other != name}
            yield replace(model, nodes=[*model.nodes[:at], (op, domain, ins, outs, rest), *model.nodes[at + 1 :]])
        if len(ins) > 1:
            yield replace(
                model, nodes=[*model.nodes[:at], (op, domain, ins[:-1], outs, attributes), *model.nodes[at + 1 :]]
            )


def _resized(model: Model, size: int, less: int) -> Model:
    def change(dims: Sequence[int]) -> tuple[int, ...]:
        return tuple(less if n == size else n for n in dims)

    constants = {}
    for name, (dtype, dims, values) in model.constants.items():
        new = change(dims)
        count = int(np.prod(new))
        if values is not None and dtype == "int64" and new == dims:
            values = [less if n == size else n for n in values]
        constants[name] = (dtype, new, values if values is None else values[:count])
    inputs = {name: (dtype, change(dims)) for name, (dtype, dims) in model.inputs.items()}
    return replace(model, inputs=inputs, constants=constants)
