"""Defines compute types that scale each item as a whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from glenside.ir.blockwise import block_size, in_blocks, items_of
from glenside.ir.dtypes import wider
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Category, Compute, compute_type, of_compute
from glenside.ir.operators.requirements import require_float


def _evaluate(finish: Callable[..., Array], arithmetic: Any, a: Operand) -> Array:
    """Computes `finish` of x, exp(x) and its sum, in blocks; x: items less their maximum where exp could overflow."""
    item, count = a.access.item, len(a.item_axes)

    def part(items: Array) -> Array:
        axes = tuple(range(items.ndim - count, items.ndim))
        x = arithmetic.below_maximum(arithmetic.cast(items, wider(a.access.dtype)), axes)  # bfloat16 is rounded once
        powers = arithmetic.apply("exp", x, False)
        total = arithmetic.sum(powers, axes)
        return np.asarray(finish(arithmetic, x, powers, total.reshape((*total.shape, *[1] * len(axes)))))

    return in_blocks(part, a.access.shape, a.array, dtype=a.array.dtype, item=item, part=items_of(item.product()))


def _scratch(a: Operand) -> int:
    """Counts three blocks of items: less their maximum, their exp, and the result; for bfloat16 all in float32."""
    length, wide = a.access.item.product(), np.dtype(wider(a.access.dtype))
    return 3 * block_size(a.access.shape, items_of(length)) * length * wide.itemsize


def _adjoint_softmax(terms: Any, g: Any, a: Any) -> Any:
    """Returns s * (g - sum(s * g)), for the softmax s."""
    shares = terms.compute("softmax", a)
    return terms.multiply(shares, terms.subtract(g, terms.spread(terms.item_sum(terms.multiply(shares, g), a), a)))


def _adjoint_log_softmax(terms: Any, g: Any, a: Any) -> Any:
    """Returns g - softmax * sum(g)."""
    total = terms.spread(terms.item_sum(g, a), a)
    return terms.subtract(g, terms.multiply(terms.compute("softmax", a), total))


def _normalization(name: str, doc: str, finish: Callable[..., Array], adjoint: Callable[..., Any]) -> Compute:
    return compute_type(
        name=name,
        category=Category.NORMALIZATION,
        check=lambda a: require_float(name, a),
        evaluate=partial(_evaluate, finish),
        scratch=_scratch,
        adjoint=adjoint,
        doc=doc,
        examples=of_compute(name),
    )


softmax = _normalization(
    "softmax",
    "exp(x) / sum(exp(x)) over the whole item, its maximum subtracted first.",
    lambda arithmetic, x, powers, total: arithmetic.divide(powers, total),
    _adjoint_softmax,
)
log_softmax = _normalization(
    "log-softmax",
    "x - log(sum(exp(x))) over the whole item, its maximum subtracted first.",
    lambda arithmetic, x, powers, total: arithmetic.subtract(x, arithmetic.apply("log", total, False)),
    _adjoint_log_softmax,
)
