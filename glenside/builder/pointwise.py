"""Element by element: arithmetic with broadcasting, activations, batch normalisation, softmax."""

from __future__ import annotations

from glenside.builder.layout import broadcast, channel_vector, common_dims, split_at, transpose
from glenside.ir.operator import require
from glenside.ir.term import Term, build


def combine(kind: str, x: Term, y: Term) -> Term:
    """A compute type of two operands, such as elementwise-add or maximum; operands broadcast as in numpy."""
    dims = common_dims(kind, x.access.dims, y.access.dims)
    return build("compute", kind, build("access-product", broadcast(x, dims), broadcast(y, dims), 0))


def add(x: Term, y: Term) -> Term:
    """x + y."""
    return combine("elementwise-add", x, y)


def subtract(x: Term, y: Term) -> Term:
    """x - y."""
    return combine("subtract", x, y)


def multiply(x: Term, y: Term) -> Term:
    """x * y."""
    return combine("elementwise-mul", x, y)


def divide(x: Term, y: Term) -> Term:
    """x / y."""
    return combine("elementwise-div", x, y)


def compute(kind: str, x: Term) -> Term:
    """A compute type of one operand, such as tanh or (clip 0 6)."""
    return build("compute", kind, split_at(x, 0))


def relu(x: Term) -> Term:
    """max(x, 0)."""
    return compute("relu", x)


def relu6(x: Term) -> Term:
    """min(max(x, 0), 6)."""
    return compute("(clip 0 6)", x)


def batch_norm(x: Term, gamma: Term, beta: Term, mean: Term, var: Term, eps: float | str = 1e-5) -> Term:
    """x * scale + shift with scale = gamma / sqrt(var + eps) and shift = beta - mean * scale, vectors of x's axis 1.

    Both vectors are terms of constants, so that they cost nothing at run time.
    """
    epsilon = build("full", var.access.dims, eps, var.access.dtype)
    scale = divide(gamma, compute("sqrt", add(var, epsilon)))
    shift = subtract(beta, multiply(mean, scale))
    return add(multiply(x, channel_vector(scale, x)), channel_vector(shift, x))


def softmax(x: Term, axis: int = -1) -> Term:
    """exp(x) / sum(exp(x)) along one axis."""
    rank = x.access.rank
    require(-rank <= axis < rank, "softmax", f"{-rank} <= axis < {rank}", axis)
    order = [i for i in range(rank) if i != axis % rank] + [axis % rank]
    back = sorted(range(rank), key=order.__getitem__)
    return transpose(build("compute", "softmax", split_at(transpose(x, order), rank - 1)), back)
