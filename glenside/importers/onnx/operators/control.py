"""Imports branches and loops: takes a branch of a known condition, and unrolls a loop of a known number of
iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

import numpy as np

from glenside.builder.layout import element, pad, reshape, slice_axis, stack
from glenside.builder.pointwise import select
from glenside.importers.onnx.node import DependsOnData, Items, Node, Value, normal_axis, onnx_operator
from glenside.ir import option_hints
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened
from glenside.ir.term import Term, build, tensors
from glenside.ir.types import Tensor

MOST_STEPS = 4096
"""The maximum iterations of one loop: each becomes terms."""


class Subgraph:
    """A subgraph of a node, to be run any number of times; its initializers are read once."""

    def __init__(self, node: Node, attribute: str) -> None:
        self.graph, self.attribute = node.graph(attribute), attribute
        self.scope = node.scope.inside(node.name)
        self.scope.declare(self.graph)

    def run(self, given: Sequence[Value], outputs: int) -> list[Value]:
        """Returns the outputs for these inputs, at least `outputs` values. Raises BadInput."""
        if len(self.graph.input) != len(given):
            raise BadInput(f"attribute {self.attribute} requires {len(given)} inputs, got {len(self.graph.input)}")
        if len(self.graph.output) < outputs:
            raise BadInput(f"attribute {self.attribute} requires {outputs} outputs, got {len(self.graph.output)}")
        return replace(self.scope, names=self.scope.names.new_child()).evaluate(self.graph, given)

    def axes(self, i: int) -> int:
        """Returns the declared rank of input i; 0 if it is not declared."""
        kind = self.graph.input[i].type if i < len(self.graph.input) else None
        return len(kind.tensor_type.shape.dim) if kind is not None else 0


def _truth(condition: Term) -> Term:
    """Returns a condition as ()() bool."""
    if condition.access.dtype != "bool" or condition.access.size != 1:
        raise BadInput(f"a condition requires one element of bool, got {condition.access}")
    return reshape(condition, ())


@onnx_operator("If")
def conditional(node: Node) -> list[Value]:
    condition = _truth(node.term(0))
    known = node.scope.known(condition)
    wanted = len(node.outputs)
    if known is not None:
        return Subgraph(node, "then_branch" if known else "else_branch").run((), wanted)
    branches = [Subgraph(node, name).run((), wanted) for name in ("then_branch", "else_branch")]
    chosen = [_either(condition, a, b) for a, b in zip(*branches, strict=False)]
    if any(a is not b for a, b in zip(*branches, strict=False)):
        name = shortened(node.name[-60:])
        both = f"the condition of {name} (If) depends on data, so both branches are computed and counted"
        node.scope.tally.remarks[both + _takes_one(condition)] = None
    return chosen


def _takes_one(condition: Term) -> str:
    """Suggests the option that makes a condition on inputs known."""
    read = [leaf.attributes[0] for leaf in tensors(condition)]
    inputs = {tensor.name: prod(tensor.dims) for tensor in read if isinstance(tensor, Tensor) and not tensor.constant}
    if not inputs:
        return ""
    return f"; {option_hints.values(inputs)} selects one of them"


def _either(condition: Term, a: Value, b: Value) -> Value:
    if a is b:
        return a
    if isinstance(a, Items) and isinstance(b, Items) and len(a.values) == len(b.values):
        chosen = (_either(condition, x, y) for x, y in zip(a.values, b.values, strict=True))
        return Items(tuple(chosen), a.dtype)
    if isinstance(a, Term) and isinstance(b, Term) and a.access == b.access:
        return select(condition, a, b)
    got = f"{_described(a)} and {_described(b)}"
    words = f"a condition that depends on data requires branches that give equal types, got {got}"
    raise DependsOnData(words, condition)


def _described(value: Value) -> str:
    if isinstance(value, Items):
        return f"a sequence of {len(value.values)}"
    return "nothing" if value is None else str(value.type)


@onnx_operator("Loop")
def loop(node: Node) -> list[Value]:
    body = Subgraph(node, "body")
    trips = node.known_int(0, None, "number of passes")
    carried: list[Value] = list(node.inputs[2:])
    states, wanted = len(carried), 1 + max(len(carried), len(node.outputs))
    condition = None if node.optional(1) is None else _truth(node.term(1))
    scanned: list[list[Value]] = []

    def iterate(step: int) -> list[Value]:
        counter = node.scope.filled((1,) * body.axes(0), np.int64(step))
        going = node.scope.filled((1,) * body.axes(1), np.bool_(True))
        return body.run([counter, going, *carried], wanted)

    while (trips is None or len(scanned) < trips) and _holds(node, condition, carried):
        if len(scanned) == MOST_STEPS:
            raise BadInput(f"a loop is unrolled at most {MOST_STEPS} times, and this one is longer")
        first, *rest = iterate(len(scanned))
        condition = _truth(_tensor(first))
        carried = rest[:states]
        scanned.append(rest[states:])
    kept = [list(parts) for parts in zip(*scanned, strict=True)] if scanned else []
    if scanned or len(node.outputs) <= states:
        return [*carried, *(stack([_tensor(part) for part in parts]) for parts in kept)]
    return [*carried, *(_none_of(_tensor(part), 0) for part in iterate(0)[1 + states :])]


def _holds(node: Node, condition: Term | None, carried: Sequence[Value]) -> bool:
    if condition is None:
        return True
    if condition.children:
        # The next conditions depend on these values, so no iteration is evaluated twice.
        for state in carried:
            if isinstance(state, Term):
                with suppress(BadInput):  # a value that is too large to be evaluated is not needed for the condition
                    node.scope.known(state)
    value = node.scope.known(condition)
    if value is None:
        words = "a loop requires a condition that is known before each iteration, got one that depends on data"
        raise DependsOnData(words, condition)
    return bool(value)


def _tensor(value: Value) -> Term:
    if not isinstance(value, Term):
        raise BadInput(f"the body of a loop requires tensors here, got {_described(value)}")
    return value


def _none_of(part: Term, axis: int) -> Term:
    """Returns the empty result of a loop of no iterations, whose parts would be like `part`."""
    return build("full", part.access.dims.insert(axis, 0), 0, part.access.dtype)


Axes = Sequence[tuple[int, bool]]
"""For each input or output of a scan: the axis along which it is scanned, and whether it is scanned backwards."""


@onnx_operator("Scan")
def scan(node: Node) -> list[Value]:
    body, count = Subgraph(node, "body"), node.integer("num_scan_inputs", 0)
    given = [node.term(i) for i in range(1 if node.version < 9 else 0, len(node.inputs))]
    if not 1 <= count <= len(given):
        raise BadInput(f"attribute num_scan_inputs requires a number from 1 to {len(given)}, got {count}")
    states, inputs = given[:-count], given[-count:]
    outputs = max(0, len(body.graph.output) - len(states))
    if node.version < 9:
        taken = [(0, back) for back in _directions(node, "directions", count)]
        return _batches(node, body, states, inputs, taken, [(0, False)] * outputs)
    axes = _each(node, "scan_input_axes", count)
    axes = [normal_axis(a, x.access.rank, "attribute scan_input_axes") for a, x in zip(axes, inputs, strict=True)]
    taken = list(zip(axes, _directions(node, "scan_input_directions", count), strict=True))
    places, prepend = _each(node, "scan_output_axes", outputs), _directions(node, "scan_output_directions", outputs)
    return _scanned(body, states, inputs, taken, list(zip(places, prepend, strict=True)))


def _scanned(body: Subgraph, states: Sequence[Term], inputs: Sequence[Term], taken: Axes, laid: Axes) -> list[Value]:
    """Returns the last states and the scan outputs of a body that runs over the elements of its inputs in order."""
    lengths = {x.access.dims[axis] for x, (axis, _) in zip(inputs, taken, strict=True)}
    length, wanted = max(lengths), len(states) + len(laid)
    if len(lengths) > 1:
        raise BadInput(f"inputs that are scanned require one length, got {sorted(lengths)}")
    if length > MOST_STEPS:
        raise BadInput(f"a scan is unrolled {MOST_STEPS} times at most, got {length}")
    current: list[Value] = list(states)
    made: list[list[Term]] = []
    for step in range(length):
        places = [(axis, length - 1 - step if backward else step) for axis, backward in taken]
        elements = [element(x, *place) for x, place in zip(inputs, places, strict=True)]
        results = body.run([*current, *elements], wanted)
        current = results[: len(states)]
        made.append([_tensor(value) for value in results[len(states) :]])
    like = made[0] if made else []
    if laid and not made:  # the outputs of one step, for their types
        kinds = [(x.access.dims.remove(axis), x.access.dtype) for x, (axis, _) in zip(inputs, taken, strict=True)]
        nothing = [build("full", dims, 0, dtype) for dims, dtype in kinds]
        like = [_tensor(value) for value in body.run([*states, *nothing], wanted)[len(states) :]]
    return [*current, *(_laid([parts[i] for parts in made], part, *laid[i]) for i, part in enumerate(like))]


def _each(node: Node, name: str, count: int) -> list[int]:
    numbers = node.integers(name, [0] * count)
    if len(numbers) != count:
        raise BadInput(f"attribute {name} requires {count} numbers, got {len(numbers)}")
    return numbers


def _directions(node: Node, name: str, count: int) -> list[bool]:
    numbers = _each(node, name, count)
    if not set(numbers) <= {0, 1}:
        raise BadInput(f"attribute {name} requires numbers of 0 and 1, got {numbers}")
    return [number == 1 for number in numbers]


def _laid(parts: Sequence[Term], like: Term, axis: int, backward: bool) -> Term:
    axis = normal_axis(axis, like.access.rank + 1, "attribute scan_output_axes")
    return stack(parts[::-1] if backward else parts, axis) if parts else _none_of(like, axis)


def _batches(
    node: Node, body: Subgraph, states: Sequence[Term], inputs: Sequence[Term], taken: Axes, laid: Axes
) -> list[Value]:
    """Imports Scan of opset 8: the first axis of every tensor is the batch, and each entry may end early, with
    zeros.
    """
    if min(x.access.rank for x in inputs) < 2:
        raise BadInput("inputs that are scanned require a batch and a length as their first axes")
    batch, length = inputs[0].access.dims[:2]
    lengths = node.known_ints(0) or [length] * batch
    if len(lengths) != batch or not all(0 <= n <= length for n in lengths):
        raise BadInput(f"input 0 requires {batch} lengths from 0 to {length}, got {lengths}")
    rows: list[list[Term]] = []
    for i, steps in enumerate(lengths):
        own = [slice_axis(element(x, 0, i), 0, 0, steps) for x in inputs]
        made = [_tensor(value) for value in _scanned(body, [element(x, 0, i) for x in states], own, taken, laid)]
        ended, outputs = made[: len(states)], made[len(states) :]
        rows.append([*ended, *(pad(x, [(0, length - steps), *[(0, 0)] * (x.access.rank - 1)]) for x in outputs)])
    if not rows:
        raise BadInput("inputs that are scanned require a batch of at least 1")
    return [stack(column) for column in zip(*rows, strict=True)]
