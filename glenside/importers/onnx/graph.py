"""A graph walked in order: each node becomes values, which its readers find by name; and what of them is known."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.builder.layout import broadcast
from glenside.importers.onnx.functions import Body, FunctionName, body_of, function_name, plain_domain, standard_body
from glenside.importers.onnx.node import Attribute, DependsOnData, Items, Node, Value, imports
from glenside.importers.onnx.opaque import black_box, holds_graph
from glenside.importers.onnx.schema import attributes_of, bound, check_node, demands
from glenside.importers.onnx.tensors import array_of, check_size
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.names import shortened
from glenside.ir.operand import Array
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import AccessType, Tensor
from glenside.semantics.interpreter import evaluate

DEPTH = 64
"""Functions and subgraphs in each other."""

NODES = 100_000
"""Nodes of one model, those of functions and loops counted each time: a small file can ask for any number."""

KNOWN = 1 << 26
"""Elements that are evaluated while a model is read: shapes, axes, and what they are computed from, are small."""

FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(MemoryError, RuntimeError, TypeError, ValueError),
)
"""What a broken file provokes in numpy, in onnx and in us; the node is what its user can look at."""

_SMALL = 1 << 16  # bytes of a constant that is worth comparing


class KnownValues:
    """Values of tensors by name, and through them those of terms; each term is evaluated once."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.tensors = dict(values)
        self._fixed: dict[Term, bool] = {}
        self._large: set[Term] = set()
        self._evaluated: dict[Term, Array] = {}

    def of(self, term: Term) -> Array | None:
        """The value of the term, or None when it depends on what is not known."""
        if not self._is_fixed(term):
            return None
        if term in self._large:
            raise BadInput(f"what must be known beforehand is computed from at most {KNOWN} elements, got more")
        if term not in self._evaluated:
            (self._evaluated[term],) = evaluate([term], self.tensors, given=self._evaluated)
        return self._evaluated[term]

    def _is_fixed(self, root: Term) -> bool:
        for term in postorder(root, without=self._fixed):
            if term.operator.name == "access-tensor":
                tensor = term.attributes[0]
                self._fixed[term] = isinstance(tensor, Tensor) and tensor.name in self.tensors
                continue
            self._fixed[term] = not term.operator.opaque and all(self._fixed[child] for child in term.children)
            large = isinstance(term.type, AccessType) and term.type.size > KNOWN
            if large or any(child in self._large for child in term.children):
                self._large.add(term)
        return self._fixed[root]


@dataclass
class Tally:
    """What the scopes of one model keep together.

    nodes      so far
    names      how often a name was given to a kind of thing
    constants  by name and value: the passes through a loop share theirs
    boxes      names of black boxes that must differ from all others
    """

    nodes: int = 0
    names: Counter[tuple[str, str]] = field(default_factory=Counter)
    constants: dict[tuple[str, str, tuple[int, ...], bytes], Term] = field(default_factory=dict)
    boxes: set[str] = field(default_factory=set)

    def fresh(self, kind: str, name: str, taken: Container[str]) -> str:
        """The name, or the first of name_2, name_3 .. that is not taken."""
        fresh = name
        while fresh in taken:
            self.names[kind, name] += 1
            fresh = f"{name}_{self.names[kind, name] + 1}"
        return fresh


