"""Max-pools of bytes as layers, exactly: products of bytes with 1, of which the greatest of each item stays.

Items of many elements are cut into parts, whose greatest ones are the items of the next layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from glenside.builder.layout import concatenate, reshape, slice_axis
from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.term import Term
from glenside.quantization.additions import of_items, weighted
from glenside.quantization.affine import Affine, one_number, with_zero
from glenside.quantization.values import Moved

_LOWEST, _HIGHEST = limits("int8")
_ONCE = 64
"""Elements of which the greatest is found at once, at most."""
_OF_BYTES = "a max-pool is one of bytes of one positive scale: quantize what it is taken of before it"
Quantized = Callable[[Affine], Affine]


def fills_with_least(term: Term) -> bool:
    """Whether it pads with the least number of a dtype, as max-pools do."""
    return term.operator.name == "access-pad" and "min-padding" in term.attributes


def with_least(value: Affine, name: str, quantized: Quantized) -> Affine:
    """Bytes for which zeros among them stand for the least one; those that stand for 0 are bytes of a layer before.
    Raises BadInput for anything else.
    """
    if len(value.bytes) != len(value.moved.leaves):
        raise BadInput(_OF_BYTES)
    return _apart(value, name, quantized, {_LOWEST}).centred_at(_LOWEST)


def _apart(value: Affine, name: str, quantized: Quantized, zeros: set[int]) -> Affine:
    """The same with no zeros among bytes of another zero point: as bytes that a layer of products with 1 writes."""
    own = {leaf.zero for leaf in value.bytes}
    if not value.moved.filled or own <= zeros or len(own) != 1:
        return value
    (zero,) = own
    ends = one_number(_LOWEST - zero), one_number(_HIGHEST - zero)
    copied = Affine(weighted([value.moved], [[1]], name), "float32", low=ends[0], high=ends[1], offset=float(zero))
    return replace(value, moved=quantized(copied).moved, shift=value.shift - zero)


def maximum(value: Affine, split: int, name: str, quantized: Quantized) -> Affine:
    """The largest of each item, which begins at axis `split`. Raises BadInput where they are no bytes alike."""
    alone = len(value.bytes) == len(value.moved.leaves) and value.offset is None and value.fits
    if not alone or value.scale.ndim or value.shift.ndim or value.scale < 0:
        raise BadInput(_OF_BYTES)
    value = _apart(value, name, quantized, {0, _LOWEST}).raw()
    zeros = {leaf.zero for leaf in value.bytes}
    if len(zeros) != 1:
        raise BadInput("a max-pool is one of bytes with one zero point")
    zero, shape = zeros.pop(), value.dims[:split]
    moved = replace(value.moved, term=reshape(value.moved.term, (*shape, -1)))
    while moved.dims[-1] > 1:
        moved = _fewer(moved, zero, name, quantized)
    return replace(value, moved=replace(moved, term=reshape(moved.term, shape)))


def _fewer(moved: Moved, zero: int, name: str, quantized: Quantized) -> Moved:
    """(S)(n) -> (S)(parts): the largest of each part of an item. Where these do not divide it, some overlap."""
    *shape, n = moved.dims
    parts = -(-n // _ONCE)
    size = -(-n // parts)
    begins = [(n - size) * part // max(1, parts - 1) for part in range(parts)]
    cut = [slice_axis(moved.term, len(shape), begin, begin + size) for begin in begins]
    items = replace(moved, term=concatenate([reshape(own, (*shape, 1, size)) for own in cut], len(shape)))
    largest = Affine(
        of_items(items, [1] * size, name, greatest=True),
        "float32",
        low=one_number(_LOWEST - zero),
        high=one_number(_HIGHEST - zero),
        offset=float(zero),
    )
    return with_zero(quantized(largest).moved, zero)
