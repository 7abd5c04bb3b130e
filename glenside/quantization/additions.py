"""Expresses additions of bytes, as in residual connections, as layers: products with few weights.

s a + t b = c (k a + l b), where the integers k and l have the ratio of the scales s and t. Weights have 8 bits, so a
larger factor is a sum of several weights, each with another copy of the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np

from glenside.analysis.element_sources import places
from glenside.builder.layout import concatenate, reshape, split_at, transpose
from glenside.ir.errors import BadInput
from glenside.ir.term import Term
from glenside.quantization.affine import Affine, alike, one_number
from glenside.quantization.values import Known, Leaf, Moved, Product, narrow, standing_for

WEIGHT = 127
"""The largest weight."""
_COPIES = 16
_NEAR = 1e-4
"""The relative error at which a ratio is accepted: at most 1/40 of a byte's step."""


def ratio(first: float, second: float) -> tuple[int, int]:
    """Returns two small integers whose ratio is close to that of two positive numbers. If none within the limit is
    close enough, returns the closest.
    """
    best = (1, 1)
    for copies in range(1, _COPIES + 1):
        most = WEIGHT * copies
        k, n = _within(first / second, most)
        best = k, n
        if abs(k / n * second / first - 1) <= _NEAR:
            break
    return best


def in_ratio(scale: float, other: float) -> float:
    """Returns the least scale, from `scale` on, in a ratio of weights to another one; `scale` itself if none is
    close.
    """
    found = [other * n / k for k in range(1, WEIGHT + 1) if 0 < (n := ceil(scale / other * k - _NEAR)) <= WEIGHT]
    return min((s for s in found if s >= scale * (1 - _NEAR)), default=scale)


def _within(wanted: float, most: int) -> tuple[int, int]:
    """Returns the closest ratio of integers up to `most`."""
    if wanted > 1:
        n, k = _within(1 / wanted, most)
        return k, n
    found = Fraction(wanted).limit_denominator(most)
    if found.numerator == 0:
        return 1, most
    return found.numerator, found.denominator


def added(first: Affine, second: Affine, name: str) -> Affine:
    """Returns the sum of two tensors of dequantized bytes, as sums of a product. Raises BadInput for others."""
    for value in (first, second):
        if value.products:
            raise BadInput(
                "an addition of two tensors, as in residual connections, has sums as an operand: quantize the result "
                f"of the layer {value.products[0].name} before it is added"
            )
        alone = len(value.bytes) == len(value.moved.leaves) and value.offset is None and value.fits
        if not alone or value.scale.ndim:
            raise BadInput("an addition of two tensors requires dequantized bytes of one scale each, or a vector unit")
    a, b = alike([first, second])
    k, n = ratio(abs(float(a.scale)), abs(float(b.scale)))
    by = float(a.scale) / k
    weights = [[int(np.sign(x.scale * by)) * part for part in _split_weight(w)] for x, w in ((a, k), (b, n))]
    parts, flat = [_unflattened(a.moved), _unflattened(b.moved)], a.moved.dims
    if parts[0].dims == parts[1].dims != flat:
        moved = weighted(parts, weights, name, grouped=False)
        moved = replace(moved, term=reshape(moved.term, flat))
    else:
        moved = weighted([a.moved, b.moved], weights, name)
    shift = narrow(np.asarray((a.shift * a.scale + b.shift * b.scale) / by))
    return Affine(moved, first.dtype, shift, one_number(by))


def _unflattened(moved: Moved) -> Moved:
    """Returns the whole tensor if `moved` is all of it, in its order, with fewer axes, so that its windows are
    regular.
    """
    if len(moved.leaves) != 1 or moved.filled:
        return moved
    (tensor,) = moved.leaves
    if moved.term.access.size != tensor.access.size or len(moved.dims) >= len(tensor.access.dims):
        return moved
    in_order = np.array_equal(places(moved.term).numbers.reshape(-1), np.arange(1, tensor.access.size + 1))
    return replace(moved, term=tensor) if in_order else moved


def _split_weight(weight: int) -> list[int]:
    """Splits a weight into weights of 8 bits with that sum."""
    count = -(-weight // WEIGHT)
    return [weight // count + (part < weight % count) for part in range(count)]


def weighted(parts: Sequence[Moved], weights: Sequence[Sequence[int]], name: str, grouped: bool = True) -> Moved:
    """Returns weighted sums of elements with equal indices, as a product.

    It has a group per channel, the second of three or more axes, so that arrays run it like a depthwise convolution; or
    one group.
    """
    dims = parts[0].dims
    columns = [reshape(part.term, (*dims, 1)) for part, own in zip(parts, weights, strict=True) for _ in own]
    leaves: dict[Term, Leaf] = {stand_in: leaf for part in parts for stand_in, leaf in part.leaves.items()}
    items = Moved(concatenate(columns, len(dims)), leaves, any(part.filled for part in parts))
    return of_items(items, [weight for own in weights for weight in own], name, grouped)


def of_items(items: Moved, weights: Sequence[int], name: str, grouped: bool = True, greatest: bool = False) -> Moved:
    """Maps (S)(k) -> (S): weighted sums of each item, or with `greatest` the maximum; a product as in `weighted`."""
    *dims, k = items.dims
    rank = len(dims)
    grouped = grouped and rank > 2
    order = [1, 0, *range(2, rank)] if grouped else [*range(rank)]
    a = replace(items, term=split_at(transpose(items.term, (*order, rank)), rank))
    shape = (dims[1], 1, k) if grouped else (1, k)
    b = standing_for(Known(np.broadcast_to(np.asarray(weights, np.int64), shape), f"{name}.weight"), shape)
    b = Moved(split_at(b.term, len(shape) - 1), b.leaves)
    product = Product(a, b, int(grouped), name, greatest=greatest)
    sums = standing_for(product, (*(dims[axis] for axis in order), 1))
    back = transpose(reshape(sums.term, [dims[axis] for axis in order]), order)
    return Moved(back, sums.leaves)
