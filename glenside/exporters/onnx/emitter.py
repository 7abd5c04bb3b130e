"""Emits ONNX nodes for the steps of exports, or finds that no node is needed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from glenside.exporters.onnx.graph import Graph, GraphMark, shorten
from glenside.exporters.onnx.sink_transposes import sunk
from glenside.exporters.onnx.supported_dtypes import required_dtype, supported_dtype
from glenside.exporters.writer import Held, Value, Writer
from glenside.ir.dtypes import REALS, RECORDS, STORED, WHOLE
from glenside.ir.operand import Array
from glenside.ir.rational import exact
from glenside.ir.rearrangement import Rearrangement, of_transpose
from glenside.ir.scalar import Primitive
from glenside.ir.term import Term, constants_under
from glenside.ir.types import Dims
from glenside.semantics.native import Native

_INT64_MIN = -(2**63)


@dataclass(frozen=True, slots=True)
class Padding:
    """The effect of a Pad node: elements of one value before and after each axis of its source."""

    source: Value
    before: Dims
    after: Dims
    fill: Array


@dataclass
class Function:
    """A local function of the model: its nodes over two inputs, a and b."""

    name: str
    attributes: tuple[str, ...]
    graph: Graph
    output: Value
    doc: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A position to which the emitter can be rolled back."""

    graph: GraphMark
    functions: int
    versions: frozenset[tuple[str, str, int]]
    held: int

    @property
    def nodes(self) -> int:
        return self.graph.nodes


def _nothing(term: Term) -> None:
    raise KeyError(term)


