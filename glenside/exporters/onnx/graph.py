"""Holds the nodes, constants and names of a growing ONNX graph; `model.py` makes a model of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glenside.exporters.writer import Value
from glenside.ir.operand import Array
from glenside.ir.types import Dims

# The first version in which all reductions take axes as an input; later ones only add dtypes, which runtimes lack.
OPSET = 18


ABSENT = Value("", Dims(), "")
"""An optional input or output that a node omits."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a node in a function: the integers of the named attribute of the call."""

    name: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """An attribute from another file: the bytes of its message."""

    message: bytes


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX node.

    `domain` is "" for standard operators; `note` is for later steps, not the file; `name` defaults to that of its first
    output.
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
        """The first output, for most operators the only one."""
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class GraphMark:
    """A position in a graph: the lengths of its tables, which only grow, and the counters of names."""

    nodes: int
    tables: tuple[int, ...]
    counts: Mapping[str, int]


class Graph:
    """A growing graph. Equal nodes on equal operands are shared; `label` names the next nodes.

    weights    names of constants whose arrays are read when the model is made
    arrays     name -> array of small constants that the export needs
    fixed      names of values that depend on constants alone
    typed      name -> an output of a node that has other outputs of unknown types
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
        """Returns the name, or the first of name-2, name-3 .. that is free, and reserves it."""
        fresh = wanted
        while fresh in self._taken:
            self._counts[wanted] = self._counts.get(wanted, 1) + 1
            fresh = f"{wanted}-{self._counts[wanted]}"
        self._taken.add(fresh)
        return fresh

    def reserve(self, name: str) -> str:
        """Reserves a name; an earlier value of that name is renamed in the file."""
        self._taken.add(name)
        return name

    def numbered(self, wanted: str) -> str:
        """Returns the first free name of wanted_0, wanted_1 .."""
        count = self._counts.get(f"{wanted}_", 0)
        self._counts[f"{wanted}_"] = count + 1
        return self.name(f"{wanted}_{count}")

    def constant(self, array: Array) -> Value:
        """Returns a small constant; equal ones are shared."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))  # ascontiguousarray makes a vector of a scalar
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            value = Value(self.numbered("constant"), Dims(array.shape), array.dtype.name)
            self._constants[key], self.arrays[value.name] = value, array
            self.fixed.add(value.name)
        return self._constants[key]

    def weight(self, name: str, dims: Dims, dtype: str) -> Value:
        """Returns a constant of the program, under its own name."""
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
        """Emits a node and returns its value. Under a label, the `main` node has the label's name, others are
        LABEL/OP.
        """
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
        """Emits a node and returns its values, with dims and a dtype each; None omits an output.

        `which` distinguishes nodes that look equal but are not.
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
        """Returns the current position."""
        return GraphMark(len(self.nodes), tuple(map(len, self._tables())), dict(self._counts))

    def _tables(self) -> tuple[dict[Any, Any], ...]:
        return self.weights, self.arrays, self._made, self._constants, self.typed

    def undo(self, mark: GraphMark) -> None:
        """Rolls back to a position."""
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
        """Returns the same value under another name."""
        output = Value(self.numbered("Identity"), x.dims, x.dtype)
        self.nodes.append(Node("Identity", (x,), (output,), {}))
        self.producers[output.name] = self.nodes[-1]
        return output

    def producer(self, value: Value, op: str) -> Node | None:
        """Returns the node that computes a value if it is of that operator, or None."""
        node = self.producers.get(value.name)
        return node if node is not None and node.op == op and not node.domain else None

    def used(self, outputs: Sequence[Value]) -> list[Node]:
        """Returns the nodes on which the outputs depend, in order."""
        needed, kept = {value.name for value in outputs}, []
        for node in reversed(self.nodes):
            if any(value.name in needed for value in node.outputs if value.name):
                needed.update(value.name for value in node.inputs)
                kept.append(node)
        return kept[::-1]


def shorten(table: dict[Any, Any], size: int) -> None:
    """Removes all but the first entries of a table."""
    while len(table) > size:
        table.popitem()
