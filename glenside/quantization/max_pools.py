"""Expresses max-pools of bytes as layers, exactly: products of bytes with 1, reduced by maximum.

Large items are cut into parts, whose maxima are the items of the next layer.
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
_REDUCED_AT_ONCE = 64
"""The maximum elements that are reduced at once."""
_OF_BYTES = "a max-pool requires bytes of one positive scale: quantize its operand first"
Quantized = Callable[[Affine], Affine]


def fills_with_least(term: Term) -> bool:
    """True if it pads with the least number of a dtype, as max-pools do."""
    return term.operator.name == "access-pad" and "min-padding" in term.attributes


def with_least(value: Affine, name: str, quantized: Quantized) -> Affine:
    """Returns bytes whose filled zeros are the least byte; filled real zeros become bytes of a layer before.

    Raises BadInput for others.
    """
    if len(value.bytes) != len(value.moved.leaves):
        raise BadInput(_OF_BYTES)
    return _without_mixed_zeros(value, name, quantized, {_LOWEST}).centred_at(_LOWEST)


def _without_mixed_zeros(value: Affine, name: str, quantized: Quantized, zeros: set[int]) -> Affine:
    """Replaces filled zeros among bytes of another zero point, with a layer of products with 1."""
    own = {leaf.zero for leaf in value.bytes}
    if not value.moved.filled or own <= zeros or len(own) != 1:
        return value
    (zero,) = own
    ends = one_number(_LOWEST - zero), one_number(_HIGHEST - zero)
    copied = Affine(weighted([value.moved], [[1]], name), "float32", low=ends[0], high=ends[1], offset=float(zero))
    return replace(value, moved=quantized(copied).moved, shift=value.shift - zero)


def maximum(value: Affine, split: int, name: str, quantized: Quantized) -> Affine:
    """Returns the maximum of each item, from axis `split` on. Raises BadInput if the bytes differ in scale."""
    alone = len(value.bytes) == len(value.moved.leaves) and value.offset is None and value.fits
    if not alone or value.scale.ndim or value.shift.ndim or value.scale < 0:
        raise BadInput(_OF_BYTES)
    value = _without_mixed_zeros(value, name, quantized, {0, _LOWEST}).raw()
    zeros = {leaf.zero for leaf in value.bytes}
    if len(zeros) != 1:
        raise BadInput("a max-pool requires bytes with one zero point")
    zero, shape = zeros.pop(), value.dims[:split]
    moved = replace(value.moved, term=reshape(value.moved.term, (*shape, -1)))
    while moved.dims[-1] > 1:
        moved = _by_parts(moved, zero, name, quantized)
    return replace(value, moved=replace(moved, term=reshape(moved.term, shape)))


def _by_parts(moved: Moved, zero: int, name: str, quantized: Quantized) -> Moved:
    """Maps (S)(n) -> (S)(parts): the maximum of each part of an item. Parts may overlap if they do not divide it."""
    *shape, n = moved.dims
    parts = -(-n // _REDUCED_AT_ONCE)
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
