"""Imports activations: alone, with a bias, and fused into a product."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from glenside.builder import pointwise
from glenside.builder.layout import reshape, slice_axis
from glenside.builder.pointwise import add, compare, compute, filled, multiply, relu, select, softmax
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.operators.activations import FUNCTIONS, PARAMETRIC, scaled_exp, swish, tanh_gelu
from glenside.importers.onnx.operators.com_microsoft import runtime_operator
from glenside.ir.errors import BadInput
from glenside.ir.term import Term


def with_bias(node: Node) -> Term:
    """Returns input 0, plus input 1 if it is given."""
    bias = node.optional(1)
    return node.term(0) if bias is None else add(node.term(0), bias)


@runtime_operator("Gelu", "BiasGelu")
def gelu(node: Node) -> Term:
    return pointwise.gelu(with_bias(node))


@runtime_operator("FastGelu")
def fast_gelu(node: Node) -> Term:
    return tanh_gelu(with_bias(node))


@runtime_operator("QuickGelu")
def quick_gelu(node: Node) -> Term:
    return swish(node, 1.7020000219345093)


@runtime_operator("ScaledSiLU")
def scaled_silu(node: Node) -> Term:
    x = node.term(0)
    scale = (
        filled(x, node.number("alpha", 1.0)) if node.optional(1) is None else pointwise.cast(node.single(1), "float32")
    )
    scaled = pointwise.cast(multiply(pointwise.cast(x, "float32"), pointwise.cast(scale, "float32")), x.access.dtype)
    return multiply(scaled, compute("sigmoid", scaled))


@runtime_operator("BiasAdd")
def bias_add(node: Node) -> Term:
    return add(with_bias(node), node.term(2))


@runtime_operator("BiasSplitGelu")
def bias_split_gelu(node: Node) -> Term:
    x = with_bias(node)
    last = x.access.rank - 1
    half, odd = divmod(x.access.dims[last], 2)
    if odd:
        raise BadInput(f"input 0 requires an even size of its last axis, got {x.access}")
    return multiply(slice_axis(x, last, 0, half), pointwise.gelu(slice_axis(x, last, half, 2 * half)))


@runtime_operator("BiasSoftmax")
def bias_softmax(node: Node) -> Term:
    """Computes softmax over all axes from one on; the inputs broadcast like the addition that was fused into it."""
    x = with_bias(node)
    dims = x.access.dims
    if dims != node.term(0).access.dims:
        raise BadInput(f"input 1 requires a bias that broadcasts to {node.term(0).access}, got {node.term(1).access}")
    axis = node.axis("axis", 1, len(dims))
    return reshape(softmax(reshape(x, (*dims[:axis], math.prod(dims[axis:])))), dims)


Fused = Callable[[Term, Sequence[float]], Term]
"""A function of x and of numbers."""


def _parametric(name: str) -> Fused:
    function, standards = PARAMETRIC[name]

    def of(x: Term, numbers: Sequence[float]) -> Term:
        given = [*numbers, *list(standards.values())[len(numbers) :]]
        return function(x, *(filled(x, number) for number, _ in zip(given, standards, strict=False)))

    return of


def _clip(x: Term, numbers: Sequence[float]) -> Term:
    low, high = numbers or (0.0, 6.0)
    if -math.inf < low <= high < math.inf:
        return compute(f"(clip {low!r} {high!r})", x)
    x = pointwise.combine("maximum", x, filled(x, low)) if low > -math.inf else x
    return pointwise.combine("minimum", x, filled(x, high)) if high < math.inf else x


def _selu(x: Term, numbers: Sequence[float]) -> Term:
    alpha, gamma = numbers or (1.6732632423543772, 1.0507009873554805)
    below = scaled_exp(x, filled(x, alpha))
    return multiply(filled(x, gamma), select(compare("le", x, filled(x, 0)), below, x))


FUSED: Mapping[str, tuple[int, Fused]] = {
    "Relu": (0, lambda x, _: relu(x)),
    "Tanh": (0, lambda x, _: compute("tanh", x)),
    "Sigmoid": (0, lambda x, _: compute("sigmoid", x)),
    "HardSwish": (0, lambda x, _: pointwise.hard_swish(x)),
    "Softplus": (0, lambda x, _: FUNCTIONS["Softplus"](x)),
    "Softsign": (0, lambda x, _: FUNCTIONS["Softsign"](x)),
    "LeakyRelu": (1, lambda x, numbers: compute(f"(leaky-relu {numbers[0] if numbers else 0.01!r})", x)),
    "Elu": (1, _parametric("Elu")),
    "ThresholdedRelu": (1, _parametric("ThresholdedRelu")),
    "HardSigmoid": (2, _parametric("HardSigmoid")),
    "Selu": (2, _selu),
    "Clip": (2, _clip),
}
"""Name of a fused activation -> (number of parameters, function)."""


def fused(node: Node, x: Term, numbers: Sequence[float]) -> Term:
    """Applies the activation that the attribute names, with its parameters; returns x if there is none."""
    name = node.text("activation", "", "", *FUSED)
    if not name:
        return x
    count, function = FUSED[name]
    if numbers and len(numbers) < count:
        raise BadInput(f"the activation {name} requires {count} numbers, got {len(numbers)}")
    return function(x, numbers[:count])