@dataclass
class Scope:
    """Names and their values; a subgraph sees those of the graph around it, a function only its own.

    known_values  what is known beforehand: constants, and inputs that a backend has in hand
    functions     (domain, name) -> a function that the model itself declares
    attributes    of the function that this is the body of
    opaque        whether an operator without a meaning is kept as a black box
    dims          sizes of named dimensions
    types         name -> the TypeProto that the graph declares for it
    """

    builder: Builder
    known_values: KnownValues
    versions: Mapping[str, int]
    functions: Mapping[FunctionName, Any]
    folder: Path | None = None
    opaque: bool = False
    prefix: str = ""
    depth: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    names: ChainMap[str, Value] = field(default_factory=ChainMap)
    dims: Mapping[str, int] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def known(self, term: Term) -> Array | None:
        """The value of a term that depends on nothing but what is known beforehand, or None."""
        return self.known_values.of(term)

    def constant(self, name: str, value: Array) -> Term:
        """A constant with that value, under that name or a name like it."""
        key = (name, value.dtype.name, value.shape, value.tobytes() if value.nbytes <= _SMALL else b"")
        if key in self.tally.constants:
            return self.tally.constants[key]
        fresh = self.tally.fresh("tensor", name, self.builder.tensors)
        leaf = self.builder.constant(fresh, value.shape, value.dtype.name, value)
        self.known_values.tensors[fresh] = value
        if value.nbytes <= _SMALL:
            self.tally.constants[key] = leaf
        return leaf

    def filled(self, dims: Sequence[int], value: Any) -> Term:
        """One number everywhere: exact when it is finite, else a constant broadcast."""
        if np.isfinite(value):
            return build("full", dims, repr(value.item()) if value.dtype.kind != "b" else int(value), value.dtype.name)
        return broadcast(self.constant("value", np.asarray(value)), dims)

    def layer_name(self, name: str) -> str:
        """The name, or one like it that no layer has yet."""
        return self.tally.fresh("layer", name, self.builder.layers)

    def box_name(self, name: str) -> str:
        """The name, or one like it that no black box has yet."""
        self.tally.boxes.add(fresh := self.tally.fresh("box", name, self.tally.boxes))
        return fresh

    def inside(self, name: str) -> Scope:
        """A scope for a subgraph of the node of that name. Raises BadInput when that is too deep."""
        if self.depth == DEPTH:
            raise BadInput(f"graphs and functions may stand {DEPTH} deep in each other, got more")
        prefix = f"{self.prefix}{name.removeprefix(self.prefix)}/"
        return replace(self, names=self.names.new_child(), types={}, prefix=prefix, depth=self.depth + 1)

    def declare(self, graph: Any) -> None:
        """Give the initializers of a graph their values, and see which types it declares."""
        self.types.update((value.name, value.type) for value in (*graph.value_info, *graph.output))
        for sparse in graph.sparse_initializer:
            raise BadInput(f"initializer {shortened(sparse.values.name)} is sparse; a dense one is required")
        for tensor in graph.initializer:
            if tensor.name in self.names.maps[0]:
                raise BadInput(f"initializer {shortened(tensor.name)} is there twice; names are to be given once")
            if not tensor.name:
                raise BadInput("an initializer requires a name, got none")
            self.names[tensor.name] = self.constant(f"{self.prefix}{tensor.name}", array_of(tensor, self.folder))

    def evaluate(self, graph: Any, given: Sequence[Value] = ()) -> list[Value]:
        """The outputs of a graph whose initializers have their values, here or around."""
        for formal, value in zip(graph.input, given, strict=False):
            self.names[formal.name] = value
        self.nodes(graph.node)
        for name in (value.name for value in graph.output):
            if name not in self.names:
                raise BadInput(f"output {shortened(name, True)} is made by no node, and is no input or initializer")
        return [self.names[value.name] for value in graph.output]

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
                inner = error.message.startswith("node ")
                raise BadInput(error.message if inner else f"{place}: {one_line(error.message)}") from None
            except FAULTS as error:
                raise BadInput(f"{place} cannot be read: {type(error).__name__}: {one_line(str(error))}") from error

    def _input(self, name: str, makers: Mapping[str, int], nodes: Sequence[Any]) -> Value:
        if not name:
            return None
        with suppress(KeyError):
            return self.names[name]
        spelled = shortened(name, True)
        if name in makers:
            other = described(nodes[makers[name]], makers[name], self.prefix)
            raise BadInput(f"requires {spelled} before {other} makes it: the nodes have a cycle, or are not in order")
        raise BadInput(f"requires {spelled}, which no input, initializer or node of the graph is called")

    def _bind(self, proto: Any, made: Sequence[Value]) -> None:
        own = self.names.maps[0]
        for i, name in enumerate(proto.output):
            if not name:
                continue
            if i >= len(made):
                raise BadInput(f"has {len(made)} outputs, and the file names {len(proto.output)}")
            if name in own:
                raise BadInput(f"makes {shortened(name, True)}, which is there already; names are to be given once")
            value = made[i]
            if isinstance(value, Term):
                check_size(f"output {i}", value.access.dims)
            own[name] = value

    def node(self, proto: Any, inputs: tuple[Value, ...]) -> Sequence[Value]:
        """The values of one node's outputs."""
        self.tally.nodes += 1
        if self.tally.nodes > NODES:
            raise BadInput(f"comes after {NODES} others, functions and loops unrolled; a model may have no more")
        if not proto.op_type:
            raise BadInput("requires the name of an operator, got none")
        domain = plain_domain(proto.domain)
        attributes = bound(attributes_of(proto), self.attributes)
        function = self.functions.get(function_name(proto))
        if function is not None:
            if len(inputs) > len(function.input):
                raise BadInput(f"the function {proto.op_type} has {len(function.input)} inputs, got {len(inputs)}")
            return self.call(body_of(function), inputs, attributes, proto.name or proto.op_type)
        needs = demands(proto.op_type, self.version(domain), domain)
        if needs is not None:
            check_node(needs, proto.input, inputs, proto.output, attributes)
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
        handler = None if domain else imports().get(proto.op_type)
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
        name = shortened(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
        raise BadInput(f"the operator {name} of version {node.version} has no meaning here; --allow-opaque keeps it")

    def version(self, domain: str) -> int:
        """The version of a domain's operators. Raises BadInput when the model imports none."""
        if domain not in self.versions:
            spelled = shortened(domain or "ai.onnx", True)
            raise BadInput(f"a node of the domain {spelled} requires that the model imports its opset")
        return self.versions[domain]

    def call(
        self, body: Body, inputs: Sequence[Value], attributes: Mapping[str, Attribute], name: str
    ) -> Sequence[Value]:
        """The outputs of a function."""
        scope = self.inside(name)
        scope.versions, scope.attributes = body.versions, {**body.standard, **attributes}
        formals = list(body.function.input)
        scope.names = ChainMap(dict(zip(formals, [*inputs, *[None] * len(formals)], strict=False)))
        scope.nodes(body.function.node)
        return [scope.names.get(output) for output in body.function.output]


def described(proto: Any, position: int, prefix: str = "") -> str:
    """A node in words: its name, or its place when it has none."""
    name = f"{prefix}{proto.name}" if proto.name else f"{prefix}#{position}"
    return f"node {shortened(name[-80:])} ({shortened(proto.op_type)})"


def one_line(message: str) -> str:
    """A message without line breaks and control characters, cut where it shows many numbers of a file."""
    words = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    return words if len(words) <= 300 else f"{words[:300]}..."
