"""Recurrent networks, unrolled: one product takes the inputs of all steps and directions, one each state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from glenside.builder.layout import broadcast, concatenate, element, flip, reshape, slice_axis, stack, transpose
from glenside.builder.pointwise import (
    add,
    compare,
    compute,
    divide,
    filled,
    multiply,
    relu,
    select,
    sigmoid,
    subtract,
    tanh,
)
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.operators.activations import Function, scaled_exp
from glenside.importers.onnx.operators.control import MOST_STEPS
from glenside.ir.errors import BadInput
from glenside.ir.operators.requirements import spelled
from glenside.ir.term import Term, build

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
REQUIRED = math.nan


def _affine(x: Term, alpha: float, beta: float) -> Term:
    return add(multiply(x, filled(x, alpha)), filled(x, beta))


def _softplus(x: Term) -> Term:
    """log(1 + e^x), where e^x may overflow: max(x, 0) + log(1 + e^-|x|)."""
    small = compute("exp", compute("negative", compute("abs", x)))
    return add(relu(x), compute("log", add(small, filled(x, 1))))


@dataclass(frozen=True)
class Activation:
    """A function with the numbers it takes of activation_alpha and activation_beta; REQUIRED ones have no default."""

    function: Callable[[Term, float, float], Term]
    alpha: float | None = None
    beta: float | None = None


ACTIVATIONS = {
    "relu": Activation(lambda x, a, b: relu(x)),
    "tanh": Activation(lambda x, a, b: tanh(x)),
    "sigmoid": Activation(lambda x, a, b: sigmoid(x)),
    "affine": Activation(_affine, REQUIRED, REQUIRED),
    "leakyrelu": Activation(lambda x, a, b: compute(f"(leaky-relu {a})", x), 0.01),
    "thresholdedrelu": Activation(lambda x, a, b: select(compare("ge", x, filled(x, a)), x, filled(x, 0)), 1.0),
    "scaledtanh": Activation(
        lambda x, a, b: multiply(filled(x, a), tanh(multiply(x, filled(x, b)))), REQUIRED, REQUIRED
    ),
    "hardsigmoid": Activation(lambda x, a, b: compute("(clip 0 1)", _affine(x, a, b)), 0.2, 0.5),
    "elu": Activation(lambda x, a, b: select(compare("ge", x, filled(x, 0)), x, scaled_exp(x, filled(x, a))), 1.0),
    "softsign": Activation(lambda x, a, b: divide(x, add(compute("abs", x), filled(x, 1)))),
    "softplus": Activation(lambda x, a, b: _softplus(x)),
}

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
    """A function of ()(D N H), where each direction may have its own."""

    def apply(x: Term) -> Term:
        if limit > 0:
            x = compute(f"(clip {-limit!r} {limit!r})", x)
        if len(set(chosen)) == 1:
            name, alpha, beta = chosen[0]
            return ACTIVATIONS[name].function(x, alpha, beta)
        parts = enumerate(chosen)
        made = [ACTIVATIONS[name].function(slice_axis(x, 0, i, i + 1), a, b) for i, (name, a, b) in parts]
        return concatenate(made, 0)

    return apply


Turn = Callable[..., list[Term]]
"""A step: its number, what it is given, and the states before it, None while there are none -> the states after it."""


class Network:
    """What all recurrent operators have in common, read and checked. Directions come first: ()(D ..).

    inputs   products of all steps, in the order of each direction's steps: ()(T D N G*H)
    biases   of the recurrence, of the gates after the first `summed`, whose biases `inputs` has already: ()(D g*H)
    running  whether step t of each sequence is one of its own, ()(T D N 1), or None when all are
    """

    def __init__(self, node: Node, gates: int, summed: int, weights: tuple[Term, Term] | None = None) -> None:
        """`weights` of inputs and of states, where they are not inputs 1 and 2 as they stand."""
        x, (w, r) = node.term(0), weights or (node.term(1), node.term(2))
        self.node, self.recurrent = node, r
        self.backward = DIRECTIONS[node.text("direction", "forward", *DIRECTIONS)]
        if not x.access.rank == w.access.rank == r.access.rank == 3:
            raise BadInput(f"inputs 0 to 2 require three axes, got {x.access}, {w.access} and {r.access}")
        self.batch_first = node.integer("layout", 0)
        if self.batch_first not in (0, 1):
            raise BadInput(f"attribute layout is 0 or 1, got {self.batch_first}")
        if self.batch_first:
            x = transpose(x, (1, 0, 2))
        steps, batch, size = x.access.dims
        directions, hidden = len(self.backward), r.access.dims[2]
        rows = gates * hidden
        if w.access.dims != (directions, rows, size) or r.access.dims != (directions, rows, hidden):
            wanted = f"({directions} {rows} {size}) and ({directions} {rows} {hidden})"
            raise BadInput(f"inputs 1 and 2 require weights of {wanted}, got {w.access} and {r.access}")
        if node.integer("hidden_size", hidden) != hidden:
            got = node.integer("hidden_size")
            raise BadInput(f"attribute hidden_size requires {hidden} as input 2 has it, got {got}")
        if steps > MOST_STEPS:
            raise BadInput(f"a sequence is unrolled into {MOST_STEPS} steps at most, got {steps}")
        self.steps, self.hidden, self.dims = steps, hidden, (directions, batch, hidden)
        first, self.biases = _biases(node, directions, rows, summed * hidden)
        bias = None if first is None else reshape(first, (directions * rows,))
        product = self.of_inputs(x, reshape(w, (directions * rows, size)))
        product = product if bias is None else add(product, bias)
        parts = transpose(reshape(product, (steps, batch, directions, rows)), (0, 2, 1, 3))
        self.inputs, self.running = self._in_order(parts), self._running()

    def of_inputs(self, x: Term, weights: Term) -> Term:
        """Inputs times the weights of all directions transposed, ()(T N I) and ()(D*R I) -> ()(T N D*R)."""
        return self.node.builder.linear(x, weights, name=self.node.layer_name(".inputs"))

    def of_state(self, state: Term, weights: Term, name: str) -> Term:
        """A state times weights transposed, ()(D N H) and ()(D R H) -> ()(D N R)."""
        if len(self.backward) > 1:
            return self.node.builder.matmul(state, transpose(weights, (0, 2, 1)), name=self.node.layer_name(name))
        rows = element(state, 0, 0), element(weights, 0, 0)
        return stack([self.node.builder.linear(*rows, name=self.node.layer_name(name))])

    def _in_order(self, x: Term) -> Term:
        """()(T D ..) with the steps of the directions that go backward in the reverse order."""
        if not any(self.backward):
            return x
        if all(self.backward):
            return flip(x, 0)
        parts = [slice_axis(x, 1, i, i + 1) for i in range(len(self.backward))]
        return concatenate([flip(p, 0) if back else p for p, back in zip(parts, self.backward, strict=True)], 1)

    def _running(self) -> Term | None:
        lengths, batch = self.node.optional(4), self.dims[1]
        if lengths is None or not self.steps:
            return None
        if lengths.access.dims != (batch,):
            raise BadInput(f"input 4 requires {batch} lengths, got {lengths.access}")
        known = self.node.scope.known(lengths)
        if known is not None and (known == self.steps).all():
            return None
        at = [[step if not back else self.steps - 1 - step for back in self.backward] for step in range(self.steps)]
        places = np.array(at, lengths.access.dtype)[..., None, None]
        return compare("lt", self.node.constant(places, f"{self.node.name}.steps"), reshape(lengths, (batch, 1)))

    def gate(self, x: Term, gate: int) -> Term:
        """The part of one gate in the last axis."""
        return slice_axis(x, x.access.rank - 1, gate * self.hidden, (gate + 1) * self.hidden)

    def gated(self, given: Term, product: Term | None, gate: int) -> Term:
        """What one gate sees: its part of the inputs, and of the product with the state when there is one."""
        return _sum(self.gate(given, gate), None if product is None else self.gate(product, gate))

    def weights(self, first: int, last: int) -> Term:
        """The rows of the recurrence of these gates, ()(D g*H H)."""
        return slice_axis(self.recurrent, 1, first * self.hidden, last * self.hidden)

    def product(self, state: Term | None, weights: Term, step: int, part: str = "") -> Term | None:
        """state times weights transposed, ()(D N H) and ()(D R H) -> ()(D N R); nothing while there is no state."""
        return None if state is None else self.of_state(state, weights, f".step{step}{part}")

    def per_unit(self, vector: Term) -> Term:
        """()(D H) for each of the batch, ()(D N H)."""
        directions, size = vector.access.dims
        return broadcast(reshape(vector, (directions, 1, size)), self.dims)

    def _initial(self, i: int) -> Term | None:
        """An initial state, ()(D N H)."""
        state = self.node.optional(i)
        if state is not None and self.batch_first and state.access.rank == 3:
            state = transpose(state, (1, 0, 2))
        if state is not None and state.access.dims != self.dims:
            raise BadInput(f"input {i} requires a state of {spelled(self.dims)}, got {state.access}")
        return state

    def unrolled(self, turn: Turn, count: int = 1) -> list[Term]:
        """The outputs as the operator lays them out: the first of its states after each step, and all after the last.

        A sequence that has ended, or not begun, keeps its states, and shows zeros.
        """
        states = [self._initial(5 + i) for i in range(count)]
        shown = []
        for step in range(self.steps):
            new = turn(step, element(self.inputs, 0, step), *states)
            if self.running is not None:
                mask = broadcast(element(self.running, 0, step), self.dims)
                old = [filled(a, 0) if b is None else b for a, b in zip(new, states, strict=True)]
                new = [select(mask, a, b) for a, b in zip(new, old, strict=True)]
                shown.append(select(mask, new[0], filled(new[0], 0)))
            else:
                shown.append(new[0])
            states = [*new]
        zeros = build("full", self.dims, 0, self.inputs.access.dtype)
        every = self._in_order(stack(shown)) if shown else build("full", (0, *self.dims), 0, zeros.access.dtype)
        last = [zeros if state is None else state for state in states]
        if self.batch_first:
            return [transpose(every, (2, 0, 1, 3)), *(transpose(state, (1, 0, 2)) for state in last)]
        return [every, *last]


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


def _sum(*parts: Term | None) -> Term:
    return reduce(add, [part for part in parts if part is not None])


def _one_less(x: Term) -> Term:
    return subtract(filled(x, 1), x)


@onnx_operator("RNN")
def rnn(node: Node) -> list[Term]:
    net = Network(node, 1, 1)
    (f,) = _activations(node, ["Tanh"], len(net.backward))

    def turn(step: int, given: Term, state: Term | None) -> list[Term]:
        return [f(_sum(given, net.product(state, net.recurrent, step)))]

    return net.unrolled(turn)


@onnx_operator("GRU")
def gru(node: Node) -> list[Term]:
    after = bool(node.integer("linear_before_reset", 0))
    net = Network(node, 3, 2 if after else 3)
    f, g = _activations(node, ["Sigmoid", "Tanh"], len(net.backward))
    bias = None if net.biases is None else net.per_unit(net.biases)

    def turn(step: int, given: Term, state: Term | None) -> list[Term]:
        whole = net.product(state, net.weights(0, 3 if after else 2), step)
        update, reset = (f(net.gated(given, whole, i)) for i in (0, 1))
        if after:
            parts = [p for p in (None if whole is None else net.gate(whole, 2), bias) if p is not None]
            candidate = multiply(reset, _sum(*parts)) if parts else None
        else:
            remembered = None if state is None else multiply(reset, state)
            candidate = net.product(remembered, net.weights(2, 3), step, ".reset")
        new = multiply(_one_less(update), g(_sum(net.gate(given, 2), candidate)))
        return [new if state is None else add(new, multiply(update, state))]

    return net.unrolled(turn)


@onnx_operator("LSTM")
def lstm(node: Node) -> list[Term]:
    return unrolled_lstm(node, Network(node, 4, 4))


def unrolled_lstm(node: Node, net: Network) -> list[Term]:
    """The outputs of an LSTM, whose products are those of the network."""
    f, g, h = _activations(node, ["Sigmoid", "Tanh", "Tanh"], len(net.backward))
    coupled = bool(node.integer("input_forget", 0))
    peepholes = _peepholes(net)

    def seen(gate: int, cell: Term | None) -> Term | None:
        return multiply(peepholes[gate], cell) if peepholes and cell is not None else None

    def turn(step: int, given: Term, state: Term | None, cell: Term | None) -> list[Term]:
        product = net.product(state, net.recurrent, step)
        enter, leave, forget, candidate = (net.gated(given, product, i) for i in range(4))
        entered = f(_sum(enter, seen(0, cell)))
        kept = _one_less(entered) if coupled else f(_sum(forget, seen(2, cell)))
        new = multiply(entered, g(candidate))
        new = new if cell is None else add(multiply(kept, cell), new)
        return [multiply(f(_sum(leave, seen(1, new))), h(new)), new]

    return net.unrolled(turn, 2)


def _peepholes(net: Network) -> list[Term]:
    """For the input, output and forget gates, ()(D N H) each; nothing when there are none."""
    vectors = net.node.optional(7)
    if vectors is None:
        return []
    if vectors.access.dims != (len(net.backward), 3 * net.hidden):
        raise BadInput(f"input 7 requires peepholes of ({len(net.backward)} {3 * net.hidden}), got {vectors.access}")
    return [net.per_unit(net.gate(vectors, i)) for i in range(3)]
