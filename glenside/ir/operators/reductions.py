"""Compute types that make one number of each item."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from glenside.ir.operand import Array, Operand, Product
from glenside.ir.operator import Category, Compute, register
from glenside.ir.operators.requirements import require_elements, require_float, require_number
from glenside.ir.types import AccessType, widen


def _check_numbers(name: str) -> Any:
    return lambda a: require_number(name, a)


def _evaluate_dot_product(arithmetic: Any, a: Operand) -> Array:
    if isinstance(a.value, Product):
        contracted: Array = arithmetic.contract(a.value.a, a.value.b, a.value.shared, a.value.item)
        return contracted
    dtype = a.access.dtype
    wide = widen(dtype)
    parts = a.parts() if wide == dtype else [arithmetic.cast(part, wide) for part in a.parts()]
    axes = a.item_axes[:-1]
    ones = np.broadcast_to(arithmetic.constant(1, wide), a.access.dims.remove(a.split))
    result: Array = arithmetic.sum(reduce(arithmetic.multiply, parts) if parts else ones, axes)
    return result


dot_product = register(
    Compute(
        name="dot-product",
        category=Category.CONTRACTION,
        evaluate=_evaluate_dot_product,
        doc="The product along the first (tuple) axis of the item, summed over the rest.",
        dtype="widen",
    )
)

reduce_sum = register(
    Compute(
        name="reduce-sum",
        category=Category.REDUCTION,
        check=_check_numbers("reduce-sum"),
        evaluate=lambda arithmetic, a: arithmetic.sum(a.array, a.item_axes),
        doc="The sum of the item.",
        dtype="widen",
    )
)

reduce_prod = register(
    Compute(
        name="reduce-prod",
        category=Category.REDUCTION,
        check=_check_numbers("reduce-prod"),
        evaluate=lambda arithmetic, a: arithmetic.product(a.array, a.item_axes),
        doc="The product of the item.",
    )
)


def _check_mean(a: AccessType) -> None:
    require_float("reduce-mean", a)
    require_elements("reduce-mean", a)


reduce_mean = register(
    Compute(
        name="reduce-mean",
        category=Category.REDUCTION,
        check=_check_mean,
        evaluate=lambda arithmetic, a: arithmetic.mean(a.array, a.item_axes),
        doc="The mean of the item.",
    )
)

reduce_max = register(
    Compute(
        name="reduce-max",
        category=Category.REDUCTION,
        check=lambda a: require_elements("reduce-max", a),
        evaluate=lambda _, a: a.array.max(a.item_axes),
        doc="The largest element of the item.",
    )
)

reduce_min = register(
    Compute(
        name="reduce-min",
        category=Category.REDUCTION,
        check=lambda a: require_elements("reduce-min", a),
        evaluate=lambda _, a: a.array.min(a.item_axes),
        doc="The smallest element of the item.",
    )
)


def _items(a: Operand) -> Array:
    """Each item as one axis, so that positions in it count in row-major order."""
    return a.array.reshape((*a.access.shape, a.access.item.product()))


argmax = register(
    Compute(
        name="argmax",
        category=Category.REDUCTION,
        check=lambda a: require_elements("argmax", a),
        evaluate=lambda _, a: np.argmax(_items(a), -1).astype(np.int64),
        doc="The position of the first largest element in the item, counted in row-major order from 0.",
        dtype="int64",
    )
)

argmin = register(
    Compute(
        name="argmin",
        category=Category.REDUCTION,
        check=lambda a: require_elements("argmin", a),
        evaluate=lambda _, a: np.argmin(_items(a), -1).astype(np.int64),
        doc="The position of the first smallest element in the item, counted in row-major order from 0.",
        dtype="int64",
    )
)