@dataclass
class Emitter(Writer[Value]):
    """Emits the nodes of one graph.

    constants    the values of the program's constants
    versions     (domain, operator, version) of nodes that need the meaning of that version
    held         the exported value of each term
    constancy    term -> True if it depends on constants alone, for terms that were examined
    came         terms that were the results of nodes
    numbers      the number that a constant repeats everywhere, for constants that were examined
    write        exports a term and its operands
    """

    graph: Graph
    functions: dict[str, Function] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    versions: set[tuple[str, str, int]] = field(default_factory=set)
    held: dict[Term, Held[Value]] = field(default_factory=dict)
    constancy: dict[Term, bool] = field(default_factory=dict)
    came: Container[Term] = ()
    numbers: dict[Term, float | None] = field(default_factory=dict)
    write: Callable[[Term], None] = _nothing

    def held_of(self, term: Term) -> Held[Value]:
        """Returns the exported value of a term, exporting it if necessary."""
        if term not in self.held:
            self.write(term)
        return self.held[term]

    def value_of(self, term: Term) -> Value:
        """Returns the array of a term."""
        return self.in_memory(self.held_of(term))

    def is_constant(self, term: Term) -> bool:
        """True if a term, of the program or made by an exporter, depends on constants alone."""
        if term not in self.constancy:
            self.constancy.update(constants_under(term))
        return self.constancy[term]

    def mark(self) -> Mark:
        """Returns the current position."""
        return Mark(self.graph.mark(), len(self.functions), frozenset(self.versions), len(self.held))

    def undo(self, mark: Mark) -> None:
        """Rolls back to a position."""
        self.graph.undo(mark.graph)
        shorten(self.functions, mark.functions)
        shorten(self.held, mark.held)
        self.versions.intersection_update(mark.versions)

    # Constants

    def number(self, value: str | int, dtype: str, rank: int = 0) -> Value:
        """Returns one exact number, with `rank` axes of size 1."""
        known = exact(str(value))
        assert known is not None, "numbers are checked when a term is built"
        return self.graph.constant(Native().constant(known, dtype).reshape((1,) * rank))

    def lowest(self, dtype: str) -> Value:
        """Returns the neutral element of a maximum."""
        return self.graph.constant(Native().lowest(dtype))

    def integers(self, values: Any) -> Value:
        """Returns an int64 constant of any rank: sizes, axes, indices."""
        return self.graph.constant(np.asarray(values, np.int64))

    def counting(self, n: int) -> Value:
        """Returns the numbers from 0 to n - 1, int64."""
        return self.graph.node("Range", [self.integers(i) for i in (0, n, 1)], (n,), "int64")

    def full(self, dims: Sequence[int], value: str | int, dtype: str) -> Value:
        """Returns one repeated number; an array without elements is a constant."""
        if 0 in dims:
            return self.graph.constant(np.zeros(tuple(dims), dtype))
        return self.expand(self.number(value, dtype, len(dims)), dims)

    def known(self, x: Value) -> Array | None:
        """Returns the value of a constant, also through casts and reshapes; None for others."""
        node = self.graph.producers.get(x.name)
        if node is not None and node.op in ("Cast", "Reshape") and not node.domain:
            inner = self.known(node.inputs[0])
            return None if inner is None else Native().cast(inner, x.dtype).reshape(x.dims)
        return self.graph.arrays.get(x.name, self.constants.get(x.name))

    # Nodes that compute

    def run(
        self,
        op: str,
        inputs: Sequence[Value],
        dims: Sequence[int],
        dtype: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        extra: Sequence[Value] = (),
        main: bool = False,
    ) -> Value:
        """Emits a node on operands of one dtype, computed in a dtype that runtimes support; `extra` inputs are not
        cast.

        The result has the dtype of the operands, or the given one, which is then the node's own, such as bool.
        """
        own = inputs[0].dtype
        wide = required_dtype(op, own)
        operands = [*(self.cast(x, wide) for x in inputs), *extra]
        result = self.graph.node(op, operands, dims, dtype or wide, attributes, main=main)
        return result if dtype else self.cast(result, own)

    def elementwise(
        self,
        op: str,
        *operands: Value,
        dtype: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        main: bool = True,
    ) -> Value:
        """Emits an operator of several operands that broadcast, without expansions that broadcasting makes
        redundant.
        """
        if op in ("Min", "Max") and supported_dtype(op, operands[0].dtype) is None:
            a, b = operands
            return self.where(self.elementwise("Less" if op == "Min" else "Greater", a, b, dtype="bool"), a, b)
        dims = np.broadcast_shapes(*(x.dims for x in operands))
        short = [self.unexpanded(x) for x in operands]
        if np.broadcast_shapes(*(x.dims for x in short)) != dims:
            short[0] = operands[0]
        if np.broadcast_shapes(*(x.dims for x in short)) != dims:
            short = list(operands)
        return self.of_each(short, dims, lambda a, n: self.run(op, a, n, dtype, attributes, main=main))

    def of_each(
        self, operands: Sequence[Value], dims: Sequence[int], make: Callable[[Sequence[Value], Dims], Value]
    ) -> Value:
        """Emits an elementwise operator of operands that broadcast to the dims, in their memory order."""
        found = sunk(self.graph, operands, Dims(dims))
        if found is None:
            return make(operands, Dims(dims))
        placed = []
        for each in found.operands:
            x = self.view(each.value, [axis.size for axis in each.axes])
            placed.append(self.view(self.transpose(x, [each.axes.index(axis) for axis in each.wanted]), each.dims))
        made = make(placed, found.dims)
        return self.view(self.transpose(self.view(made, found.parts), found.order), dims)

    def apply(self, primitive: Primitive, operands: Sequence[Value]) -> Value:
        return self.elementwise(primitive.onnx, *operands, dtype="bool" if primitive.gives == "bool" else None)

    def where(self, condition: Value, then: Value, otherwise: Value) -> Value:
        """Returns `then` where the condition is true, else `otherwise`."""
        own, wide = then.dtype, required_dtype("Where", then.dtype)
        operands = [condition, self.cast(then, wide), self.cast(otherwise, wide)]
        dims = np.broadcast_shapes(*(x.dims for x in operands))
        chosen = self.of_each(operands, dims, lambda a, n: self.graph.node("Where", a, n, wide, main=True))
        return self.cast(chosen, own)

    def cast(self, x: Value, dtype: str) -> Value:
        """Casts to another dtype."""
        if x.dtype == dtype:
            return x
        if x.dtype in REALS and dtype in WHOLE and dtype in STORED:
            x = self.cast(x, "int32")  # runtimes round on the way to fewer bits, and truncate on the way to int32
        if x.dtype in WHOLE and dtype in REALS and dtype in STORED:
            x = self.cast(x, "float32")  # from 16 bits, runtimes confuse some values that are too large
        attributes: dict[str, Any] = {"to": dtype}
        if dtype in REALS and RECORDS[dtype].bits == 8:
            attributes["saturate"] = 0  # beyond the largest the result is inf or nan, as for other floats
        return self.graph.node("Cast", [x], x.dims, dtype, attributes)

    def ordered(self, x: Value) -> Value:
        """Returns numbers in the same order as those of x, in a dtype in which runtimes sort."""
        wide = self.cast(x, required_dtype("TopK", x.dtype))
        if x.dtype != "uint64":
            return wide
        return self.elementwise("Add", wide, self.number(_INT64_MIN, "int64", x.rank), main=False)

    def fold(self, op: str, x: Value, split: int) -> Value:
        """Folds all axes from `split` on by an associative operator into one axis of size 1."""
        return self.tree(op, self.view(x, x.dims.take(split).append([x.dims.drop(split).product()])), split)

    def chain(self, op: str, operands: Iterable[Value]) -> Value:
        """Folds the operands from left to right."""
        return reduce(lambda a, b: self.elementwise(op, a, b), operands)

    def tree(self, op: str, x: Value, axis: int) -> Value:
        """Folds an axis by an associative operator, by halves; it keeps size 1."""
        while x.dims[axis] > 1:
            half = x.dims[axis] // 2
            folded = self.elementwise(op, self.slice(x, axis, 0, half), self.slice(x, axis, half, 2 * half))
            odd = self.slice(x, axis, 2 * half, x.dims[axis])
            x = self.concat([folded, odd], axis) if odd.dims[axis] else folded
        return x

    # Nodes that move

    def view(self, x: Value, dims: Sequence[int]) -> Value:
        x = self.base(x)
        if x.dims == tuple(dims):
            return x
        if x.name in self.graph.arrays:
            return self.graph.constant(self.graph.arrays[x.name].reshape(tuple(dims)))
        return self.graph.node("Reshape", [x, self.integers(dims)], dims, x.dtype)

    def base(self, x: Value) -> Value:
        """Returns the base of a reshaped value."""
        reshaped = self.graph.producer(x, "Reshape")
        return reshaped.inputs[0] if reshaped else x

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        dims = x.dims.permute(order)
        moved = [axis for axis in order if x.dims[axis] != 1]
        if moved == sorted(moved):
            return self.view(x, dims)
        expanded = self.graph.producer(x, "Expand")
        if expanded and expanded.inputs[0].rank == x.rank:
            return self.expand(self.transpose(expanded.inputs[0], order), dims)
        source, both = self._merged(x, of_transpose(x.dims, order))
        if source is not x:
            return self.view(self._rearranged(source, both, dims), dims)
        return self.graph.node("Transpose", [x], dims, x.dtype, {"perm": tuple(order)})

    def _merged(self, x: Value, how: Rearrangement) -> tuple[Value, Rearrangement]:
        """Returns the value in a chain of transposes from which one merged transpose is cheapest, and that
        rearrangement.
        """
        chain, below = [(x, how)], list[int]()
        while (first := self.graph.producer(self.base(x), "Transpose")) is not None:
            inner = of_transpose(first.inputs[0].dims, first.attributes["perm"])
            if (both := inner.then(how)) is None:
                break
            x, how = first.inputs[0], both
            chain.append((x, how))
            below.append(_copies(inner))
        costs = [_copies(how) + sum(below[depth:]) for depth, (_, how) in enumerate(chain)]
        return chain[max(depth for depth, cost in enumerate(costs) if cost == min(costs))]

    def _rearranged(self, x: Value, how: Rearrangement, dims: Dims) -> Value:
        """Emits one transpose: of x itself if its axes are the parts, else of the fewest parts."""
        if how.is_identity:
            return x
        own = how.cut_parts(_without_ones(x.dims))
        plain = own if own and own.result == _without_ones(dims) else how
        x = self.view(x, plain.parts)
        return self.graph.node("Transpose", [x], plain.result, x.dtype, {"perm": plain.order})

    def expand(self, x: Value, dims: Sequence[int]) -> Value:
        x = self.unexpanded(x)
        if x.dims == tuple(dims):
            return x
        return self.graph.node("Expand", [x, self.integers(dims)], dims, x.dtype)

    def unexpanded(self, x: Value) -> Value:
        """Returns the operand of an expansion of the same rank, to which broadcasting is equivalent."""
        expanded = self.graph.producer(x, "Expand")
        return expanded.inputs[0] if expanded and expanded.inputs[0].rank == x.rank else x

    def slice(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        size = len(range(start, stop, step))
        if not size:
            return self.full(x.dims.set(axis, 0), 0, x.dtype)
        if (start, size) == (0, x.dims[axis]):
            return x
        bounds = [self.integers([n]) for n in (start, stop, axis, step)]
        return self.graph.node("Slice", [x, *(bounds[:3] if step == 1 else bounds)], x.dims.set(axis, size), x.dtype)

    def flip(self, x: Value, axis: int) -> Value:
        if x.dims[axis] == 1:
            return x
        bounds = [self.integers([n]) for n in (-1, _INT64_MIN, axis, -1)]
        return self.graph.node("Slice", [x, *bounds], x.dims, x.dtype)

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """Concatenates the parts that have elements."""
        kept = [part for part in parts if part.dims[axis]] or list(parts[:1])
        if len(kept) == 1:
            return kept[0]
        dims = kept[0].dims.set(axis, sum(part.dims[axis] for part in kept))
        return self.graph.node("Concat", kept, dims, kept[0].dtype, {"axis": axis})

    def pad(self, x: Value, axis: int, before: int, after: int, fill: Value | None = None) -> Value:
        """Pads one axis with one value, ()(), by default 0; merges pads of pads."""
        fill = fill or self.number(0, x.dtype)
        value, none = self.graph.arrays[fill.name], Dims((0,) * x.rank)
        befores, afters = none.set(axis, before), none.set(axis, after)
        inner = self.padding(x)
        if inner and np.array_equal(inner.fill, value):
            befores = inner.before.set(axis, inner.before[axis] + before)
            afters = inner.after.set(axis, inner.after[axis] + after)
            x = inner.source
        if not any(befores) and not any(afters):
            return x
        dims = Dims(b + n + a for b, n, a in zip(befores, x.dims, afters, strict=True))
        if 0 in x.dims:
            return self.expand(self.view(fill, (1,) * len(dims)), dims)
        wide = required_dtype("Pad", x.dtype)
        inputs = [self.cast(x, wide), self.integers([*befores, *afters]), self.cast(fill, wide)]
        padded = self.graph.node("Pad", inputs, dims, wide, note=Padding(x, befores, afters, value))
        return self.cast(padded, x.dtype)

    def padding(self, x: Value) -> Padding | None:
        """Returns how a value was padded, or None."""
        padded = self.graph.producer(x, "Pad")
        return padded.note if padded and isinstance(padded.note, Padding) else None

    def apart(self, x: Value, axis: int) -> list[Value]:
        """Returns the elements of an axis, each without it; elements of a Concat are its inputs."""
        joined = self.graph.producer(x, "Concat")
        if joined and joined.attributes["axis"] == axis and all(part.dims[axis] == 1 for part in joined.inputs):
            return [self.view(part, part.dims.remove(axis)) for part in joined.inputs]
        return [self.gather(x, self.integers(i), axis) for i in range(x.dims[axis])]

    def gather(self, x: Value, indices: Value, axis: int) -> Value:
        """Gathers along an axis, which the axes of the indices, int32 or int64, replace."""
        dims = x.dims.take(axis).append(indices.dims).append(x.dims.drop(axis + 1))
        return self.graph.node("Gather", [x, indices], dims, x.dtype, {"axis": axis})

    # Local functions

    def call(self, function: Function, inputs: Sequence[Value], dims: Sequence[int], **attributes: Any) -> Value:
        """Emits a call of a local function of the domain "glenside"."""
        self.functions.setdefault(function.name, function)
        dtype = function.output.dtype
        return self.graph.node(function.name, inputs, dims, dtype, attributes, main=True, domain="glenside")


def _without_ones(dims: Dims) -> Dims:
    """Returns the sizes other than 1."""
    return Dims(n for n in dims if n != 1)


def _copies(how: Rearrangement) -> int:
    """Estimates a runtime's cost of a transpose, in copies: contiguous rows and a single moved axis are cheap."""
    order = how.canonical().order
    if how.is_identity:
        return 0
    moved = any([a for a in order if a != axis] == sorted(a for a in order if a != axis) for axis in order)
    return 1 if moved or order[-1] == len(order) - 1 else 4
