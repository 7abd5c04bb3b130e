"""Computes element by element: arithmetic with broadcasting, activations, normalizations, softmax."""

from __future__ import annotations

import math

from glenside.builder.layout import (
    broadcast,
    channel_vector,
    common_dims,
    require_terms,
    reshape,
    split_at,
    stack,
    transpose,
    untransposed,
)
from glenside.ir.operator import require
from glenside.ir.term import Term, build


def combine(kind: str, x: Term, y: Term) -> Term:
    """Computes a compute type of two operands, such as elementwise-add or maximum; operands broadcast as in numpy."""
    require_terms(x, y)
    dims = common_dims(kind, x.access.dims, y.access.dims)
    return build("compute", kind, build("access-product", broadcast(x, dims), broadcast(y, dims), 0))


def select(condition: Term, x: Term, y: Term) -> Term:
    """Computes x where the condition, of dtype bool, holds, and y elsewhere; the three broadcast as in numpy."""
    require_terms(condition, x, y)
    dims = common_dims("select", condition.access.dims, x.access.dims, y.access.dims)
    choices = [broadcast(choice, dims) for choice in (cast(condition, x.access.dtype), x, y)]
    return build("compute", "select", stack(choices))


def compare(relation: str, x: Term, y: Term) -> Term:
    """Computes whether x lt, le, gt, ge, eq or ne y; operands broadcast as in numpy."""
    return combine(f"(compare {relation})", x, y)


def add(x: Term, y: Term) -> Term:
    """Computes x + y."""
    return combine("elementwise-add", x, y)


def subtract(x: Term, y: Term) -> Term:
    """Computes x - y."""
    return combine("subtract", x, y)


def multiply(x: Term, y: Term) -> Term:
    """Computes x * y."""
    return combine("elementwise-mul", x, y)


def divide(x: Term, y: Term) -> Term:
    """Computes x / y."""
    return combine("elementwise-div", x, y)


def compute(kind: str, x: Term) -> Term:
    """Computes a compute type of one operand, such as tanh or (clip 0 6)."""
    return build("compute", kind, split_at(x, 0))


def cast(x: Term, dtype: str) -> Term:
    """Converts x to another dtype: floats are rounded towards zero, integers wrap."""
    return x if x.access.dtype == dtype else build("cast", split_at(x, 0), dtype)


def relu(x: Term) -> Term:
    """Computes max(x, 0)."""
    return compute("relu", x)


def relu6(x: Term) -> Term:
    """Computes min(max(x, 0), 6)."""
    return compute("(clip 0 6)", x)


def sigmoid(x: Term) -> Term:
    """Computes 1 / (1 + exp(-x))."""
    return compute("sigmoid", x)


def tanh(x: Term) -> Term:
    """Computes the hyperbolic tangent."""
    return compute("tanh", x)


def hard_sigmoid(x: Term) -> Term:
    """Computes min(max(x + 3, 0), 6) / 6."""
    return divide(relu6(add(x, filled(x, 3))), filled(x, 6))


def hard_swish(x: Term) -> Term:
    """Computes x * min(max(x + 3, 0), 6) / 6."""
    return multiply(x, hard_sigmoid(x))


def gelu(x: Term) -> Term:
    """Computes x * (1 + erf(x / sqrt(2))) / 2."""
    probability = add(compute("erf", divide(x, square_root(2, x.access.dtype))), filled(x, 1))
    return divide(multiply(x, probability), filled(x, 2))


def filled(x: Term, value: float | str) -> Term:
    """Returns one exact number in the dims of x."""
    return build("full", x.access.dims, value, x.access.dtype)


def square_root(value: int, dtype: str) -> Term:
    """Computes the square root of a number, ()(): a number if it is rational, otherwise a computation."""
    root = math.isqrt(value)
    if root * root == value:
        return build("full", (), root, dtype)
    return compute("sqrt", build("full", (), value, dtype))


def batch_norm(x: Term, gamma: Term, beta: Term, mean: Term, var: Term, eps: float | str = 1e-5) -> Term:
    """Computes x * scale + shift with scale = gamma / sqrt(var + eps) and shift = beta - mean * scale, vectors of axis
    1.
    """
    epsilon = build("full", var.access.dims, eps, var.access.dtype)
    scale = divide(gamma, compute("sqrt", add(var, epsilon)))
    shift = subtract(beta, multiply(mean, scale))
    return add(multiply(x, channel_vector(scale, x)), channel_vector(shift, x))


def layer_norm(x: Term, gamma: Term, beta: Term, eps: float | str = 1e-5) -> Term:
    """Computes (x - mean) / sqrt(variance + eps) * gamma + beta over the last axis; gamma and beta are vectors of
    it.
    """
    rank, dims = x.access.rank, x.access.dims
    fits = rank >= 1 and gamma.access.dims == beta.access.dims == dims[-1:]
    require(fits, "layer norm", "gamma and beta of x's last axis", f"{gamma.access} and {beta.access} for {x.access}")
    return add(multiply(standardized(x, rank - 1, eps)[0], gamma), beta)


def mean_from(x: Term, axis: int) -> Term:
    """Computes the mean over the axes from that one on, which keep size 1."""
    dims = x.access.dims
    return reshape(build("compute", "reduce-mean", split_at(x, axis)), (*dims[:axis], *(1 for _ in dims[axis:])))


def standardized(x: Term, axis: int, eps: float | str = 1e-5) -> tuple[Term, Term, Term]:
    """Computes ((x - mean) / deviation, mean, deviation) over the axes from that one on.

    deviation = sqrt(variance + eps).
    """
    mean = mean_from(x, axis)
    centred = subtract(x, mean)
    variance = mean_from(multiply(centred, centred), axis)
    deviation = compute("sqrt", add(variance, filled(variance, eps)))
    return divide(centred, deviation), mean, deviation


def softmax(x: Term, axis: int = -1, kind: str = "softmax") -> Term:
    """Computes exp(x) / sum(exp(x)) along one axis, or another compute type of whole items, such as log-softmax."""
    rank = x.access.rank
    require(-rank <= axis < rank, kind, f"{-rank} <= axis < {rank}", axis)
    order = [i for i in range(rank) if i != axis % rank] + [axis % rank]
    return untransposed(build("compute", kind, split_at(transpose(x, order), rank - 1)), order)
