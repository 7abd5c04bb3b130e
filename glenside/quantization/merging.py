"""Merges corrections for zero points, as ONNX's integer operators multiply them out, into products.

ONNX multiplies bytes directly: x w - z_w sum(x) - z_x (sum(w) - n z_w) is (x - z_x) (w - z_w). A merge is verified on
random bytes before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.quantization.affine import Affine, with_zero
from glenside.quantization.products import with_weights
from glenside.quantization.values import Bytes, Known, Moved, Product, Summed, narrow, pulled_back

Agrees = Callable[[Affine, Mapping[Term, Bytes]], bool]


def merged(first: Affine, second: Affine, by: int, agrees: Agrees) -> Affine | None:
    """Returns first + by * second as one product, if one of them is a product and the other sums its operand; else
    None.

    agrees  True if a value, on bytes of these leaves, equals the intended one
    """
    if by == 1 and _is_sum(first):
        first, second = second, first
    if len(first.products) != 1 or first.products[0].summed or not _is_sum(second):
        return None
    if any(np.isfinite(end).any() for value in (first, second) for end in (value.low, value.high)):
        return None
    (stand_in, product), (summed,) = *first.moved.leaves.items(), second.moved.leaves.values()
    assert isinstance(product, Product)
    assert isinstance(summed, Product | Summed)
    factor = by * second.scale
    (own,) = pulled_back(first.moved, [factor], "zero points")
    for side in (1, 0):
        found = _shifted(product, side, own[stand_in], summed)
        if found is None:
            continue
        shift = narrow(first.shift + factor * (second.shift + found[1]))
        value = replace(first, moved=first.moved.with_leaves({stand_in: found[0]}), shift=shift)
        leaves = {s: leaf for x in (found[0].a, found[0].b) for s, leaf in x.leaves.items() if isinstance(leaf, Bytes)}
        if agrees(value, leaves):
            return value
    raise BadInput("sums of bytes are added to sums of products, but not as a zero point of either operand")


def _is_sum(value: Affine) -> bool:
    leaves = [*value.moved.leaves.values()]
    return len(leaves) == 1 and isinstance(leaves[0], Product | Summed) and leaves[0].summed


def _shifted(product: Product, side: int, by: Array, summed: Product | Summed) -> tuple[Product, int] | None:
    """Returns the product with a number added to each element of one operand, and the remaining difference of sums."""
    this, other = (product.b, product.a) if side else (product.a, product.b)
    zeros = {leaf.term: leaf.zero for leaf in other.leaves.values() if isinstance(leaf, Bytes)}
    theirs = {leaf.term: leaf.zero for leaf in summed.bytes.values() if isinstance(leaf, Bytes)}
    apart = {zeros[x] - zero for x, zero in theirs.items() if x in zeros}
    if theirs.keys() != zeros.keys() or len(apart) != 1 or (other.filled and apart != {0}):
        return None
    more = apart.pop() * summed.count
    if side and all(isinstance(leaf, Known) for leaf in this.leaves.values()):
        return with_weights(product, by, np.add), more
    moved = _plus(this, by)
    if moved is None:
        return None
    return replace(product, b=moved) if side else replace(product, a=moved), more


def _plus(moved: Moved, by: Array) -> Moved | None:
    """Adds a number to bytes by decreasing their zero point; returns None if that is impossible."""
    zeros = {leaf.zero for leaf in moved.leaves.values() if isinstance(leaf, Bytes)}
    if by.ndim or moved.filled or len(zeros) != 1:
        return None
    return with_zero(moved, int(zeros.pop() - by))
