"""Nodes, constants and names of an ONNX graph while it grows; it becomes a model in `model.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glenside.exporters.writer import Value
from glenside.ir.operand import Array
from glenside.ir.types import Dims

# The first in which all reductions take axes as an input; later ones only add dtypes, which runtimes lack.
OPSET = 18


ABSENT = Value("", Dims(), "")
"""An optional input or output that a node does without."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What an attribute of a node in a function is: the whole numbers of that attribute of the call."""

    name: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """An attribute as another file had it: the bytes of its message."""

    message: bytes


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX node. `domain` is "" for standard operators; `note` is for later steps, not the file; `name` is that of
    its first output, unless it is given.
    """

    op: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attributes: Mapping[str, Any]
    domain: str = ""
    doc: str = ""
    note: Any = None
    name: str = ""

    @property
    def output(self) -> Value:
        """The first output, of most operators the only one."""
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class GraphMark:
    """How much of a graph there is: how long its tables are, which only grow, and the numbers of names."""

    nodes: int
    tables: tuple[int, ...]
    counts: Mapping[str, int]


class Graph:
    """A growing graph. The same node on the same operands is made once; `label` names what is made next.

    weights    names of constants whose arrays are read when the model is made
    arrays     name -> array of the small constants that the translation needs
    fixed      names of what is made of constants alone
    typed      name -> one of several outputs of a node whose other outputs have types that nobody knows
    """

    def __init__(self, reserved: Sequence[str]) -> None:
        self.nodes: list[Node] = []
        self.weights: dict[str, Value] = {}
        self.arrays: dict[str, Array] = {}
        self.producers: dict[str, Node] = {}
        self.fixed: set[str] = set()
        self.typed: dict[str, Value] = {}
        self.label = self.doc = ""
        self._taken = set(reserved)
        self._counts: dict[str, int] = {}
        self._made: dict[tuple[Any, ...], tuple[Value, ...]] = {}
        self._constants: dict[tuple[Any, ...], Value] = {}

    def name(self, wanted: str) -> str:
        """The name, or the first of name-2, name-3 .. that nothing has; it is taken then."""
        fresh = wanted
        while fresh in self._taken:
            self._counts[wanted] = self._counts.get(wanted, 1) + 1
            fresh = f"{wanted}-{self._counts[wanted]}"
        self._taken.add(fresh)
        return fresh

    def reserve(self, name: str) -> str:
        """The name, which from now on nothing else gets; what has it already is called otherwise in the file."""
        self._taken.add(name)
        return name

    def numbered(self, wanted: str) -> str:
        """wanted_0, wanted_1 .., those that nothing has."""
        count = self._counts.get(f"{wanted}_", 0)
        self._counts[f"{wanted}_"] = count + 1
        return self.name(f"{wanted}_{count}")

    def constant(self, array: Array) -> Value:
        """A small constant; equal ones are one."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))  # the former makes a vector of a scalar
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            value = Value(self.numbered("constant"), Dims(array.shape), array.dtype.name)
            self._constants[key], self.arrays[value.name] = value, array
            self.fixed.add(value.name)
        return self._constants[key]

    def weight(self, name: str, dims: Dims, dtype: str) -> Value:
        """A constant of the program, under its own name."""
        self.fixed.add(name)
        return self.weights.setdefault(name, Value(name, dims, dtype))

    def node(
        self,
        op: str,
        inputs: Sequence[Value],
        dims: Sequence[int],
        dtype: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        main: bool = False,
        domain: str = "",
        note: Any = None,
    ) -> Value:
        """The value of a node. Under a label, the `main` one is named by it, the others are LABEL/OP."""
        output = (Dims(dims), dtype)
        return self.several(op, inputs, [output], attributes, main=main, domain=domain, note=note)[0]

    def several(
        self,
        op: str,
        inputs: Sequence[Value],
        outputs: Sequence[tuple[Dims, str] | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        main: bool = False,
        domain: str = "",
        note: Any = None,
        which: str = "",
    ) -> tuple[Value, ...]:
        """The values of a node, of dims and a dtype each; None is one that the node does without.

        `which` tells nodes apart that are not the same although they look it.
        """
        attributes = attributes or {}
        key = (domain, op, which, len(outputs), *(i.name for i in inputs), *attributes.items())
        if key in self._made:
            return self._made[key]
        if self.label:
            name = self.name(self.label if main else f"{self.label}/{op}")
        else:
            name = self.numbered(op)
        values: list[Value] = []
        free = name
        for output in outputs:
            values.append(Value(free or self.name(f"{name}/{len(values)}"), *output) if output else ABSENT)
            free = "" if output else free
        made = Node(op, tuple(inputs), tuple(values), attributes, domain, self.doc if main else "", note)
        self.nodes.append(made)
        self.producers.update((value.name, made) for value in values if value.name)
        if all(value.name in self.fixed for value in inputs):
            self.fixed.update(value.name for value in values)
        self._made[key] = made.outputs
        return made.outputs

    def mark(self) -> GraphMark:
        """How much there is now."""
        return GraphMark(len(self.nodes), tuple(map(len, self._tables())), dict(self._counts))

    def _tables(self) -> tuple[dict[Any, Any], ...]:
        return self.weights, self.arrays, self._made, self._constants, self.typed

    def undo(self, mark: GraphMark) -> None:
        """Take back what was made since."""
        gone = {value.name for node in self.nodes[mark.nodes :] for value in node.outputs}
        weights, arrays, *_ = mark.tables
        gone.update([*self.arrays][arrays:])
        fixed = gone.union([*self.weights][weights:])
        del self.nodes[mark.nodes :]
        for table, size in zip(self._tables(), mark.tables, strict=True):
            shorten(table, size)
        for name in gone:
            self.producers.pop(name, None)
        self._taken -= gone
        self.fixed -= fixed
        self._counts = dict(mark.counts)

    def copy(self, x: Value) -> Value:
        """The same value under another name."""
        output = Value(self.numbered("Identity"), x.dims, x.dtype)
        self.nodes.append(Node("Identity", (x,), (output,), {}))
        self.producers[output.name] = self.nodes[-1]
        return output

    def producer(self, value: Value, op: str) -> Node | None:
        """The node that makes a value, when it is one of that operator."""
        node = self.producers.get(value.name)
        return node if node is not None and node.op == op and not node.domain else None

    def used(self, outputs: Sequence[Value]) -> list[Node]:
        """The nodes that the outputs need, in order."""
        needed, kept = {value.name for value in outputs}, []
        for node in reversed(self.nodes):
            if any(value.name in needed for value in node.outputs if value.name):
                needed.update(value.name for value in node.inputs)
                kept.append(node)
        return kept[::-1]


def shorten(table: dict[Any, Any], size: int) -> None:
    """Leave the first entries of a table."""
    while len(table) > size:
        table.popitem()
