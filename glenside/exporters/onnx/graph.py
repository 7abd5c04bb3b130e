"""Nodes, constants and names of an ONNX graph while it grows; it becomes a model in `model.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.types import Dims


@dataclass(frozen=True, slots=True)
class Value:
    """What a node, a constant or an input gives: its name in the file, its dims and its dtype."""

    name: str
    dims: Dims
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX node with one output. `domain` is "" for standard operators; `note` is for later steps, not the file."""

    op: str
    inputs: tuple[Value, ...]
    output: Value
    attributes: Mapping[str, Any]
    domain: str = ""
    doc: str = ""
    note: Any = None


class Graph:
    """A growing graph. The same node on the same operands is made once; `label` names what is made next.

    weights    names of constants whose arrays are read when the model is made
    arrays     name -> array of the small constants that the translation needs
    """

    def __init__(self, reserved: Sequence[str]) -> None:
        self.nodes: list[Node] = []
        self.weights: dict[str, Value] = {}
        self.arrays: dict[str, Array] = {}
        self.producers: dict[str, Node] = {}
        self.label = self.doc = ""
        self._taken = set(reserved)
        self._counts: dict[str, int] = {}
        self._made: dict[tuple[Any, ...], Value] = {}
        self._constants: dict[tuple[Any, ...], Value] = {}

    def name(self, wanted: str) -> str:
        """The name, or the first of name-2, name-3 .. that nothing has; it is taken then."""
        fresh = wanted
        while fresh in self._taken:
            self._counts[wanted] = self._counts.get(wanted, 1) + 1
            fresh = f"{wanted}-{self._counts[wanted]}"
        self._taken.add(fresh)
        return fresh

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
        return self._constants[key]

    def weight(self, name: str, dims: Dims, dtype: str) -> Value:
        """A constant of the program, under its own name."""
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
        attributes = attributes or {}
        key = (domain, op, *(i.name for i in inputs), *attributes.items())
        if key in self._made:
            return self._made[key]
        if self.label:
            name = self.name(self.label if main else f"{self.label}/{op}")
        else:
            name = self.numbered(op)
        output = Value(name, Dims(dims), dtype)
        made = Node(op, tuple(inputs), output, attributes, domain, self.doc if main else "", note)
        self.nodes.append(made)
        self.producers[name] = made
        self._made[key] = output
        return output

    def copy(self, x: Value) -> Value:
        """The same value under another name."""
        output = Value(self.numbered("Identity"), x.dims, x.dtype)
        self.nodes.append(Node("Identity", (x,), output, {}))
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
            if node.output.name in needed:
                needed.update(value.name for value in node.inputs)
                kept.append(node)
        return kept[::-1]
