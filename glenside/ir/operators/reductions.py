"""Defines compute types that reduce each item to one number, or sort its elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import accumulate
from typing import Any

import numpy as np

from glenside.ir.blockwise import block_size, in_blocks, items_of, reduced
from glenside.ir.contraction import contraction_scratch
from glenside.ir.dtypes import HALVES, widen, wider
from glenside.ir.operand import Array, Operand, Product
from glenside.ir.operator import (
    MONOTONE,
    Category,
    Compute,
    Field,
    Keeps,
    Kind,
    compute_type,
    example,
    of_compute,
    require,
)
from glenside.ir.operators.requirements import require_elements, require_float
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.scalar import keeps, x, y
from glenside.ir.types import AccessType


def _evaluate_dot_product(arithmetic: Any, a: Operand) -> Array:
    if isinstance(a.value, Product):
        contracted: Array = arithmetic.contract(a.value.a, a.value.b, a.value.shared, a.value.item)
        return contracted
    dtype = a.access.dtype
    wide = widen(dtype)
    inner = wider(wide)  # bfloat16 is rounded once, when the result is stored
    axes = tuple(range(1 - len(a.item_axes), 0))

    def part(items: Array) -> Array:
        first = items.ndim - len(a.item_axes)
        parts = items.transpose([first, *range(first), *range(first + 1, items.ndim)])
        if not len(parts):
            return np.asarray(arithmetic.sum(np.broadcast_to(arithmetic.constant(1, inner), parts.shape[1:]), axes))
        return np.asarray(arithmetic.sum(reduce(arithmetic.multiply, (arithmetic.cast(x, inner) for x in parts)), axes))

    size = items_of(a.access.item.product())
    return in_blocks(part, a.access.shape, a.array, dtype=arithmetic.constant(1, wide).dtype, part=size)


def _adjoint_dot_product(terms: Any, g: Any, a: Any) -> Any:
    """Returns two products for a product of operands; otherwise each part gets the product of all others."""
    if a.operator.name == "access-product":
        return terms.contraction_adjoint(g, *a.arguments())
    parts = terms.parts(a)
    if not parts:
        return None
    others = _without_each(terms, parts)
    spread = terms.spread(g, a, a.access.item.drop(1))
    return terms.rejoined(a, [terms.multiply(spread, other) for other in others])


def _without_each(terms: Any, factors: Sequence[Any]) -> list[Any]:
    """Returns for each factor the product of all others, without division."""
    one = terms.filled(factors[0], 1)
    before = [*accumulate(factors[:-1], terms.multiply, initial=one)]
    after = [*accumulate(factors[:0:-1], terms.multiply, initial=one)][::-1]
    return [terms.multiply(left, right) for left, right in zip(before, after, strict=True)]


def _total_scratch(a: Operand) -> int:
    """Returns the bytes of unrounded sums, if these have a wider dtype than the result."""
    return 4 * a.access.shape.product() if a.access.dtype in HALVES else 0


def _dot_scratch(a: Operand) -> int:
    if isinstance(a.value, Product):
        return contraction_scratch(a.value.a, a.value.b, a.value.shared, a.value.item)
    size = block_size(a.access.shape, items_of(a.access.item.product())) * a.access.item.drop(1).product()
    return 3 * size * np.dtype(wider(widen(a.access.dtype))).itemsize


dot_product = compute_type(
    name="dot-product",
    category=Category.CONTRACTION,
    evaluate=_evaluate_dot_product,
    scratch=_dot_scratch,
    adjoint=_adjoint_dot_product,
    doc="The product along the first (tuple) axis of the item, summed over the rest.",
    examples=example(
        "(compute dot-product (access-product (access (access-tensor x) 1) (access (access-tensor y) 1) 0))",
        x="m k",
        y="n k",
    ),
    dtype="widen",
    keeps=Keeps.ZERO,
)


def _combination(
    name: str, primitive: str, doc: str, evaluate: Callable[..., Array], dtype: str = "same", **known: Any
) -> Compute:
    """Registers a compute type that reduces an item by a primitive; an empty item gives the neutral element."""
    combine = PRIMITIVES[primitive]

    def check(a: AccessType) -> None:
        require(a.dtype in combine.takes.dtypes, name, combine.takes.words, a)
        if combine.neutral is None:
            require_elements(name, a)

    return compute_type(
        name,
        Category.REDUCTION,
        doc,
        combine=combine,
        check=check,
        evaluate=evaluate,
        dtype=dtype,
        linear=combine.linear,
        orders=combine.orders,
        keeps=keeps(combine(x, y)) & ~Keeps.FACTOR,
        examples=of_compute(name),
        **known,
    )


reduce_sum = _combination(
    "reduce-sum",
    "add",
    "The sum of the item.",
    lambda f, a: f.sum(a.array, a.item_axes),
    dtype="widen",
    scratch=_total_scratch,
    adjoint=lambda terms, g, a: terms.spread(g, a),
)


def _adjoint_product(terms: Any, g: Any, a: Any) -> Any:
    """Multiplies g by the product of all other elements of the item, those before each element and those after it."""
    rows = terms.reshape(a, (*a.access.shape, a.access.item.product()))
    before = terms.running_product(rows)
    after = terms.flip(terms.running_product(terms.flip(rows, a.access.split)), a.access.split)
    return terms.multiply(terms.spread(g, a), terms.reshape(terms.multiply(before, after), a.access.dims))


reduce_prod = _combination(
    "reduce-prod",
    "multiply",
    "The product of the item.",
    lambda f, a: f.product(a.array, a.item_axes),
    adjoint=_adjoint_product,
)


def _adjoint_extreme(name: str, terms: Any, g: Any, a: Any) -> Any:
    """Divides g equally among all elements that attain the extreme."""
    found = terms.compare("eq", terms.whole(a), terms.spread(terms.whole(terms.compute(name, a)), a))
    count = terms.item_sum(terms.select(found, terms.filled(a, 1), 0), a)
    return terms.select(found, terms.spread(terms.divide(g, count), a), 0)


def _extreme(name: str, primitive: str, doc: str) -> Compute:
    ufunc = PRIMITIVES[primitive].numpy
    assert isinstance(ufunc, np.ufunc)
    return _combination(
        name,
        primitive,
        doc,
        lambda _, a: reduced(ufunc, a.array, a.item_axes, a.array.dtype),
        adjoint=partial(_adjoint_extreme, name),
    )


reduce_max = _extreme("reduce-max", "max", "The largest element of the item.")
reduce_min = _extreme("reduce-min", "min", "The smallest element of the item.")


def _check_mean(a: AccessType) -> None:
    require_float("reduce-mean", a)
    require_elements("reduce-mean", a)


reduce_mean = compute_type(
    name="reduce-mean",
    category=Category.REDUCTION,
    check=_check_mean,
    evaluate=lambda arithmetic, a: arithmetic.mean(a.array, a.item_axes),
    scratch=_total_scratch,
    adjoint=lambda terms, g, a: terms.spread(terms.divide(g, terms.filled(g, a.access.item.product())), a),
    doc="The mean of the item.",
    examples=of_compute("reduce-mean"),
    linear=True,
    keeps=MONOTONE,
)


def _rows(items: Array, a: Operand) -> Array:
    """Flattens each item, so that positions in it count in row-major order."""
    return items.reshape((*items.shape[: items.ndim - len(a.item_axes)], a.access.item.product()))


def _extreme_position(name: str, which: str, function: Callable[..., Array]) -> Compute:
    def evaluate(arithmetic: Any, a: Operand) -> Array:
        def part(items: Array) -> Array:
            return np.asarray(function(_rows(items, a), -1)).astype(np.int64, copy=False)

        ranked = arithmetic.ranked(a.array)
        return in_blocks(part, a.access.shape, ranked, dtype=np.int64, part=items_of(a.access.item.product()))

    def scratch(a: Operand) -> int:
        """Counts a block of positions, and a block of items if these must be copied to row-major order."""
        length = a.access.item.product()
        items = block_size(a.access.shape, items_of(length))
        return items * (8 + (0 if a.array.flags.c_contiguous else length * a.array.itemsize))

    return compute_type(
        name=name,
        category=Category.REDUCTION,
        check=lambda a: require_elements(name, a),
        evaluate=evaluate,
        scratch=scratch,
        doc=f"The position of the first {which} element in the item, counted in row-major order from 0.",
        examples=of_compute(name),
        dtype="int64",
        orders=True,
    )


argmax = _extreme_position("argmax", "largest", np.argmax)
argmin = _extreme_position("argmin", "smallest", np.argmin)


def _ordered(items: Array) -> Array:
    """Converts to a dtype that numpy sorts with the same order; for dtypes that numpy lacks it mishandles nan."""
    return items.astype(wider(items.dtype.name)) if items.dtype.kind == "V" else items


def _evaluate_argsort(arithmetic: Any, a: Operand, direction: str) -> Array:
    item = a.access.item

    def part(block: Array) -> Array:
        items = _ordered(_rows(block, a))
        if direction == "ascending":
            order = np.argsort(items, -1, kind="stable")
        else:  # sort the reversed items and read backwards, so that equal elements keep their order
            order = items.shape[-1] - 1 - np.flip(np.argsort(np.flip(items, -1), -1, kind="stable"), -1)
        return order.astype(np.int64, copy=False).reshape(block.shape)

    ranked = arithmetic.ranked(a.array)
    return in_blocks(part, a.access.shape, ranked, dtype=np.int64, item=item, part=items_of(item.product()))


def _argsort_scratch(a: Operand, direction: str) -> int:
    """Counts a block of positions, twice if they are counted from the end, and copies of items, perhaps wider."""
    length, copied = a.access.item.product(), 0 if a.array.flags.c_contiguous else a.array.itemsize
    copied += np.dtype(wider(a.access.dtype)).itemsize if a.array.dtype.kind == "V" else 0
    return (
        block_size(a.access.shape, items_of(length)) * length * (8 * (2 if direction == "descending" else 1) + copied)
    )


argsort = compute_type(
    name="argsort",
    category=Category.NORMALIZATION,
    parameters=(Field("direction", Kind.KEYWORD, ("ascending", "descending")),),
    evaluate=_evaluate_argsort,
    scratch=_argsort_scratch,
    doc="The positions of the item's elements in sorted order. Positions count in row-major order from 0; the sort is "
    "stable.",
    dtype="int64",
    orders=True,
    examples=of_compute("(argsort ascending)"),
)
