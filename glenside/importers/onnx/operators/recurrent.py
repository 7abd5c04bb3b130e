"""Recurrent networks, unrolled: one product takes the inputs of all steps and directions, one each state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from glenside.builder import pointwise
from glenside.builder.layout import broadcast, concatenate, element, flip, reshape, slice_axis, stack, transpose
from glenside.builder.pointwise import add, filled, multiply, select, subtract
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.operators.control import MOST_STEPS
from glenside.importers.onnx.registry import onnx_operator
from glenside.ir.errors import BadInput
from glenside.ir.operators.requirements import spelled
from glenside.ir.term import Term, build

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _affine(x: Term, alpha: float, beta: float) -> Term:
    return add(multiply(x, filled(x, repr(alpha))), filled(x, repr(beta)))


def _leaky(x: Term, alpha: float, beta: float) -> Term:
    return pointwise.compute(f"(leaky-relu {alpha!r})", x)


def _thresholded(x: Term, alpha: float, beta: float) -> Term:
    return select(pointwise.combine("(compare ge)", x, filled(x, repr(alpha))), x, filled(x, 0))


def _scaled_tanh(x: Term, alpha: float, beta: float) -> Term:
    return multiply(filled(x, repr(alpha)), pointwise.tanh(multiply(x, filled(x, repr(beta)))))


def _hard_sigmoid(x: Term, alpha: float, beta: float) -> Term:
    return pointwise.compute("(clip 0 1)", _affine(x, alpha, beta))


def _elu(x: Term, alpha: float, beta: float) -> Term:
    below = multiply(filled(x, repr(alpha)), subtract(pointwise.compute("exp", x), filled(x, 1)))
    return select(pointwise.combine("(compare ge)", x, filled(x, 0)), x, below)


def _softsign(x: Term, alpha: float, beta: float) -> Term:
    return pointwise.divide(x, add(pointwise.compute("abs", x), filled(x, 1)))


def _softplus(x: Term, alpha: float, beta: float) -> Term:
    """log(1 + e^x), where e^x may overflow: max(x, 0) + log(1 + e^-|x|)."""
    small = pointwise.compute("exp", pointwise.compute("negative", pointwise.compute("abs", x)))
    return add(pointwise.relu(x), pointwise.compute("log", add(small, filled(x, 1))))


REQUIRED = math.nan


@dataclass(frozen=True)
class Activation:
    """A function with the numbers it takes of activation_alpha and activation_beta; REQUIRED ones have no default."""

    function: Callable[[Term, float, float], Term]
    alpha: float | None = None
    beta: float | None = None


ACTIVATIONS = {
    "relu": Activation(lambda x, alpha, beta: pointwise.relu(x)),
    "tanh": Activation(lambda x, alpha, beta: pointwise.tanh(x)),
    "sigmoid": Activation(lambda x, alpha, beta: pointwise.sigmoid(x)),
    "affine": Activation(_affine, REQUIRED, REQUIRED),
    "leakyrelu": Activation(_leaky, 0.01),
    "thresholdedrelu": Activation(_thresholded, 1.0),
    "scaledtanh": Activation(_scaled_tanh, REQUIRED, REQUIRED),
    "hardsigmoid": Activation(_hard_sigmoid, 0.2, 0.5),
    "elu": Activation(_elu, 1.0),
    "softsign": Activation(_softsign),
    "softplus": Activation(_softplus),
}

Function = Callable[[Term], Term]
"""An activation of ()(D N H), where each direction may have its own."""
Chosen = tuple[str, float, float]
"""The name of an activation, its alpha and its beta."""


def _activations(node: Node, standard: Sequence[str], directions: int) -> list[Function]:
    """One function for each of the standard ones; those of each direction stand together in the attribute."""
    names = node.texts("activations") or [*standard] * directions
    if len(names) != len(standard) * directions:
        raise BadInput(f"attribute activations requires {len(standard) * directions} names, got {len(names)}")
    unknown = [name for name in names if name.lower() not in ACTIVATIONS]
    if unknown:
        raise BadInput(f"attribute activations requires names of {', '.join(ACTIVATIONS)}, got {unknown[0]!r}")
    alphas, betas = node.numbers("activation_alpha") or [], node.numbers("activation_beta") or []
    chosen: list[Chosen] = []
    for name in map(str.lower, names):
        record = ACTIVATIONS[name]
        alpha = _number(name, "activation_alpha", alphas, record.alpha)
        chosen.append((name, alpha, _number(name, "activation_beta", betas, record.beta)))
    count = len(standard)
    limit = node.number("clip", 0.0)
    # The last one of LSTM sees the cell, which runtimes do not clip: the attribute is for what gates read.
    return [_joined(chosen[i::count], limit if i < 2 else 0.0) for i in range(count)]


def _number(name: str, attribute: str, given: list[float], standard: float | None) -> float:
    """The next of the numbers given, which only functions that have such a number take."""
    if standard is None:
        return 0.0
    number = given.pop(0) if given else standard
    if not math.isfinite(number):
        raise BadInput(
            f"attribute {attribute} requires a number for {name}, got {'none' if number is standard else number}"
        )
    return number


def _joined(chosen: Sequence[Chosen], limit: float) -> Function:
    def clipped(x: Term) -> Term:
        return pointwise.compute(f"(clip {-limit!r} {limit!r})", x) if limit > 0 else x

    def apply(x: Term) -> Term:
        x = clipped(x)
        if len(set(chosen)) == 1:
            name, alpha, beta = chosen[0]
            return ACTIVATIONS[name].function(x, alpha, beta)
        parts = [slice_axis(x, 0, i, i + 1) for i in range(len(chosen))]
        made = [ACTIVATIONS[name].function(part, a, b) for (name, a, b), part in zip(chosen, parts, strict=True)]
        return concatenate(made, 0)

    return apply


@dataclass(frozen=True)
class Network:
    """What all recurrent operators have in common, read and checked. Directions come first: ()(D ..).

    gates      rows of the weights for each hidden unit
    recurrent  ()(D G*H H)
    inputs     of all steps, in the order of each direction's steps: ()(T D N G*H)
    biases     of the recurrence, ()(D G*H), or None
    running    whether step t of each sequence is one of its own, ()(T D N 1), or None when all are
    """

    node: Node
    backward: Sequence[bool]
    steps: int
    batch: int
    hidden: int
    recurrent: Term
    inputs: Term
    biases: Term | None
    running: Term | None

    def gate(self, x: Term, gate: int) -> Term:
        """The part of one gate in the last axis."""
        return slice_axis(x, x.access.rank - 1, gate * self.hidden, (gate + 1) * self.hidden)

    def weights(self, first: int, last: int) -> Term:
        """The rows of the recurrence of these gates, ()(D g*H H)."""
        return slice_axis(self.recurrent, 1, first * self.hidden, last * self.hidden)

    def initial(self, i: int) -> Term | None:
        """An initial state, ()(D N H)."""
        state = self.node.optional(i)
        if state is None:
            return None
        wanted = (len(self.backward), self.batch, self.hidden)
        if self.node.integer("layout", 0):
            state = transpose(state, (1, 0, 2)) if state.access.rank == 3 else state
        if state.access.dims != wanted:
            raise BadInput(f"input {i} requires a state of {spelled(wanted)}, got {state.access}")
        return state

    def zeros(self) -> Term:
        """A state of zeros, ()(D N H)."""
        return build("full", (len(self.backward), self.batch, self.hidden), 0, self.recurrent.access.dtype)

    def product(self, state: Term | None, weights: Term, step: int, part: str = "") -> Term | None:
        """state times weights transposed, ()(D N H) and ()(D R H) -> ()(D N R); nothing while there is no state."""
        if state is None:
            return None
        name = self.node.scope.layer_name(f"{self.node.name}.step{step}{part}")
        if len(self.backward) > 1:
            return self.node.builder.matmul(state, transpose(weights, (0, 2, 1)), name=name)
        made = self.node.builder.linear(element(state, 0, 0), element(weights, 0, 0), name=name)
        return stack([made])

    def per_unit(self, vector: Term) -> Term:
        """()(D H) for each of the batch, ()(D N H)."""
        directions, size = vector.access.dims
        return broadcast(reshape(vector, (directions, 1, size)), (directions, self.batch, size))

    def finish(self, states: Sequence[Term], last: Term | None) -> list[Term]:
        """Y and Y_h as the operator lays them out, of the states after each step."""
        directions = len(self.backward)
        dims = (self.steps, directions, self.batch, self.hidden)
        if states:
            every = _in_order(stack([self.shown(step, state) for step, state in enumerate(states)]), self.backward)
        else:
            every = build("full", dims, 0, self.recurrent.access.dtype)
        last = self.zeros() if last is None else last
        if self.node.integer("layout", 0):
            return [transpose(every, (2, 0, 1, 3)), transpose(last, (1, 0, 2))]
        return [every, last]

    def mask(self, step: int) -> Term | None:
        """Whether each sequence has that step, ()(D N H), or None when all have it."""
        if self.running is None:
            return None
        return broadcast(element(self.running, 0, step), (len(self.backward), self.batch, self.hidden))

    def shown(self, step: int, state: Term) -> Term:
        """What Y holds of the state after a step: zeros where a sequence does not have it."""
        mask = self.mask(step)
        return state if mask is None else select(mask, state, filled(state, 0))

    def kept(self, step: int, new: Term, old: Term | None) -> Term:
        """The state after a step: the old one where a sequence has ended, or has not begun."""
        mask = self.mask(step)
        return new if mask is None else select(mask, new, filled(new, 0) if old is None else old)


def _in_order(x: Term, backward: Sequence[bool]) -> Term:
    """()(T D ..) with the steps of the directions that go backward in the reverse order."""
    if not any(backward):
        return x
    if all(backward):
        return flip(x, 0)
    parts = [slice_axis(x, 1, i, i + 1) for i in range(len(backward))]
    return concatenate([flip(part, 0) if back else part for part, back in zip(parts, backward, strict=True)], 1)


def _network(node: Node, gates: int, summed: int) -> Network:
    """Read the inputs. The biases of the first `summed` gates are added to those of the input product."""
    backward = DIRECTIONS[node.text("direction", "forward", *DIRECTIONS)]
    x, w, r = node.term(0), node.term(1), node.term(2)
    ranks = x.access.rank == w.access.rank == r.access.rank == 3
    if not ranks:
        raise BadInput(f"inputs 0 to 2 require three axes, got {x.access}, {w.access} and {r.access}")
    if node.integer("layout", 0) not in (0, 1):
        raise BadInput(f"attribute layout is 0 or 1, got {node.integer('layout', 0)}")
    if node.integer("layout", 0):
        x = transpose(x, (1, 0, 2))
    steps, batch, size = x.access.dims
    directions, hidden = len(backward), r.access.dims[2]
    rows = gates * hidden
    if w.access.dims != (directions, rows, size) or r.access.dims != (directions, rows, hidden):
        wanted = f"({directions} {rows} {size}) and ({directions} {rows} {hidden})"
        raise BadInput(f"inputs 1 and 2 require weights of {wanted}, got {w.access} and {r.access}")
    if node.integer("hidden_size", hidden) != hidden:
        raise BadInput(f"attribute hidden_size requires {hidden} as input 2 has it, got {node.integer('hidden_size')}")
    if steps > MOST_STEPS:
        raise BadInput(f"a sequence is unrolled into {MOST_STEPS} steps at most, got {steps}")
    first, second = _biases(node, directions, rows, summed * hidden)
    name = node.scope.layer_name(f"{node.name}.inputs")
    bias = None if first is None else reshape(first, (directions * rows,))
    product = node.builder.linear(x, reshape(w, (directions * rows, size)), bias, name=name)
    parts = transpose(reshape(product, (steps, batch, directions, rows)), (0, 2, 1, 3))
    running = _running(node, steps, batch, backward)
    return Network(node, backward, steps, batch, hidden, r, _in_order(parts, backward), second, running)


def _biases(node: Node, directions: int, rows: int, summed: int) -> tuple[Term | None, Term | None]:
    """The biases of the input product, and those of the recurrence that must stand apart, ()(D G*H)."""
    both = node.optional(3)
    if both is None:
        return None, None
    if both.access.dims != (directions, 2 * rows):
        raise BadInput(f"input 3 requires biases of ({directions} {2 * rows}), got {both.access}")
    own, other = slice_axis(both, 1, 0, rows), slice_axis(both, 1, rows, 2 * rows)
    if summed == rows:
        return add(own, other), None
    ahead = add(slice_axis(own, 1, 0, summed), slice_axis(other, 1, 0, summed))
    return concatenate([ahead, slice_axis(own, 1, summed, rows)], 1), slice_axis(other, 1, summed, rows)


def _running(node: Node, steps: int, batch: int, backward: Sequence[bool]) -> Term | None:
    lengths = node.optional(4)
    if lengths is None or not steps:
        return None
    if lengths.access.dims != (batch,):
        raise BadInput(f"input 4 requires {batch} lengths, got {lengths.access}")
    known = node.scope.known(lengths)
    if known is not None and (known == steps).all():
        return None
    at = [[step if not back else steps - 1 - step for back in backward] for step in range(steps)]
    dtype = lengths.access.dtype
    places = node.constant(np.array(at, dtype)[..., None, None], f"{node.name}.steps")
    return pointwise.combine("(compare lt)", places, reshape(lengths, (batch, 1)))


def _sum(*parts: Term | None) -> Term:
    return reduce(add, [part for part in parts if part is not None])


def _one_less(x: Term) -> Term:
    return subtract(filled(x, 1), x)


@onnx_operator("RNN")
def rnn(node: Node) -> list[Term]:
    net = _network(node, 1, 1)
    (f,) = _activations(node, ["Tanh"], len(net.backward))
    state = net.initial(5)
    states: list[Term] = []
    for step in range(net.steps):
        new = f(_sum(element(net.inputs, 0, step), net.product(state, net.recurrent, step)))
        state = net.kept(step, new, state)
        states.append(state)
    return net.finish(states, state)


@onnx_operator("GRU")
def gru(node: Node) -> list[Term]:
    after = bool(node.integer("linear_before_reset", 0))
    net = _network(node, 3, 2 if after else 3)
    f, g = _activations(node, ["Sigmoid", "Tanh"], len(net.backward))
    state = net.initial(5)
    states: list[Term] = []
    for step in range(net.steps):
        given = element(net.inputs, 0, step)
        whole = net.product(state, net.weights(0, 3 if after else 2), step)
        update, reset = (f(_sum(net.gate(given, i), None if whole is None else net.gate(whole, i))) for i in (0, 1))
        if after:
            bias = None if net.biases is None else net.per_unit(net.biases)
            parts = [p for p in (None if whole is None else net.gate(whole, 2), bias) if p is not None]
            candidate = multiply(reset, _sum(*parts)) if parts else None
        else:
            candidate = net.product(
                None if state is None else multiply(reset, state), net.weights(2, 3), step, ".reset"
            )
        new = multiply(_one_less(update), g(_sum(net.gate(given, 2), candidate)))
        new = new if state is None else add(new, multiply(update, state))
        state = net.kept(step, new, state)
        states.append(state)
    return net.finish(states, state)


@onnx_operator("LSTM")
def lstm(node: Node) -> list[Term]:
    net = _network(node, 4, 4)
    f, g, h = _activations(node, ["Sigmoid", "Tanh", "Tanh"], len(net.backward))
    state, cell = net.initial(5), net.initial(6)
    peepholes = _peepholes(net)
    states: list[Term] = []

    def seen(gate: int, cell: Term | None) -> Term | None:
        return multiply(peepholes[gate], cell) if peepholes and cell is not None else None

    for step in range(net.steps):
        given, product = element(net.inputs, 0, step), net.product(state, net.recurrent, step)
        enter, leave, forget, candidate = (
            _sum(net.gate(given, i), None if product is None else net.gate(product, i)) for i in range(4)
        )
        entered = f(_sum(enter, seen(0, cell)))
        coupled = bool(node.integer("input_forget", 0))
        kept = _one_less(entered) if coupled else f(_sum(forget, seen(2, cell)))
        new = multiply(entered, g(candidate))
        new = new if cell is None else add(multiply(kept, cell), new)
        shown = multiply(f(_sum(leave, seen(1, new))), h(new))
        state, cell = net.kept(step, shown, state), net.kept(step, new, cell)
        states.append(state)
    last = net.zeros() if cell is None else cell
    return [*net.finish(states, state), transpose(last, (1, 0, 2)) if node.integer("layout", 0) else last]


def _peepholes(net: Network) -> list[Term]:
    """For the input, output and forget gates, ()(D N H) each; nothing when there are none."""
    vectors = net.node.optional(7)
    if vectors is None:
        return []
    if vectors.access.dims != (len(net.backward), 3 * net.hidden):
        raise BadInput(f"input 7 requires peepholes of ({len(net.backward)} {3 * net.hidden}), got {vectors.access}")
    return [net.per_unit(net.gate(vectors, i)) for i in range(3)]
