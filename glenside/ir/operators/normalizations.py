"""Compute types that scale each item as a whole."""

from __future__ import annotations

from typing import Any

from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Category, Compute, register
from glenside.ir.operators.requirements import require_float


def _shifted(arithmetic: Any, a: Operand) -> tuple[Array, Array, Array]:
    """The item (less its maximum, where exp could overflow), its exp, and the sum of that along axes of size 1."""
    x = arithmetic.below_maximum(a.array, a.item_axes)
    powers = arithmetic.apply("exp", x, False)
    total = arithmetic.sum(powers, a.item_axes).reshape((*a.access.shape, *(1 for _ in a.item_axes)))
    return x, powers, total


def _evaluate_softmax(arithmetic: Any, a: Operand) -> Array:
    _, powers, total = _shifted(arithmetic, a)
    result: Array = arithmetic.divide(powers, total)
    return result


def _evaluate_log_softmax(arithmetic: Any, a: Operand) -> Array:
    x, _, total = _shifted(arithmetic, a)
    result: Array = arithmetic.subtract(x, arithmetic.apply("log", total, False))
    return result


softmax = register(
    Compute(
        name="softmax",
        category=Category.NORMALIZATION,
        check=lambda a: require_float("softmax", a),
        evaluate=_evaluate_softmax,
        doc="exp(x) / sum(exp(x)) over the whole item, its maximum subtracted first.",
    )
)

log_softmax = register(
    Compute(
        name="log-softmax",
        category=Category.NORMALIZATION,
        check=lambda a: require_float("log-softmax", a),
        evaluate=_evaluate_log_softmax,
        doc="x - log(sum(exp(x))) over the whole item, its maximum subtracted first.",
    )
)
