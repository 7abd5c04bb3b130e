"""Computes products of two changing tensors: elementwise, as in gates, or as operands without zero points.

If both operands of a product change, neither can have a zero point, since the correction needs unknown sums. So bytes
minus their zero point, up to 255 in magnitude, are expressed exactly as sums of several tensors of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from glenside.analysis.element_sources import places
from glenside.builder.layout import concatenate, reshape, slice_axis, split_at, transpose, untransposed
from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.quantization.affine import Affine, one_number
from glenside.quantization.values import Leaf, Moved, Product, standing_for

Function = Callable[[Affine, Array], Moved]
"""(bytes with zero point 0, a table with entry b modulo 256 for byte b) -> the mapped bytes."""
_LOWEST, _HIGHEST = limits("int8")


def parts_of(value: Affine, function: Function) -> list[Moved]:
    """Returns tensors of bytes without zero points whose sum is the value. Raises BadInput if it is not bytes."""
    value = value.widened()
    alone = len(value.bytes) == len(value.moved.leaves) and value.offset is None and value.fits
    if not alone or value.scale.ndim or value.shift.ndim or value.shift != np.rint(value.shift):
        raise BadInput("a multiplication of two tensors requires both quantized, by one scale each")
    centred = value.centred()
    if not centred.shift and all(leaf.zero == 0 for leaf in centred.bytes):
        return [centred.moved]
    raw = value.raw()
    if raw.moved.filled or any(leaf.zero for leaf in raw.bytes):
        raise BadInput(
            "a multiplication of two tensors has padding zeros that differ from the zero point of an operand"
        )
    stored = np.arange(256)
    numbers = np.where(stored > _HIGHEST, stored - 256, stored) + int(raw.shift)
    least, most = (int(end) for end in replace(raw, scale=one_number(1)).ends)
    numbers = np.clip(numbers, least, most)
    count = max(-(-most // _HIGHEST), -(least // -_LOWEST), 1)
    return [function(raw, numbers // count + (part < numbers % count)) for part in range(count)]


def paired(first: Sequence[Moved], second: Sequence[Moved]) -> tuple[list[Moved], list[Moved]]:
    """Pairs each part of one operand with each part of the other."""
    return [a for a in first for _ in second], [b for _ in first for b in second]


def concatenated(parts: Sequence[Moved], axis: int) -> Moved:
    """Concatenates along an existing axis."""
    leaves: dict[Term, Leaf] = {stand_in: leaf for part in parts for stand_in, leaf in part.leaves.items()}
    return Moved(concatenate([part.term for part in parts], axis), leaves, any(part.filled for part in parts))


def without_zeros(values: Sequence[Affine | None], splits: Sequence[int], function: Function) -> list[Affine | None]:
    """Splits operands of a product into parts without zero points if both change; None is a known operand."""
    first, second = values
    if first is None or second is None or not any(_has_zero(value) for value in (first, second)):
        return [*values]
    both = paired(parts_of(first, function), parts_of(second, function))
    made: list[Affine | None] = []
    for value, parts, split in zip((first, second), both, splits, strict=True):
        joined = concatenated(parts, split)
        made.append(Affine(replace(joined, term=split_at(joined.term, split)), value.dtype, scale=value.scale))
    return made


def _has_zero(value: Affine) -> bool:
    """True if its bytes have a zero point; a value that will be refused has none."""
    plain = len(value.bytes) == len(value.moved.leaves) and value.offset is None and not value.shift.ndim
    return plain and any(leaf.zero for leaf in value.widened().centred().bytes)


def gated(first: Affine, second: Affine, name: str, function: Function) -> Affine:
    """Multiplies two tensors elementwise: a product with a group for each element of the operand that is repeated
    least.
    """
    repeated = [_repeated(value.moved) for value in (first, second)]
    if sum(repeated[0]) > sum(repeated[1]):
        first, second, repeated = second, first, repeated[::-1]
    shared = [axis for axis, constant in enumerate(repeated[1]) if not constant]
    others = [axis for axis, constant in enumerate(repeated[1]) if constant]
    order, dims = [*shared, *others], first.dims
    groups, rest = prod(dims[axis] for axis in shared), [dims[axis] for axis in others]
    once = second.moved.term
    for axis in others:
        once = slice_axis(once, axis, 0, 1)
    second = replace(second, moved=replace(second.moved, term=once))
    a, b = paired(parts_of(first, function), parts_of(second, function))
    a = [replace(part, term=reshape(transpose(part.term, order), (groups, *rest, 1))) for part in a]
    b = [replace(part, term=reshape(transpose(part.term, order), (groups, 1, 1))) for part in b]
    rows, stays = concatenated(a, 1 + len(rest)), concatenated(b, 2)
    product = Product(
        replace(rows, term=split_at(rows.term, 1 + len(rest))), replace(stays, term=split_at(stays.term, 2)), 1, name
    )
    sums = standing_for(product, (groups, *rest, 1))
    back = untransposed(reshape(sums.term, [dims[axis] for axis in order]), order)
    return Affine(Moved(back, sums.leaves), first.dtype, scale=one_number(float(first.scale) * float(second.scale)))


def _repeated(moved: Moved) -> list[bool]:
    """Returns for each axis whether all elements along it are the same."""
    found = places(moved.term).numbers
    return [bool((found == found.take([0], axis)).all()) for axis in range(found.ndim)]
