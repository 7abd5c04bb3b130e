"""The steps in which exports of operators are written: each makes nodes, or finds that none is needed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from glenside.exporters.onnx.graph import Graph, GraphMark, shorten
from glenside.exporters.onnx.kernels import carried, carrier
from glenside.exporters.onnx.sinking import sunk
from glenside.exporters.writer import Held, Value, Writer
from glenside.ir.dtypes import REALS, RECORDS, STORED, WHOLE
from glenside.ir.operand import Array
from glenside.ir.rational import exact
from glenside.ir.rearrangement import Rearrangement, of_transpose
from glenside.ir.scalar import Primitive
from glenside.ir.term import Term
from glenside.ir.types import Dims
from glenside.semantics.native import Native

_INT64_MIN = -(2**63)


@dataclass(frozen=True, slots=True)
class Padding:
    """What a Pad node does: elements before and after on each axis of its source, all of one value."""

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
    """How much is written."""

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
    """Makes the nodes of one graph.

    constants  the values of the program's constants
    versions   (domain, operator, version) of nodes that are to mean what they do in that version
    held       what stands for each term that is written
    is_constant  whether a term is made of constants alone
    came       terms that were the results of nodes
    numbers    the one number that a constant is everywhere, of those that were looked at
    write      writes a term and what it needs
    """

    graph: Graph
    functions: dict[str, Function] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    versions: set[tuple[str, str, int]] = field(default_factory=set)
    held: dict[Term, Held[Value]] = field(default_factory=dict)
    is_constant: Mapping[Term, bool] = field(default_factory=dict)
    came: Container[Term] = ()
    numbers: dict[Term, float | None] = field(default_factory=dict)
    write: Callable[[Term], None] = _nothing

    def held_of(self, term: Term) -> Held[Value]:
        """What stands for a term, which is written now unless it was before."""
        if term not in self.held:
            self.write(term)
        return self.held[term]

    def value_of(self, term: Term) -> Value:
        """The array of a term."""
        return self.in_memory(self.held_of(term))

    def mark(self) -> Mark:
        """What is written so far."""
        return Mark(self.graph.mark(), len(self.functions), frozenset(self.versions), len(self.held))

    def undo(self, mark: Mark) -> None:
        """Take back what was written since."""
        self.graph.undo(mark.graph)
        shorten(self.functions, mark.functions)
        shorten(self.held, mark.held)
        self.versions.intersection_update(mark.versions)

    # Constants

    def number(self, value: str | int, dtype: str, rank: int = 0) -> Value:
        """One exact number, with `rank` axes of size 1."""
        known = exact(str(value))
        assert known is not None, "numbers are checked when a term is built"
        return self.graph.constant(Native().constant(known, dtype).reshape((1,) * rank))

    def lowest(self, dtype: str) -> Value:
        """What a maximum ignores."""
        return self.graph.constant(Native().lowest(dtype))

    def integers(self, values: Any) -> Value:
        """An int64 constant of any rank: sizes, axes, positions."""
        return self.graph.constant(np.asarray(values, np.int64))

    def counting(self, n: int) -> Value:
        """The numbers from 0 to n - 1, int64."""
        return self.graph.node("Range", [self.integers(i) for i in (0, n, 1)], (n,), "int64")

    def full(self, dims: Sequence[int], value: str | int, dtype: str) -> Value:
        """One number everywhere; an array without elements is a constant."""
        if 0 in dims:
            return self.graph.constant(np.zeros(tuple(dims), dtype))
        return self.expand(self.number(value, dtype, len(dims)), dims)

    def known(self, x: Value) -> Array | None:
        """The value of a constant, or of one that was cast or seen under other dims."""
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
        """A node on operands of one dtype, computed in a dtype that runtimes have; `extra` inputs stay as they are.

        The result has the dtype of the operands, or the one given: then it is the node's own, such as bool.
        """
        own = inputs[0].dtype
        wide = carried(op, own)
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
        """An operator of several operands that broadcast; an operand that was expanded for it need not be."""
        if op in ("Min", "Max") and carrier(op, operands[0].dtype) is None:
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
        """What is computed of each element of operands that broadcast to the dims, in the order in which they lie."""
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
        """`then` where the condition holds."""
        own, wide = then.dtype, carried("Where", then.dtype)
        operands = [condition, self.cast(then, wide), self.cast(otherwise, wide)]
        dims = np.broadcast_shapes(*(x.dims for x in operands))
        chosen = self.of_each(operands, dims, lambda a, n: self.graph.node("Where", a, n, wide, main=True))
        return self.cast(chosen, own)

    def cast(self, x: Value, dtype: str) -> Value:
        """The same values in another dtype."""
        if x.dtype == dtype:
            return x
        if x.dtype in REALS and dtype in WHOLE and dtype in STORED:
            x = self.cast(x, "int32")  # runtimes round on the way to fewer bits, and cut on the way to these
        if x.dtype in WHOLE and dtype in REALS and dtype in STORED:
            x = self.cast(x, "float32")  # of 16 bits, runtimes take some that are too large for others
        attributes: dict[str, Any] = {"to": dtype}
        if dtype in REALS and RECORDS[dtype].bits == 8:
            attributes["saturate"] = 0  # what is beyond the largest is inf or nan, as in every other float
        return self.graph.node("Cast", [x], x.dims, dtype, attributes)

    def ordered(self, x: Value) -> Value:
        """Numbers that stand in the same order as those of x, in a dtype in which runtimes sort."""
        wide = self.cast(x, carried("TopK", x.dtype))
        if x.dtype != "uint64":
            return wide
        return self.elementwise("Add", wide, self.number(_INT64_MIN, "int64", x.rank), main=False)

    def fold(self, op: str, x: Value, split: int) -> Value:
        """All axes from `split` on folded by an associative operator: of size 1 in the result, and one axis."""
        return self.tree(op, self.view(x, x.dims.take(split).append([x.dims.drop(split).product()])), split)

    def chain(self, op: str, operands: Iterable[Value]) -> Value:
        """The operands folded left to right."""
        return reduce(lambda a, b: self.elementwise(op, a, b), operands)

    def tree(self, op: str, x: Value, axis: int) -> Value:
        """An axis folded by an associative operator, halves on halves; it keeps size 1."""
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
        """What a value is a view of."""
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
        """Which of the values that x is transposed of is best rearranged at once, and how: of equals the first."""
        chain, below = [(x, how)], list[int]()
        while (first := self.graph.producer(self.base(x), "Transpose")) is not None:
            inner = of_transpose(first.inputs[0].dims, first.attributes["perm"])
            if (both := inner.then(how)) is None:
                break
            x, how = first.inputs[0], both
            chain.append((x, how))
            below.append(_passes(inner))
        costs = [_passes(how) + sum(below[depth:]) for depth, (_, how) in enumerate(chain)]
        return chain[max(depth for depth, cost in enumerate(costs) if cost == min(costs))]

    def _rearranged(self, x: Value, how: Rearrangement, dims: Dims) -> Value:
        """One transpose, of x itself where its axes are the parts, else of as few as there are."""
        if how.is_identity:
            return x
        own = how.cut_parts(_larger(x.dims))
        plain = own if own and own.result == _larger(dims) else how
        x = self.view(x, plain.parts)
        return self.graph.node("Transpose", [x], plain.result, x.dtype, {"perm": plain.order})

    def expand(self, x: Value, dims: Sequence[int]) -> Value:
        x = self.unexpanded(x)
        if x.dims == tuple(dims):
            return x
        return self.graph.node("Expand", [x, self.integers(dims)], dims, x.dtype)

    def unexpanded(self, x: Value) -> Value:
        """What an expanded value of the same rank was before; broadcasting gives it back."""
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
        """The parts one after the other, less those without elements."""
        kept = [part for part in parts if part.dims[axis]] or list(parts[:1])
        if len(kept) == 1:
            return kept[0]
        dims = kept[0].dims.set(axis, sum(part.dims[axis] for part in kept))
        return self.graph.node("Concat", kept, dims, kept[0].dtype, {"axis": axis})

    def pad(self, x: Value, axis: int, before: int, after: int, fill: Value | None = None) -> Value:
        """Elements of one value, ()(), before and after on one axis: 0 unless it is given. Pads of pads are one."""
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
        wide = carried("Pad", x.dtype)
        inputs = [self.cast(x, wide), self.integers([*befores, *afters]), self.cast(fill, wide)]
        padded = self.graph.node("Pad", inputs, dims, wide, note=Padding(x, befores, afters, value))
        return self.cast(padded, x.dtype)

    def padding(self, x: Value) -> Padding | None:
        """How a value was padded."""
        padded = self.graph.producer(x, "Pad")
        return padded.note if padded and isinstance(padded.note, Padding) else None

    def apart(self, x: Value, axis: int) -> list[Value]:
        """The elements of an axis, each without it; those that a Concat put there are as they were."""
        joined = self.graph.producer(x, "Concat")
        if joined and joined.attributes["axis"] == axis and all(part.dims[axis] == 1 for part in joined.inputs):
            return [self.view(part, part.dims.remove(axis)) for part in joined.inputs]
        return [self.gather(x, self.integers(i), axis) for i in range(x.dims[axis])]

    def gather(self, x: Value, indices: Value, axis: int) -> Value:
        """All axes of the indices, int32 or int64, in place of one axis."""
        dims = x.dims.take(axis).append(indices.dims).append(x.dims.drop(axis + 1))
        return self.graph.node("Gather", [x, indices], dims, x.dtype, {"axis": axis})

    # Local functions

    def call(self, function: Function, inputs: Sequence[Value], dims: Sequence[int], **attributes: Any) -> Value:
        """A node that calls a local function of the domain "glenside"."""
        self.functions.setdefault(function.name, function)
        dtype = function.output.dtype
        return self.graph.node(function.name, inputs, dims, dtype, attributes, main=True, domain="glenside")


def _larger(dims: Dims) -> Dims:
    """The sizes other than 1."""
    return Dims(n for n in dims if n != 1)


def _passes(how: Rearrangement) -> int:
    """What a runtime takes for a transpose, in copies: rows that stay together and one axis that moves are copied."""
    order = how.canonical().order
    if how.is_identity:
        return 0
    moved = any([a for a in order if a != axis] == sorted(a for a in order if a != axis) for axis in order)
    return 1 if moved or order[-1] == len(order) - 1 else 4
