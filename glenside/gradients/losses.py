"""Defines losses: the mean error of a network's output against a target, over examples or elements, as terms.

Outputs of 16 bits are compared in float32. Logits are outputs before softmax or sigmoid: exp of a large one overflows,
so the loss uses log-softmax, which does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from glenside.builder.indexing import gather_elements
from glenside.builder.layout import element, reshape, stack
from glenside.builder.pointwise import add, compare, compute, filled, multiply, select, softmax, subtract
from glenside.builder.reductions import reduce_axes, upcast
from glenside.ir.dtypes import FLOATS, INTEGERS
from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name, suggestion
from glenside.ir.operand import Array
from glenside.ir.operator import require
from glenside.ir.term import Term
from glenside.ir.types import AccessType


@dataclass(frozen=True)
class Loss:
    """One loss: `of` maps output and target to one number, ()(); `target` maps an output's type to its target's.

    of_output  the compute type that it includes: a network that ends with it is trained on that step's operand
    right      True per example if output and target agree, of arrays, for classifications
    bounds     the least and the greatest target, for an output's type
    """

    name: str
    doc: str
    of: Callable[[Term, Term], Term]
    target: Callable[[AccessType], AccessType]
    of_output: str = ""
    right: Callable[[Array, Array], Array] | None = None
    bounds: Callable[[AccessType], tuple[int, int]] | None = None


LOSSES: dict[str, Loss] = {}


def loss_named(name: str) -> Loss:
    """Returns the loss of that name. Raises BadInput."""
    if name not in LOSSES:
        have, hint = ", ".join(LOSSES), suggestion(name, LOSSES)
        raise BadInput(f"training requires a loss ({have}), got {spelled_name(name)}{hint}")
    return LOSSES[name]


def _loss(
    name: str,
    target: Callable[[AccessType], AccessType],
    of_output: str = "",
    right: Callable[[Array, Array], Array] | None = None,
    bounds: Callable[[AccessType], tuple[int, int]] | None = None,
) -> Callable[[Callable[[Term, Term], Term]], Loss]:
    """Declares a loss under its name; its docstring is its documentation."""

    def declare(of: Callable[[Term, Term], Term]) -> Loss:
        if name in LOSSES:
            raise ValueError(f"{name} is declared twice")
        return LOSSES.setdefault(name, Loss(name, of.__doc__ or "", of, target, of_output, right, bounds))

    return declare


def _like_output(output: AccessType) -> AccessType:
    return output.with_split(0)


def _class_of_each(output: AccessType) -> AccessType:
    require(output.rank >= 1, "softmax-cross-entropy", "logits of ()(N.. C)", output)
    return AccessType(output.dims.take(output.rank - 1), 0, "int64")


def _classes(output: AccessType) -> tuple[int, int]:
    return 0, output.dims[-1] - 1


def _probabilities(output: AccessType) -> tuple[int, int]:
    return 0, 1


def _most_likely(output: Array, target: Array) -> Array:
    return np.asarray(output.argmax(-1) == target)


def _most_likely_of_both(output: Array, target: Array) -> Array:
    return np.asarray(output.argmax(-1) == target.argmax(-1))


def _same_side(output: Array, target: Array) -> Array:
    return np.asarray((output > 0) == (target > 0.5))


def _mean(x: Term) -> Term:
    return reduce_axes("reduce-mean", x, [*range(x.access.rank)])


def _difference(name: str, output: Term, target: Term) -> Term:
    require(output.access.dtype in FLOATS, name, f"outputs of a float dtype ({', '.join(FLOATS)})", output.access)
    same = output.access.dims == target.access.dims and target.access.dtype == output.access.dtype
    require(same, name, "targets of the outputs' type", f"{output.access} and {target.access}")
    return subtract(upcast(output), upcast(target))


@_loss("softmax-cross-entropy", _class_of_each, "softmax", _most_likely, _classes)
def softmax_cross_entropy(output: Term, target: Term) -> Term:
    """Mean of -log softmax(logits) at the class of each example: logits ()(N.. C), classes ()(N..) of integers 0 to C -
    1.
    """
    name, dims = "softmax-cross-entropy", output.access.dims
    require(output.access.rank >= 1 and dims[-1] > 0, name, "logits of ()(N.. C)", output.access)
    fits = target.access.dims == dims[:-1] and target.access.dtype in INTEGERS
    require(fits, name, "classes ()(N..) of an integer dtype", f"{target.access} for {output.access}")
    places = reshape(target, (*dims[:-1], 1))
    chosen = gather_elements(softmax(upcast(output), -1, "log-softmax"), places, len(dims) - 1)
    return compute("negative", _mean(chosen))


@_loss("softmax-cross-entropy-one-hot", _like_output, "softmax", _most_likely_of_both, _probabilities)
def softmax_cross_entropy_one_hot(output: Term, target: Term) -> Term:
    """Mean of -sum(target * log softmax(logits)), ()(N.. C) both; targets are 1 at a class, or probabilities."""
    name = "softmax-cross-entropy-one-hot"
    require(output.access.rank >= 1, name, "logits of ()(N.. C)", output.access)
    _difference(name, output, target)
    weighted = multiply(upcast(target), softmax(upcast(output), -1, "log-softmax"))
    return compute("negative", _mean(reduce_axes("reduce-sum", weighted, [output.access.rank - 1])))


@_loss("binary-cross-entropy", _like_output, "sigmoid", _same_side, _probabilities)
def binary_cross_entropy(output: Term, target: Term) -> Term:
    """Mean of -target * log sigmoid(x) - (1 - target) * log sigmoid(-x) over logits x; targets are from 0 to 1.

    It uses the log-softmax of x and 0, which is smooth everywhere.
    """
    _difference("binary-cross-entropy", output, target)
    x, y = upcast(output), upcast(target)
    logarithms = softmax(stack([x, filled(x, 0)], -1), -1, "log-softmax")
    yes, no = (element(logarithms, -1, i) for i in (0, 1))
    return compute("negative", _mean(add(multiply(y, yes), multiply(subtract(filled(y, 1), y), no))))


@_loss("squared-error", _like_output)
def squared_error(output: Term, target: Term) -> Term:
    """Mean of (output - target)^2."""
    difference = _difference("squared-error", output, target)
    return _mean(multiply(difference, difference))


@_loss("absolute-error", _like_output)
def absolute_error(output: Term, target: Term) -> Term:
    """Mean of |output - target| (L1)."""
    return _mean(compute("abs", _difference("absolute-error", output, target)))


@_loss("huber", _like_output)
def huber(output: Term, target: Term) -> Term:
    """Mean of d^2 / 2 where |d| <= 1, else |d| - 1/2, for d = output - target."""
    difference = _difference("huber", output, target)
    size = compute("abs", difference)
    squares = multiply(multiply(difference, difference), filled(size, "1/2"))
    return _mean(select(compare("le", size, filled(size, 1)), squares, subtract(size, filled(size, "1/2"))))
