"""Imports a graph node by node: each node's outputs become values, which later nodes find by name."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.builder.layout import broadcast
from glenside.importers.known_values import KnownValues
from glenside.importers.onnx.functions import Body, FunctionName, body_of, function_name, plain_domain, standard_body
from glenside.importers.onnx.node import Attribute, DependsOnData, Items, Node, NoTerm, Value, imports
from glenside.importers.onnx.opaque import black_box, holds_graph, origins_of
from glenside.importers.onnx.operators.com_microsoft import DOMAIN as MICROSOFT
from glenside.importers.onnx.operators.com_microsoft.missing import MISSING
from glenside.importers.onnx.schema import attributes_of, bound, check_node, demands
from glenside.importers.onnx.tensors import array_of, check_size
from glenside.importers.onnx.topological_order import in_order, makers_of, reads
from glenside.ir.bounds import MOST_NODES
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.names import shortened
from glenside.ir.operand import Array
from glenside.ir.operators.requirements import spelled
from glenside.ir.option_hints import black_boxes
from glenside.ir.term import Term, build, postorder

DEPTH = 64
"""The maximum nesting of functions and subgraphs."""

FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(MemoryError, RuntimeError, TypeError, ValueError),
)
"""Errors that a broken file can cause in numpy, in onnx and here; the message then names the node."""

_SMALL = 1 << 16  # bytes of a constant that is compared with earlier ones


@dataclass
class Tally:
    """State that all scopes of one model share.

    nodes      the number of nodes so far
    names      (kind, name) -> how often the name was requested
    constants  by name and value: the iterations of a loop share them
    weights    trainable constants: initializers that have axes
    boxes      names of black boxes, which must be unique
    remarks    messages to the user about how the model was imported
    origins    result of a node -> the black box that the node would have been
    made       term -> its node, in words: the call of a function rather than a node within it
    """

    nodes: int = 0
    names: Counter[tuple[str, str]] = field(default_factory=Counter)
    constants: dict[tuple[str, str, tuple[int, ...], bytes], Term] = field(default_factory=dict)
    weights: set[Term] = field(default_factory=set)
    boxes: set[str] = field(default_factory=set)
    remarks: dict[str, None] = field(default_factory=dict)
    origins: dict[Term, Term] = field(default_factory=dict)
    made: dict[Term, str] = field(default_factory=dict)

    def note(self, values: Sequence[Value], before: int, node: str) -> None:
        """Records the results of a node; terms of `made` after the first `before` belong to nodes within it."""
        if len(self.made) > before:
            self.made |= dict.fromkeys(islice(self.made, before, None), node)
        terms = (value for value in values if isinstance(value, Term))
        self.made |= {term: node for term in postorder(*terms, without=self.made) if term.children}

    def fresh(self, kind: str, name: str, taken: Container[str]) -> str:
        """Returns the name, or the first of name_2, name_3 .. that is not taken."""
        fresh = name
        while fresh in taken:
            self.names[kind, name] += 1
            fresh = f"{name}_{self.names[kind, name] + 1}"
        return fresh


@dataclass
class Scope:
    """Names and their values; a subgraph sees those of the enclosing graph, a function only its own.

    known_values  values known at import: constants, and inputs that a backend has
    functions     (domain, name) -> a function that the model declares
    attributes    of the function whose body this is
    opaque        True if an operator of unknown meaning becomes a black box
    dims          sizes of named dimensions
    given         these sizes and shapes of inputs, as the user wrote them
    types         name -> the TypeProto that the graph declares
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
    given: str = ""
    types: dict[str, Any] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def known(self, term: Term) -> Array | None:
        """Returns the value of a term if it is known at import, or None."""
        return self.known_values.of(term)

    def constant(self, name: str, value: Array) -> Term:
        """Returns a constant with that value, under that name or a similar one."""
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
        """Returns an array of one repeated number: exact if it is finite, otherwise a broadcast constant."""
        if np.isfinite(value):
            return build("full", dims, repr(value.item()) if value.dtype.kind != "b" else int(value), value.dtype.name)
        return broadcast(self.constant("value", np.asarray(value)), dims)

    def layer_name(self, name: str) -> str:
        """Returns the name, or a similar one that no layer has yet."""
        return self.tally.fresh("layer", name, self.builder.layers)

    def box_name(self, name: str) -> str:
        """Returns the name, or a similar one that no black box has yet."""
        self.tally.boxes.add(fresh := self.tally.fresh("box", name, self.tally.boxes))
        return fresh

    def inside(self, name: str) -> Scope:
        """Returns a scope for a subgraph of the named node. Raises BadInput if the nesting is too deep."""
        if self.depth == DEPTH:
            raise BadInput(f"graphs and functions may be nested {DEPTH} deep at most")
        prefix = f"{self.prefix}{name.removeprefix(self.prefix)}/"
        return replace(self, names=self.names.new_child(), types={}, prefix=prefix, depth=self.depth + 1)

    def declare(self, graph: Any) -> None:
        """Binds the initializers of a graph to their values, and reads its declared types."""
        self.types.update((value.name, value.type) for value in (*graph.value_info, *graph.output))
        for sparse in graph.sparse_initializer:
            raise BadInput(f"initializer {shortened(sparse.values.name)} is sparse; a dense one is required")
        for tensor in graph.initializer:
            if tensor.name in self.names.maps[0]:
                raise BadInput(f"initializer {shortened(tensor.name)} is defined twice; names must be unique")
            if not tensor.name:
                raise BadInput("an initializer requires a name, got none")
            leaf = self.constant(f"{self.prefix}{tensor.name}", array_of(tensor, self.folder))
            self.names[tensor.name] = leaf
            if leaf.access.rank:
                self.tally.weights.add(leaf)

    def evaluate(self, graph: Any, given: Sequence[Value] = ()) -> list[Value]:
        """Returns the outputs of a graph whose initializers are bound."""
        for formal, value in zip(graph.input, given, strict=False):
            self.names[formal.name] = value
        self.nodes(graph.node)
        for name in (value.name for value in graph.output):
            if name not in self.names:
                raise BadInput(f"output {shortened(name, True)} is not an output of a node, an input or an initializer")
        return [self.names[value.name] for value in graph.output]

    def nodes(self, nodes: Sequence[Any]) -> None:
        """Computes the outputs of these nodes. Raises BadInput that names the node."""
        for i in in_order(nodes, self.names):
            self._step(nodes[i], i)

    def _step(self, proto: Any, position: int) -> None:
        inputs: tuple[Value, ...] = ()
        try:
            inputs = tuple(map(self._input, proto.input))
            before = len(self.tally.made)
            self._bind(proto, made := self.node(proto, inputs))
            self.tally.note(made, before, described(proto, position, self.prefix))
        except GlensideError as error:
            message = error.message
            if not message.startswith("node "):
                message = f"{described(proto, position, self.prefix)}: {one_line(message)}{self._sizes(inputs)}"
            if isinstance(error, DependsOnData):
                raise DependsOnData(message, error.value) from None
            raise (NoTerm if isinstance(error, NoTerm) else BadInput)(message) from None
        except FAULTS as error:
            place = described(proto, position, self.prefix)
            raise BadInput(f"{place} cannot be read: {type(error).__name__}: {one_line(str(error))}") from error

    def _sizes(self, inputs: Sequence[Value]) -> str:
        """Describes the input sizes of a node that was refused, if the user gave the sizes that they depend on."""
        sizes = [spelled(value.access.dims) for value in inputs if isinstance(value, Term)]
        if not sizes or not self.given:
            return ""
        return f"; its inputs are of {', '.join(sizes[:6])}{', ..' if len(sizes) > 6 else ''} with {self.given}"

    def computable(self, nodes: Sequence[Any], wanted: Container[str]) -> list[str]:
        """Returns, after a node was refused, the tensors at which the graph can be cut instead.

        They depend on inputs, do not depend on the refused node, and are `wanted` or read by a node that does depend on
        it.
        """
        missing: set[str] = set()
        for i in in_order(nodes, self.names):
            if self._made(nodes[i]):
                continue
            if all(name in self.names for name in reads(nodes[i])):
                with suppress(GlensideError):
                    self._step(nodes[i], i)
            if not self._made(nodes[i]):
                missing |= reads(nodes[i])
        return [n for n in makers_of(nodes) if (n in missing or n in wanted) and self._is_computed(n)]

    def _made(self, node: Any) -> bool:
        return all(name in self.names for name in node.output if name)

    def _is_computed(self, name: str) -> bool:
        value = self.names.get(name)
        with suppress(BadInput):  # a value that is too large to be evaluated at import is known too
            return isinstance(value, Term) and self.known(value) is None
        return False

    def _input(self, name: str) -> Value:
        if not name:
            return None
        with suppress(KeyError):
            return self.names[name]
        raise BadInput(
            f"requires {shortened(name, True)}, which is not an input, an initializer or an output of a node"
        )

    def _bind(self, proto: Any, made: Sequence[Value]) -> None:
        own = self.names.maps[0]
        for i, name in enumerate(proto.output):
            if not name:
                continue
            if i >= len(made):
                raise BadInput(f"has {len(made)} outputs, and the file names {len(proto.output)}")
            if name in own:
                raise BadInput(f"defines {shortened(name, True)} a second time; names must be unique")
            value = made[i]
            if isinstance(value, Term):
                check_size(f"output {i}", value.access.dims)
            own[name] = value

    def node(self, proto: Any, inputs: tuple[Value, ...]) -> Sequence[Value]:
        """Returns the values of one node's outputs."""
        self.tally.nodes += 1
        if self.tally.nodes > MOST_NODES:
            raise BadInput(f"comes after {MOST_NODES} others, functions and loops unrolled; a model may have no more")
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
        handler = imports().get((domain, proto.op_type))
        if handler is not None:
            try:
                made = handler(node)
            except DependsOnData:
                if not self.opaque or holds_graph(proto):
                    raise
                return black_box(node, proto)
            values = [made] if made is None or isinstance(made, Term | Items) else list(made)
            self.tally.origins |= origins_of(node, proto, values)
            return values
        return self._unknown(node, proto)

    def _unknown(self, node: Node, proto: Any) -> Sequence[Value]:
        body = standard_body(node, proto)
        if body is not None:
            made = self.call(body, node.inputs, node.attributes, node.name)
            self.tally.origins |= origins_of(node, proto, made)
            return made
        if self.opaque:
            return black_box(node, proto)
        name = shortened(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
        why = MISSING.get(node.op_type) if node.domain == MICROSOFT else None
        reason = f": {why}" if why else ""
        words = f"has no meaning here{reason}; {black_boxes()} keeps it"
        raise NoTerm(f"the operator {name} of version {node.version} {words}")

    def version(self, domain: str) -> int:
        """Returns the version of a domain's operators. Raises BadInput if the model does not import the domain."""
        if domain not in self.versions:
            spelled = shortened(domain or "ai.onnx", True)
            raise BadInput(f"a node of the domain {spelled} requires that the model imports its opset")
        return self.versions[domain]

    def call(
        self, body: Body, inputs: Sequence[Value], attributes: Mapping[str, Attribute], name: str
    ) -> Sequence[Value]:
        """Returns the outputs of a function."""
        scope = self.inside(name)
        scope.versions, scope.attributes = body.versions, {**body.standard, **attributes}
        formals = list(body.function.input)
        scope.names = ChainMap(dict(zip(formals, [*inputs, *[None] * len(formals)], strict=False)))
        scope.nodes(body.function.node)
        return [scope.names.get(output) for output in body.function.output]


def described(proto: Any, position: int, prefix: str = "") -> str:
    """Describes a node by its name, or by its position if it has none."""
    name = f"{prefix}{proto.name}" if proto.name else f"{prefix}#{position}"
    return f"node {shortened(name[-80:])} ({shortened(proto.op_type)})"


def one_line(message: str) -> str:
    """Returns a message without line breaks and control characters, truncated if it lists many numbers."""
    words = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    return words if len(words) <= 300 else f"{words[:300]}..."
