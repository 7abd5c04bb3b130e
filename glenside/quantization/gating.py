"""Products of two tensors that both change: element by element, as gates have them, or as operands without zero points.

What a machine multiplies has no zero points where both operands change: sums of those are not known before. So bytes
less their zero point, which may be up to 255 apart from 0, are the sums of several tensors of bytes, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from glenside.analysis.places import places
from glenside.builder.layout import concatenate, reshape, slice_axis, split_at, transpose, untransposed
from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.quantization.affine import Affine, one_number
from glenside.quantization.values import Leaf, Moved, Product, standing_for

Function = Callable[[Affine, Array], Moved]
"""Bytes with a zero point of 0 and a table of others, number b modulo 256 for byte b -> those."""
_LOWEST, _HIGHEST = limits("int8")


def parts_of(value: Affine, function: Function) -> list[Moved]:
    """Tensors of bytes without zero points that add up to one. Raises BadInput where they are no bytes."""
    value = value.widened()
    alone = len(value.bytes) == len(value.moved.leaves) and value.offset is None and value.fits
    if not alone or value.scale.ndim or value.shift.ndim or value.shift != np.rint(value.shift):
        raise BadInput("two tensors are multiplied: quantize both before it, each by one scale")
    centred = value.centred()
    if not centred.shift and all(leaf.zero == 0 for leaf in centred.bytes):
        return [centred.moved]
    raw = value.raw()
    if raw.moved.filled or any(leaf.zero for leaf in raw.bytes):
        raise BadInput("two tensors are multiplied, among one of which zeros stand that are no bytes of its zero point")
    stored = np.arange(256)
    numbers = np.where(stored > _HIGHEST, stored - 256, stored) + int(raw.shift)
    least, most = (int(end) for end in replace(raw, scale=one_number(1)).ends)
    numbers = np.clip(numbers, least, most)
    count = max(-(-most // _HIGHEST), -(least // -_LOWEST), 1)
    return [function(raw, numbers // count + (part < numbers % count)) for part in range(count)]


def paired(first: Sequence[Moved], second: Sequence[Moved]) -> tuple[list[Moved], list[Moved]]:
    """Each part of one with each of the other."""
    return [a for a in first for _ in second], [b for _ in first for b in second]


def side_by_side(parts: Sequence[Moved], axis: int) -> Moved:
    """Along an axis that is there."""
    leaves: dict[Term, Leaf] = {stand_in: leaf for part in parts for stand_in, leaf in part.leaves.items()}
    return Moved(concatenate([part.term for part in parts], axis), leaves, any(part.filled for part in parts))


def without_zeros(values: Sequence[Affine | None], splits: Sequence[int], function: Function) -> list[Affine | None]:
    """Operands of a product, items from those axes on, in parts side by side where both change; None is known."""
    first, second = values
    if first is None or second is None or not any(_has_zero(value) for value in (first, second)):
        return [*values]
    both = paired(parts_of(first, function), parts_of(second, function))
    made: list[Affine | None] = []
    for value, parts, split in zip((first, second), both, splits, strict=True):
        joined = side_by_side(parts, split)
        made.append(Affine(replace(joined, term=split_at(joined.term, split)), value.dtype, scale=value.scale))
    return made


def _has_zero(value: Affine) -> bool:
    """Whether bytes of it have a zero point; what is refused anyway has none."""
    plain = len(value.bytes) == len(value.moved.leaves) and value.offset is None and not value.shift.ndim
    return plain and any(leaf.zero for leaf in value.widened().centred().bytes)


def gated(first: Affine, second: Affine, name: str, function: Function) -> Affine:
    """Two tensors, element by element: a product in as many groups as the one has elements that are repeated least."""
    repeated = [_repeated(value.moved) for value in (first, second)]
    if sum(repeated[0]) > sum(repeated[1]):
        first, second, repeated = second, first, repeated[::-1]
    shared = [axis for axis, alike in enumerate(repeated[1]) if not alike]
    others = [axis for axis, alike in enumerate(repeated[1]) if alike]
    order, dims = [*shared, *others], first.dims
    groups, rest = prod(dims[axis] for axis in shared), [dims[axis] for axis in others]
    once = second.moved.term
    for axis in others:
        once = slice_axis(once, axis, 0, 1)
    second = replace(second, moved=replace(second.moved, term=once))
    a, b = paired(parts_of(first, function), parts_of(second, function))
    a = [replace(part, term=reshape(transpose(part.term, order), (groups, *rest, 1))) for part in a]
    b = [replace(part, term=reshape(transpose(part.term, order), (groups, 1, 1))) for part in b]
    rows, stays = side_by_side(a, 1 + len(rest)), side_by_side(b, 2)
    product = Product(
        replace(rows, term=split_at(rows.term, 1 + len(rest))), replace(stays, term=split_at(stays.term, 2)), 1, name
    )
    sums = standing_for(product, (groups, *rest, 1))
    back = untransposed(reshape(sums.term, [dims[axis] for axis in order]), order)
    return Affine(Moved(back, sums.leaves), first.dtype, scale=one_number(float(first.scale) * float(second.scale)))


def _repeated(moved: Moved) -> list[bool]:
    """Of each axis whether all is the same along it."""
    found = places(moved.term).numbers
    return [bool((found == found.take([0], axis)).all()) for axis in range(found.ndim)]
