"""Compute types that scale each item as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from glenside.ir.blockwise import block_size, in_blocks, items_of
from glenside.ir.example import of_compute
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Category, Compute, register
from glenside.ir.operators.requirements import require_float


def _shifted(arithmetic: Any, items: Array, count: int) -> tuple[Array, Array, Array]:
    """Items of so many axes (less their maximum, where exp could overflow), exp of that, and its sum, which keeps the
    axes.
    """
    axes = tuple(range(items.ndim - count, items.ndim))
    x = arithmetic.below_maximum(items, axes)
    powers = arithmetic.apply("exp", x, False)
    total = arithmetic.sum(powers, axes)
    return x, powers, total.reshape((*total.shape, *(1 for _ in axes)))


def _evaluate_softmax(arithmetic: Any, a: Operand) -> Array:
    def part(items: Array) -> Array:
        _, powers, total = _shifted(arithmetic, items, len(a.item_axes))
        return np.asarray(arithmetic.divide(powers, total))

    return _by_items(part, a)


def _evaluate_log_softmax(arithmetic: Any, a: Operand) -> Array:
    def part(items: Array) -> Array:
        x, _, total = _shifted(arithmetic, items, len(a.item_axes))
        return np.asarray(arithmetic.subtract(x, arithmetic.apply("log", total, False)))

    return _by_items(part, a)


def _by_items(part: Callable[[Array], Array], a: Operand) -> Array:
    item = a.access.item
    return in_blocks(part, a.access.shape, a.array, dtype=a.array.dtype, item=item, part=items_of(item.product()))


def _scratch(a: Operand) -> int:
    """Three blocks of items: less their maximum, exp of that, and the result."""
    length = a.access.item.product()
    return 3 * block_size(a.access.shape, items_of(length)) * length * a.array.itemsize


softmax = register(
    Compute(
        name="softmax",
        category=Category.NORMALIZATION,
        check=lambda a: require_float("softmax", a),
        evaluate=_evaluate_softmax,
        scratch=_scratch,
        doc="exp(x) / sum(exp(x)) over the whole item, its maximum subtracted first.",
        examples=of_compute("softmax"),
    )
)

log_softmax = register(
    Compute(
        name="log-softmax",
        category=Category.NORMALIZATION,
        check=lambda a: require_float("log-softmax", a),
        evaluate=_evaluate_log_softmax,
        scratch=_scratch,
        doc="x - log(sum(exp(x))) over the whole item, its maximum subtracted first.",
        examples=of_compute("log-softmax"),
    )
)
