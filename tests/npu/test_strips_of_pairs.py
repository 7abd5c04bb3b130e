"""Tests that the cycles of two strip-mined layers are the sum of the cycles of their strips."""

from __future__ import annotations

import numpy as np
import pytest

from glenside.analysis.element_sources import Places
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor
from glenside.npu.lowering.tiling.layer_tiles import Group, Layer, Product
from glenside.npu.lowering.tiling.strip_mining import Pair, strips
from glenside.npu.machine.model import Machine

ROWS, COLUMNS = 4, 3


def tensor(dims: tuple[int, ...]) -> Term:
    return build("access-tensor", Tensor("x", Dims(dims), "int8"))


def some_layer(rng: np.random.Generator, read: tuple[int, ...]) -> Layer:
    """Of random rows of a tensor of these dims, in which some are zeros; and of sums that are elements, or zeros."""
    groups, together, m = (int(rng.integers(1, most)) for most in (4, 3, 14))
    tiles = rng.permutation(groups * together).reshape(groups, together)
    tiles.sort(axis=1)
    dims = tuple(rng.integers(1, 7, size=2).tolist())
    sums = (tiles[:, :1, None] * m * COLUMNS + np.arange(m * COLUMNS) + 1).ravel()
    elements = np.zeros(int(np.prod(dims)), int)
    some = rng.permutation(len(elements))[: rng.integers(1, len(elements) + 1)][: len(sums)]
    elements[some] = rng.permutation(sums)[: len(some)]
    numbers = rng.integers(0, int(np.prod(read)) + 1, size=(groups * together, m, ROWS)).astype(np.int32)
    leaf = tensor(read)
    weights = Places(np.ones((groups * together, ROWS, COLUMNS), np.int32), {leaf: 1})
    product = Product(leaf, Places(numbers, {leaf: 1}), weights)
    own = tuple(Group(tuple(each)) for each in tiles.tolist())
    return Layer(leaf, product, own, elements.reshape(dims))


@pytest.mark.parametrize("seed", range(60))
def test_cycles_of_two_layers(seed: int) -> None:
    rng, machine = np.random.default_rng(seed), Machine(ROWS, COLUMNS)
    made = some_layer(rng, (5, 3))
    read = some_layer(rng, made.elements.shape)
    axis, count = int(rng.integers(2)), int(rng.integers(1, 5))
    parts = strips([made, read], read.elements.shape, axis, count)
    assert Pair(made, read, machine).cycles(axis, count) == sum(own.cycles(machine) for each in parts for own in each)
