"""Tests which tiles are added up, and the positions of elements among their sums, against a loop over elements."""

import numpy as np
import pytest

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.npu.lowering.tiling.element_sums import Sums
from glenside.npu.lowering.tiling.layer_tiles import _groups

TILES, SIZE = 6, 5


def one_by_one(of: Array, rows: Array | None) -> tuple[list[tuple[int, ...]], list[int]] | str:
    """Returns the groups and the elements, or what is wrong with them."""
    sums = [[number] for number in range(1, TILES * SIZE + 1)] if rows is None else rows.tolist()
    every = [sorted(n for n in sums[number - 1] if n) if number else [] for number in of.ravel().tolist()]
    there = [own for own in every if own]
    if any(len({(n - 1) % SIZE for n in own}) > 1 for own in there):
        return "sums at different positions"
    groups = {tuple((n - 1) // SIZE for n in own) for own in there}
    if len({tile for group in groups for tile in group}) < sum(map(len, groups)):
        return "a tile is part of several sums"
    return sorted(groups), [own[0] if own else 0 for own in every]


def found(of: Array, rows: Array | None) -> tuple[list[tuple[int, ...]], list[int]] | str:
    try:
        groups, elements = _groups(Sums(of, rows), TILES, SIZE)
    except BadInput as error:
        return str(error)
    assert elements.shape == of.shape
    return groups, elements.ravel().tolist()


def some_rows(rng: np.random.Generator) -> Array:
    """Returns sums of some of the places of some groups of tiles, in some order; some of them wrong."""
    terms = int(rng.integers(1, 4))
    tiles = rng.permutation(TILES)[: TILES // terms * terms].reshape(-1, terms)
    if rng.random() < 0.7:
        tiles.sort(axis=1)
    if rng.random() < 0.3:  # fewer terms of one
        tiles = tiles.astype(float)
        tiles[0, rng.integers(terms) :] = np.nan
    rows = (tiles[:, None] * SIZE + np.arange(SIZE)[:, None] + 1).reshape(-1, terms)
    rows = np.nan_to_num(rows).astype(np.int32)
    if rng.random() < 0.5:
        rows = rng.permutation(rows)
    if rng.random() < 0.4:
        rows[rng.integers(len(rows)), rng.integers(terms)] = rng.integers(TILES * SIZE + 1)
    return rows


@pytest.mark.parametrize("seed", range(300))
def test_groups_are_those_of_all_elements(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = None if rng.random() < 0.2 else some_rows(rng)
    count = TILES * SIZE if rows is None else len(rows)
    of = rng.integers(0 if rng.random() < 0.5 else 1, count + 1, size=(2, int(rng.integers(count + 1)))).astype(
        np.int32
    )
    if rng.random() < 0.3:
        of = np.arange(1, count + 1, dtype=np.int32)
    want = one_by_one(of, rows)
    if isinstance(want, str):
        assert str(found(of, rows)).startswith(want)
    else:
        assert found(of, rows) == want


def test_all_that_may_be_is_met() -> None:
    """Of the cases above some are right, with one term and several, and some are wrong in each way."""
    rngs = map(np.random.default_rng, range(300))
    every = [one_by_one(np.arange(1, len(rows) + 1), rows) for rows in map(some_rows, rngs)]
    wrong = {own for own in every if isinstance(own, str)}
    right = {len(own[0][0]) for own in every if not isinstance(own, str) and own[0]}
    assert (len(wrong), right) == (2, {1, 2, 3})
