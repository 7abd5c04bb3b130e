"""Imports activations, dropout and softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from glenside.builder import pointwise
from glenside.builder.dropout import masked
from glenside.builder.layout import reshape, split_at, transpose, untransposed
from glenside.builder.pointwise import add, cast, compare, compute, divide, filled, multiply, relu, select, subtract
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.ir.dtypes import FLOATS
from glenside.ir.rational import exact, represents
from glenside.ir.term import Term, build

Function = Callable[[Term], Term]


def softplus(x: Term) -> Term:
    """Computes log(1 + exp(x)) = max(x, 0) + log(1 + e) with e = exp(-|x|).

    log(1 + e) = 2 atanh(e / (e + 2)) keeps its digits for small e, and nothing overflows.
    """
    e = compute("exp", compute("negative", compute("abs", x)))
    half = compute("atanh", divide(e, add(e, filled(x, 2))))
    return add(relu(x), multiply(filled(x, 2), half))


FUNCTIONS: Mapping[str, Function] = {
    "Relu": relu,
    "HardSwish": pointwise.hard_swish,
    "Softplus": softplus,
    "Softsign": lambda x: divide(x, add(filled(x, 1), compute("abs", x))),
    "Mish": lambda x: multiply(x, compute("tanh", softplus(x))),
}


@onnx_operator(*FUNCTIONS)
def function(node: Node) -> Term:
    return FUNCTIONS[node.op_type](node.term(0))


def number(node: Node, name: str, standard: float, x: Term) -> Term:
    """Returns an attribute in the dims and the dtype of x; ONNX stores it in float32."""
    value = np.float32(node.number(name, standard)).astype(x.access.dtype)
    return node.scope.filled(x.access.dims, value)


def scaled_exp(x: Term, alpha: Term) -> Term:
    """Computes alpha * (exp(x) - 1)."""
    return multiply(alpha, subtract(compute("exp", x), filled(x, 1)))


def _celu(x: Term, alpha: Term) -> Term:
    return add(relu(x), pointwise.combine("minimum", scaled_exp(divide(x, alpha), alpha), filled(x, 0)))


PARAMETRIC: Mapping[str, tuple[Callable[..., Term], Mapping[str, float]]] = {
    "Elu": (lambda x, alpha: select(compare("lt", x, filled(x, 0)), scaled_exp(x, alpha), x), {"alpha": 1.0}),
    "Celu": (_celu, {"alpha": 1.0}),
    "HardSigmoid": (
        lambda x, alpha, beta: compute("(clip 0 1)", add(multiply(alpha, x), beta)),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "ThresholdedRelu": (lambda x, alpha: select(compare("gt", x, alpha), x, filled(x, 0)), {"alpha": 1.0}),
}
"""Operator -> (function of x and of attributes in the dims of x, default values of the attributes)."""


@onnx_operator(*PARAMETRIC)
def parametric(node: Node) -> Term:
    x, (function, standards) = node.term(0), PARAMETRIC[node.op_type]
    return function(x, *(number(node, name, standard, x) for name, standard in standards.items()))


@onnx_operator("LeakyRelu")
def leaky_relu(node: Node) -> Term:
    x, slope = node.term(0), np.float32(node.number("alpha", 0.01))
    text = str(slope) if x.access.dtype == "float32" else repr(slope.item())
    return compute(f"(leaky-relu {text})", x)


@onnx_operator("PRelu")
def prelu(node: Node) -> Term:
    x, slope = node.term(0), node.term(1)
    if node.version < 7 and slope.access.size > 1:  # one per channel
        slope = reshape(slope, (*slope.access.dims, *(1,) * (x.access.rank - 2)))
    return select(compare("lt", x, filled(x, 0)), multiply(x, slope), x)


@onnx_operator("Selu")
def selu(node: Node) -> Term:
    x = node.term(0)
    old = node.version < 6
    alpha = number(node, "alpha", 1.6732 if old else 1.67326319217681884765625, x)
    gamma = number(node, "gamma", 1.0507 if old else 1.05070102214813232421875, x)
    return multiply(gamma, select(compare("le", x, filled(x, 0)), scaled_exp(x, alpha), x))


@onnx_operator("Gelu")
def gelu(node: Node) -> Term:
    x = node.term(0)
    if node.text("approximate", "none", "none", "tanh") == "none":
        return pointwise.gelu(x)
    return tanh_gelu(x)


def tanh_gelu(x: Term) -> Term:
    """Computes x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2."""
    cubic = multiply(filled(x, "0.044715"), multiply(x, multiply(x, x)))
    inner = multiply(filled(x, repr(float(np.sqrt(2 / np.pi)))), add(x, cubic))
    return multiply(multiply(filled(x, "0.5"), x), add(compute("tanh", inner), filled(x, 1)))


@onnx_operator("Swish")
def swish(node: Node, standard: float = 1.0) -> Term:
    """Computes x * sigmoid(alpha * x)."""
    x = node.term(0)
    alpha = number(node, "alpha", standard, x)
    scaled = x if node.number("alpha", standard) == 1 else multiply(alpha, x)
    return multiply(x, compute("sigmoid", scaled))


@onnx_operator("Shrink")
def shrink(node: Node) -> Term:
    """Computes integers in float64: the bias may be a fraction."""
    given = node.term(0)
    x = given if given.access.dtype in FLOATS else cast(given, "float64")
    limit, bias = number(node, "lambd", 0.5, x), number(node, "bias", 0.0, x)
    inner = select(compare("gt", x, limit), subtract(x, bias), filled(x, 0))
    return cast(select(compare("lt", x, compute("negative", limit)), add(x, bias), inner), given.access.dtype)


@onnx_operator("Clip")
def clip(node: Node) -> Term:
    """Computes min(max(x, lo), hi), as one compute type if both limits are known numbers with lo <= hi."""
    x = node.term(0)
    lo, hi = _limits(node, x)
    texts = [_text(node, limit) for limit in (lo, hi)]
    low, high = (None if text is None else exact(text) for text in texts)
    if low is not None and high is not None and low <= high:
        return compute(f"(clip {texts[0]} {texts[1]})", x)
    if low == 0 and hi is None and x.access.dtype != "bool":
        return relu(x)
    if lo is not None:
        x = pointwise.combine("maximum", x, lo)
    return x if hi is None else pointwise.combine("minimum", x, hi)


def _limits(node: Node, x: Term) -> list[Term | None]:
    if node.version < 11:
        return [number(node, name, 0.0, x) if name in node.attributes else None for name in ("min", "max")]
    return [None if node.optional(i) is None else node.single(i) for i in (1, 2)]


def _text(node: Node, limit: Term | None) -> str | None:
    """Returns the text of a limit that is a finite number known at import, or None."""
    value = None if limit is None else node.scope.known(limit)
    if value is None or value.size == 0:
        return None
    text = str(value.reshape(-1)[0])
    return text if represents(text, value.dtype.name) else None


@onnx_operator("Dropout")
def dropout(node: Node) -> list[Term]:
    """Returns x at inference; in training, masks by the input dropout-seed, since ONNX seeds do not define the
    numbers.
    """
    x = node.term(0)
    training = node.version >= 12 and node.optional(2) is not None and bool(node.known(2).any())
    rate = "0.5" if node.optional(1) is None else str(node.known(1).reshape(-1)[0]) if training else "0"
    if training and float(rate):
        mask = node.builder.dropout_mask(x, rate)
        return [masked(x, mask, rate), mask]
    return [x, node.builder.full(x.access.dims, 1, "bool" if node.version >= 10 else x.access.dtype)]


@onnx_operator("Softmax", "LogSoftmax", "Hardmax")
def normalization(node: Node) -> Term:
    """Normalizes along one axis; before version 13, over all axes from that one on."""
    x = node.term(0)
    rank = x.access.rank
    kind = {"Softmax": "softmax", "LogSoftmax": "log-softmax", "Hardmax": "argmax"}[node.op_type]
    axis = node.axis("axis", -1 if node.version >= 13 else 1, rank)
    if x.access.size == 0:
        return x
    last = [axis] if node.version >= 13 else list(range(axis, rank))
    order = [i for i in range(rank) if i not in last] + last
    moved = transpose(x, order)
    result = build("compute", kind, split_at(moved, rank - len(last)))
    if kind == "argmax":
        table = build("eye", moved.access.dims.drop(rank - len(last)).product(), x.access.dtype)
        result = build("access-gather", table, split_at(result, 0), 0)
    return untransposed(reshape(result, moved.access.dims), order)
