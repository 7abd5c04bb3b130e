"""Imports recurrent networks, unrolled: one product for the inputs of all steps and directions, one per state."""

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
    """Computes log(1 + e^x) as max(x, 0) + log(1 + e^-|x|), since e^x may overflow."""
    small = compute("exp", compute("negative", compute("abs", x)))
    return add(relu(x), compute("log", add(small, filled(x, 1))))


@dataclass(frozen=True)
class Activation:
    """A function with defaults for activation_alpha and activation_beta; REQUIRED parameters have none."""

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
    """Returns the activation functions, as many for each direction as `standard` has; the attribute lists them
    direction by direction.
    """
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
    # The last function of an LSTM reads the cell, which runtimes do not clip: the attribute is for gate inputs.
    return [_by_direction(chosen[i::count], limit if i < 2 else 0.0) for i in range(count)]


def _number(name: str, attribute: str, given: list[float], standard: float | None) -> float:
    """Returns the next given number, for functions that have this parameter."""
    if standard is None:
        return 0.0
    number = given.pop(0) if given else standard
    if not math.isfinite(number):
        raise BadInput(
            f"attribute {attribute} requires a number for {name}, got {'none' if number is standard else number}"
        )
    return number


def _by_direction(chosen: Sequence[Chosen], limit: float) -> Function:
    """Returns a function of ()(D N H) that applies each direction's own activation."""

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


StepFunction = Callable[..., list[Term]]
"""A step: (number, inputs, states before it, None before the first) -> states after it."""


class Network:
    """The common inputs of recurrent operators, read and checked. Directions are the first axis: ()(D ..).

    inputs   products of all steps, in the order of each direction's steps: ()(T D N G*H)
    biases   of the recurrence, for the gates after the first `summed`, whose biases `inputs` includes: ()(D g*H)
    running  True where a sequence has step t, ()(T D N 1); None if all do
    """

    def __init__(self, node: Node, gates: int, summed: int, weights: tuple[Term, Term] | None = None) -> None:
        """Reads the inputs; `weights` are those of inputs and of states, if they are not inputs 1 and 2 themselves."""
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
        """Multiplies inputs by the transposed weights of all directions, ()(T N I) and ()(D*R I) -> ()(T N D*R)."""
        return self.node.builder.linear(x, weights, name=self.node.layer_name(".inputs"))

    def of_state(self, state: Term, weights: Term, name: str) -> Term:
        """Multiplies a state by transposed weights, ()(D N H) and ()(D R H) -> ()(D N R)."""
        if len(self.backward) > 1:
            return self.node.builder.matmul(state, transpose(weights, (0, 2, 1)), name=self.node.layer_name(name))
        rows = element(state, 0, 0), element(weights, 0, 0)
        return stack([self.node.builder.linear(*rows, name=self.node.layer_name(name))])

    def _in_order(self, x: Term) -> Term:
        """Reverses the steps of backward directions in ()(T D ..)."""
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
        """Returns the part of one gate in the last axis."""
        return slice_axis(x, x.access.rank - 1, gate * self.hidden, (gate + 1) * self.hidden)

    def gated(self, given: Term, product: Term | None, gate: int) -> Term:
        """Returns the input of one gate: its part of the inputs plus its part of the product with the state, if any."""
        return _sum(self.gate(given, gate), None if product is None else self.gate(product, gate))

    def weights(self, first: int, last: int) -> Term:
        """Returns the rows of the recurrence of these gates, ()(D g*H H)."""
        return slice_axis(self.recurrent, 1, first * self.hidden, last * self.hidden)

    def product(self, state: Term | None, weights: Term, step: int, part: str = "") -> Term | None:
        """Multiplies a state by transposed weights, ()(D N H) and ()(D R H) -> ()(D N R); None without a state."""
        return None if state is None else self.of_state(state, weights, f".step{step}{part}")

    def per_unit(self, vector: Term) -> Term:
        """Broadcasts ()(D H) to the batch, ()(D N H)."""
        directions, size = vector.access.dims
        return broadcast(reshape(vector, (directions, 1, size)), self.dims)

    def _initial(self, i: int) -> Term | None:
        """Returns an initial state, ()(D N H)."""
        state = self.node.optional(i)
        if state is not None and self.batch_first and state.access.rank == 3:
            state = transpose(state, (1, 0, 2))
        if state is not None and state.access.dims != self.dims:
            raise BadInput(f"input {i} requires a state of {spelled(self.dims)}, got {state.access}")
        return state

    def unrolled(self, advance: StepFunction, count: int = 1) -> list[Term]:
        """Returns the operator's outputs: its first state after each step, and all states after the last.

        A sequence that has ended, or not begun, keeps its states, and its outputs are zeros.
        """
        states = [self._initial(5 + i) for i in range(count)]
        shown = []
        for step in range(self.steps):
            new = advance(step, element(self.inputs, 0, step), *states)
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
    """Returns the biases of the input product, and the biases of the recurrence that are added separately, ()(D
    G*H).
    """
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

    def advance(step: int, given: Term, state: Term | None) -> list[Term]:
        return [f(_sum(given, net.product(state, net.recurrent, step)))]

    return net.unrolled(advance)


@onnx_operator("GRU")
def gru(node: Node) -> list[Term]:
    after = bool(node.integer("linear_before_reset", 0))
    net = Network(node, 3, 2 if after else 3)
    f, g = _activations(node, ["Sigmoid", "Tanh"], len(net.backward))
    bias = None if net.biases is None else net.per_unit(net.biases)

    def advance(step: int, given: Term, state: Term | None) -> list[Term]:
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

    return net.unrolled(advance)


@onnx_operator("LSTM")
def lstm(node: Node) -> list[Term]:
    return unrolled_lstm(node, Network(node, 4, 4))


def unrolled_lstm(node: Node, net: Network) -> list[Term]:
    """Returns the outputs of an LSTM, with the products of the network."""
    f, g, h = _activations(node, ["Sigmoid", "Tanh", "Tanh"], len(net.backward))
    coupled = bool(node.integer("input_forget", 0))
    peepholes = _peepholes(net)

    def seen(gate: int, cell: Term | None) -> Term | None:
        return multiply(peepholes[gate], cell) if peepholes and cell is not None else None

    def advance(step: int, given: Term, state: Term | None, cell: Term | None) -> list[Term]:
        product = net.product(state, net.recurrent, step)
        enter, leave, forget, candidate = (net.gated(given, product, i) for i in range(4))
        entered = f(_sum(enter, seen(0, cell)))
        kept = _one_less(entered) if coupled else f(_sum(forget, seen(2, cell)))
        new = multiply(entered, g(candidate))
        new = new if cell is None else add(multiply(kept, cell), new)
        return [multiply(f(_sum(leave, seen(1, new))), h(new)), new]

    return net.unrolled(advance, 2)


def _peepholes(net: Network) -> list[Term]:
    """Returns the peepholes of the input, output and forget gates, ()(D N H) each; an empty list if there are none."""
    vectors = net.node.optional(7)
    if vectors is None:
        return []
    if vectors.access.dims != (len(net.backward), 3 * net.hidden):
        raise BadInput(f"input 7 requires peepholes of ({len(net.backward)} {3 * net.hidden}), got {vectors.access}")
    return [net.per_unit(net.gate(vectors, i)) for i in range(3)]
