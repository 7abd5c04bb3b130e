"""Max-pools of bytes as layers, exactly: max(a, b) = b + relu(a - b).

The difference, from 0 to 255, is a byte with a zero point of -128; both steps are products with two weights. The items
of a pool go in pairs, all pairs of an item at once: 9 elements take 4 steps, and so 8 layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from glenside.builder.layout import concatenate, reshape, slice_axis, split_at
from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.term import Term
from glenside.quantization.additions import weighted
from glenside.quantization.affine import Affine, one_number, with_zero
from glenside.quantization.values import Moved

_LOWEST, _HIGHEST = limits("int8")
Quantized = Callable[[Affine], Affine]


def fills_with_least(term: Term) -> bool:
    """Whether it pads with the least number of a dtype, as max-pools do."""
    return term.operator.name == "access-pad" and "min-padding" in term.attributes


def with_least(value: Affine, name: str, quantized: Quantized) -> Affine:
    """Bytes for which zeros among them stand for the least one; those that stand for 0 are bytes of a layer before."""
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
        raise BadInput("a max-pool is one of bytes of one positive scale: quantize what it is taken of before it")
    value = _apart(value, name, quantized, {0, _LOWEST}).raw()
    zeros = {leaf.zero for leaf in value.bytes}
    if len(zeros) != 1:
        raise BadInput("a max-pool is one of bytes with one zero point")
    zero, shape = zeros.pop(), value.dims[:split]
    moved = replace(value.moved, term=reshape(value.moved.term, (*shape, -1)))
    while moved.dims[-1] > 1:
        moved = _halved(moved, zero, name, quantized)
    return replace(value, moved=replace(moved, term=reshape(moved.term, shape)))


def _halved(moved: Moved, zero: int, name: str, quantized: Quantized) -> Moved:
    """(S)(n) -> (S)(n / 2, rounded up): the larger one of each two neighbours."""
    *shape, n = moved.dims
    half = n // 2
    pairs = reshape(slice_axis(moved.term, len(shape), 0, 2 * half), (*shape, half, 2))
    a, b = (replace(moved, term=reshape(slice_axis(pairs, len(shape) + 1, k, k + 1), (*shape, half))) for k in (0, 1))
    above = Affine(weighted([a, b], [[1], [-1]], name), "float32", low=one_number(0), high=one_number(255))
    above = quantized(replace(above, offset=float(_LOWEST)))
    above = above.centred_at(zero) if zero == _LOWEST else above
    larger = Affine(
        weighted([b, above.moved], [[1], [1]], name),
        "float32",
        above.shift - _LOWEST,
        low=one_number(_LOWEST - zero),
        high=one_number(_HIGHEST - zero),
        offset=float(zero),
    )
    found = with_zero(quantized(larger).moved, zero)
    if n % 2 == 0:
        return found
    rest = slice_axis(moved.term, len(shape), n - 1, n)
    both = split_at(concatenate([found.term, rest], len(shape)), 0)
    return Moved(both, {**moved.leaves, **found.leaves}, moved.filled)
