"""Tests what is merged across regions."""

from __future__ import annotations

import random
from math import prod

import numpy as np

import glenside as gl
from glenside.algebra.merging import _joined_slices
from glenside.builder.layout import reshape, slice_axis, split_at, transpose
from glenside.ir.term import Term
from glenside.semantics.interpreter import evaluate


def _of_parts(pick: random.Random) -> tuple[list[Term], Term]:
    """Returns consecutive slices of an array, transposed and reshaped alike, and the array."""
    count, width, axis = pick.randint(2, 4), pick.randint(1, 3), pick.randrange(3)
    dims = [pick.choice((1, 2, 4)) for _ in range(3)]
    low = pick.randint(0, 2)
    dims[axis] = low + count * width + pick.randint(0, 2)
    x = gl.Builder("slices").input("x", tuple(dims))
    parts = [slice_axis(x, axis, low + k * width, low + (k + 1) * width) for k in range(count)]
    for _ in range(pick.randint(0, 3)):
        sizes = parts[0].access.dims
        if pick.random() < 0.5:
            order = pick.sample(range(len(sizes)), len(sizes))
            parts = [transpose(part, order) for part in parts]
        else:
            total = prod(sizes)
            first = pick.choice([n for n in range(1, total + 1) if total % n == 0])
            second = pick.choice([n for n in range(1, total // first + 1) if total // first % n == 0])
            parts = [reshape(part, (first, second, total // first // second)) for part in parts]
    split = pick.randint(1, parts[0].access.rank)
    return [split_at(part, split) for part in parts], x


def test_consecutive_slices_that_are_moved_alike_are_one_operand() -> None:
    """The operand (G)(nL)(I) that is read from the array has the elements of the parts side by side."""
    found = 0
    for seed in range(200):
        pick = random.Random(seed)
        parts, x = _of_parts(pick)
        shared = pick.randrange(parts[0].access.split)
        joined = _joined_slices(parts, shared)
        if joined is None:
            continue
        found += 1
        assert joined[0] is x
        values = {"x": np.arange(prod(x.access.dims), dtype=np.float32).reshape(tuple(x.access.dims))}
        whole, *own = evaluate([joined[1], *parts], values)
        access = parts[0].access
        sizes = (*access.shape.take(shared), access.shape.drop(shared).product(), *access.item)
        assert np.array_equal(whole, np.concatenate([part.reshape(sizes) for part in own], shared))
    assert found > 100


def test_other_slices_are_not_one_operand() -> None:
    x = gl.Builder("slices").input("x", (4, 6))
    gap = [split_at(slice_axis(x, 1, low, low + 2), 1) for low in (0, 4)]
    wide = [split_at(slice_axis(x, 1, *ends), 1) for ends in ((0, 2), (2, 6))]
    for parts in (gap, wide, [gap[1], gap[0]]):
        assert _joined_slices(parts, 0) is None
