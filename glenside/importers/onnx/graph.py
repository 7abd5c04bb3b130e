"""A graph walked in order: each node becomes values, which its readers find by name."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.builder.layout import broadcast
from glenside.importers.onnx.attributes import Attribute, bound, decoded
from glenside.importers.onnx.functions import Body, function_body, standard_body
from glenside.importers.onnx.known import KnownValues
from glenside.importers.onnx.node import DependsOnData, Node
from glenside.importers.onnx.opaque import black_box, holds_graph
from glenside.importers.onnx.registry import imports
from glenside.importers.onnx.tensors import array_of
from glenside.importers.onnx.values import Items, Value
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.operand import Array
from glenside.ir.term import Term, build

DEPTH = 64
"""Functions and subgraphs in each other: a function that calls itself ends here."""

_SMALL = 1 << 16  # bytes of a constant that is worth comparing


@dataclass
class Scope:
    """Names and their values; a subgraph sees those of the graph around it, a function only its own.

    known_values  what is known beforehand: constants, and inputs that a backend has in hand
    functions     (domain, name) -> a function that the model itself declares
    attributes    of the function that this is the body of
    opaque        whether an operator without a meaning is kept as a black box
    dims          sizes of named dimensions
    types         name -> the TypeProto that the graph declares for it
    boxes         names of black boxes that must differ from all others
    shared        constants so far, by name and value: the passes through a loop share theirs
    """

    builder: Builder
    known_values: KnownValues
    versions: Mapping[str, int]
    functions: Mapping[tuple[str, str], Any]
    folder: Path | None = None
    opaque: bool = False
    prefix: str = ""
    depth: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    outer: Scope | None = None
    names: dict[str, Value] = field(default_factory=dict)
    shared: dict[tuple[str, str, tuple[int, ...], bytes], Term] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)
    boxes: set[str] = field(default_factory=set)

    def known(self, term: Term) -> Array | None:
        """The value of a term that depends on nothing but what is known beforehand, or None."""
        return self.known_values.of(term)

    def constant(self, name: str, value: Array) -> Term:
        """A constant with that value, under that name or a name like it."""
        key = (name, value.dtype.name, value.shape, value.tobytes() if value.nbytes <= _SMALL else b"")
        if key in self.shared:
            return self.shared[key]
        fresh = _fresh(name, self.builder.tensors)
        leaf = self.builder.constant(fresh, value.shape, value.dtype.name, value)
        self.known_values.add(fresh, value)
        if value.nbytes <= _SMALL:
            self.shared[key] = leaf
        return leaf

    def filled(self, dims: Sequence[int], value: Any) -> Term:
        """One number everywhere: exact when it is finite, else a constant broadcast."""
        if np.isfinite(value):
            return build("full", dims, repr(value.item()) if value.dtype.kind != "b" else int(value), value.dtype.name)
        return broadcast(self.constant("value", np.asarray(value)), dims)

    def layer_name(self, name: str) -> str:
        """The name, or one like it that no layer has yet."""
        return _fresh(name, self.builder.layers)

    def box_name(self, name: str) -> str:
        """The name, or one like it that no black box has yet."""
        self.boxes.add(fresh := _fresh(name, self.boxes))
        return fresh

    def find(self, name: str) -> Value:
        """The value of a name, here or around. Raises KeyError."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        raise KeyError(name)

    def inside(self, name: str) -> Scope:
        """A scope for a subgraph of the node of that name."""
        prefix = f"{self.prefix}{name}/"
        scope = Scope(
            **{**self.__dict__, "outer": self, "names": {}, "types": {}, "prefix": prefix, "depth": self.depth + 1}
        )
        return scope

    def run(self, graph: Any, given: Sequence[Value] = ()) -> list[Value]:
        """The outputs of a graph whose inputs have these values."""
        if self.depth > DEPTH:
            raise BadInput(f"graphs and functions may stand {DEPTH} deep in each other, got more")
        self.declare(graph)
        return self.evaluate(graph, given)

    def declare(self, graph: Any) -> None:
        """Give the initializers of a graph their values, and see which types it declares."""
        self.types.update((value.name, value.type) for value in (*graph.value_info, *graph.output))
        for tensor in graph.initializer:
            self.names[tensor.name] = self._initializer(tensor)
        if graph.sparse_initializer:
            raise BadInput(f"graph {graph.name} requires dense initializers, got sparse ones")

    def evaluate(self, graph: Any, given: Sequence[Value] = ()) -> list[Value]:
        """The outputs of a graph whose initializers have their values, here or around."""
        for formal, value in zip(graph.input, given, strict=False):
            self.names[formal.name] = value
        self.nodes(graph.node)
        return [self._output(value.name) for value in graph.output]

    def _initializer(self, tensor: Any) -> Term:
        if not tensor.name:
            raise BadInput("an initializer requires a name, got none")
        return self.constant(f"{self.prefix}{tensor.name}", array_of(tensor, self.folder))

    def _output(self, name: str) -> Value:
        try:
            return self.find(name)
        except KeyError:
            raise BadInput(f"output {name!r} requires a node, an input or an initializer of that name") from None

    def nodes(self, nodes: Sequence[Any]) -> None:
        """Give every output of these nodes its value. Raises BadInput that names the node."""
        makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
        for i, proto in enumerate(nodes):
            place = described(proto, i, self.prefix)
            try:
                inputs = tuple(self._input(name, makers, nodes) for name in proto.input)
                made = self.node(proto, inputs)
                self._bind(proto, made)
            except GlensideError as error:
                inner = error.message if error.message.startswith("node ") else f"{place}: {error.message}"
                raise BadInput(inner) from None
            except (ValueError, TypeError, IndexError, KeyError, OverflowError, ZeroDivisionError) as error:
                # What a mutated file provokes in numpy and in us; the node is what its user can look at.
                raise BadInput(f"{place} cannot be read: {type(error).__name__}: {error}") from error

    def _input(self, name: str, makers: Mapping[str, int], nodes: Sequence[Any]) -> Value:
        if not name:
            return None
        try:
            return self.find(name)
        except KeyError:
            pass
        if name in makers:
            other = described(nodes[makers[name]], makers[name], self.prefix)
            raise BadInput(f"requires {name!r} before {other} makes it: the nodes have a cycle, or are not in order")
        raise BadInput(f"requires {name!r}, which no input, initializer or node of the graph is called")

    def _bind(self, proto: Any, made: Sequence[Value]) -> None:
        if len(made) < len(proto.output):
            raise BadInput(f"gives {len(made)} outputs, and the file names {len(proto.output)}")
        for name, value in zip(proto.output, made, strict=False):
            if name in self.names:
                raise BadInput(f"makes {name!r}, which is made before")
            if name:
                self.names[name] = value

    def node(self, proto: Any, inputs: tuple[Value, ...]) -> Sequence[Value]:
        """The values of one node's outputs."""
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        attributes = bound({a.name: decoded(a) for a in proto.attribute}, self.attributes)
        body = function_body(self.functions, proto, domain)
        if body is not None:
            return self.call(body, inputs, attributes, proto.name or proto.op_type)
        node = Node(
            op_type=proto.op_type,
            domain=domain,
            name=f"{self.prefix}{proto.name or next(filter(None, proto.output), proto.op_type)}",
            version=self.version(domain),
            inputs=inputs,
            outputs=tuple(proto.output),
            attributes=attributes,
            scope=self,
        )
        handler = imports().get((domain, proto.op_type))
        if handler is not None:
            try:
                made = handler(node)
            except DependsOnData:
                if not self.opaque or holds_graph(proto):
                    raise
                return black_box(node, proto)
            return [made] if made is None or isinstance(made, Term | Items) else list(made)
        return self._unknown(node, proto)

    def _unknown(self, node: Node, proto: Any) -> Sequence[Value]:
        body = standard_body(node, proto)
        if body is not None:
            return self.call(body, node.inputs, node.attributes, node.name)
        if self.opaque:
            return black_box(node, proto)
        name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        raise BadInput(f"the operator {name} of version {node.version} has no meaning here; --allow-opaque keeps it")

    def version(self, domain: str) -> int:
        """The version of a domain's operators. Raises BadInput when the model imports none."""
        if domain not in self.versions:
            raise BadInput(f"a node of the domain {domain or 'ai.onnx'!r} requires that the model imports its opset")
        return self.versions[domain]

    def call(
        self, body: Body, inputs: Sequence[Value], attributes: Mapping[str, Attribute], name: str
    ) -> Sequence[Value]:
        """The outputs of a function."""
        if self.depth > DEPTH:
            raise BadInput(f"functions may stand {DEPTH} deep in each other, got more")
        scope = self.inside(name)
        scope.outer, scope.versions = None, body.versions
        scope.attributes = {**body.standard, **attributes}
        scope.names = dict(zip(body.inputs, [*inputs, *[None] * len(body.inputs)], strict=False))
        scope.prefix = f"{self.prefix}{name.removeprefix(self.prefix)}/"
        scope.nodes(body.nodes)
        return [scope.names.get(output) for output in body.outputs]


def _fresh(name: str, taken: Container[str]) -> str:
    fresh, count = name, 1
    while fresh in taken:
        count += 1
        fresh = f"{name}_{count}"
    return fresh


def described(proto: Any, position: int, prefix: str = "") -> str:
    """A node in words: its name, or its place when it has none."""
    name = f"{prefix}{proto.name}" if proto.name else f"{prefix}#{position}"
    return f"node {name} ({proto.op_type})"


def outputs_of(values: Iterable[Value]) -> list[Term]:
    """Values as tensors. Raises BadInput for a sequence."""
    result: list[Term] = []
    for value in values:
        if not isinstance(value, Term):
            raise BadInput(f"an output requires a tensor, got {'nothing' if value is None else 'a sequence'}")
        result.append(value)
    return result
