"""Imports gradients, and optimizer steps: new values of tensors from their gradients and optimizer states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from glenside.builder.layout import reshape
from glenside.builder.pointwise import add, cast, combine, compare, compute, divide, filled, multiply, select, subtract
from glenside.gradients.reverse import reverse
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened
from glenside.ir.term import Term, rebuild_all

training_operator = partial(onnx_operator, domain="ai.onnx.preview.training")

Step = Callable[..., list[Term]]
"""A step for one tensor: (tensor, gradient, states) -> [new tensor, new states]."""


def _steps(node: Node, kept: int, step: Step) -> list[Term]:
    """Returns the first results of all tensors, then the second ones; inputs from 2 on are grouped likewise."""
    count, rest = divmod(len(node.inputs) - 2, 2 + kept)
    if rest or not count:
        raise BadInput(f"requires {2 + kept} inputs for each tensor after the first two, got {len(node.inputs) - 2}")
    groups = [[node.term(2 + part * count + i) for part in range(2 + kept)] for i in range(count)]
    made = [step(x, _regularized(node, x, g), *more) for x, g, *more in groups]
    return [results[part] for part in range(1 + kept) for results in made]


def _regularized(node: Node, x: Term, gradient: Term) -> Term:
    return add(_times(x, node.number("norm_coefficient", 0.0)), gradient)


def _times(x: Term, factor: float) -> Term:
    return multiply(x, filled(x, factor))


def _rate(node: Node, x: Term) -> tuple[Term, Term]:
    """Returns the learning rate and the step count, in the dtype of x."""
    rate, count = (cast(reshape(node.single(i), ()), x.access.dtype) for i in (0, 1))
    return rate, count


@training_operator("Adagrad")
def adagrad(node: Node) -> list[Term]:
    def step(x: Term, gradient: Term, squares: Term) -> list[Term]:
        rate, count = _rate(node, x)
        rate = divide(rate, add(filled(count, 1), _times(count, node.number("decay_factor", 0.0))))
        squares = add(squares, multiply(gradient, gradient))
        root = add(compute("sqrt", squares), filled(squares, node.number("epsilon", 1e-6)))
        return [subtract(x, divide(multiply(rate, gradient), root)), squares]

    return _steps(node, 1, step)


@training_operator("Momentum")
def momentum(node: Node) -> list[Term]:
    alpha, beta = node.number("alpha", 0.0), node.number("beta", 0.0)
    nesterov = node.text("mode", "", "standard", "nesterov") == "nesterov"

    def step(x: Term, gradient: Term, moved: Term) -> list[Term]:
        rate, count = _rate(node, x)
        first = compare("gt", count, filled(count, 0))
        share = select(first, filled(count, beta), filled(count, 1))
        moved = add(_times(moved, alpha), multiply(share, gradient))
        change = add(gradient, _times(moved, alpha)) if nesterov else moved
        return [subtract(x, multiply(rate, change)), moved]

    return _steps(node, 1, step)


@training_operator("Adam")
def adam(node: Node) -> list[Term]:
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)

    def step(x: Term, gradient: Term, mean: Term, squares: Term) -> list[Term]:
        rate, count = _rate(node, x)
        mean = add(_times(mean, alpha), _times(gradient, 1 - alpha))
        squares = add(_times(squares, beta), _times(multiply(gradient, gradient), 1 - beta))
        kept = [subtract(filled(count, 1), combine("pow", filled(count, b), count)) for b in (alpha, beta)]
        later = compare("gt", count, filled(count, 0))
        # The first step corrects nothing, and must not divide by 0.
        divisor = select(later, kept[0], filled(count, 1))
        rate = select(later, divide(multiply(rate, compute("sqrt", kept[1])), divisor), rate)
        root = add(compute("sqrt", squares), filled(squares, node.number("epsilon", 1e-6)))
        x = subtract(x, divide(multiply(rate, mean), root))
        return [_times(x, 1 - node.number("norm_coefficient_post", 0.0)), mean, squares]

    return _steps(node, 2, step)


@training_operator("Gradient")
def gradient(node: Node) -> list[Term]:
    """Returns dy/dx for each of `xs`, where the graph's tensors `xs` and `zs` have the values of the inputs.

    Two names of one tensor, as Identity gives, are one tensor here.
    """
    names = [*(node.texts("xs") or []), *(node.texts("zs") or [])]
    count = len(node.texts("xs") or [])
    if not count or len(names) != len(node.inputs):
        raise BadInput(f"requires an input for each of {len(names)} names in xs and zs, got {len(node.inputs)}")
    y, *places = (_named(node, name) for name in (node.text("y", ""), *names))
    given = node.terms()
    for name, place, value in zip(names, places, given, strict=True):
        if place.type != value.type:
            raise BadInput(f"requires the input for {shortened(name)} like it, {place.type}, got {value.type}")
    if y.access.size != 1 or any(x.access.dtype not in FLOATS for x in (y, *given[:count])):
        raise BadInput(f"requires a y of one float and xs of floats, got {_types([y, *given[:count]])}")
    (moved,) = rebuild_all([y], lambda *_: None, dict(zip(places, given, strict=True)))
    found = reverse({moved: filled(moved, 1)}, given[:count]).found
    return [filled(x, 0) if g is None else g for g, x in zip(found, given, strict=False)]


def _named(node: Node, name: str) -> Term:
    """Returns a named tensor of the enclosing graph."""
    value = node.scope.names.get(name)
    if not isinstance(value, Term):
        raise BadInput(f"requires names of tensors in y, xs and zs, got {shortened(name, True)}")
    return value


def _types(terms: Sequence[Term]) -> str:
    return ", ".join(str(term.type) for term in terms)
