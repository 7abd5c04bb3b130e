"""Tests pictures of tiles: each cell shows the element that evaluating the operand puts there."""

from __future__ import annotations

import numpy as np
import pytest

import glenside as gl
from glenside.analysis.element_sources import places, sources
from glenside.ir.term import Term
from glenside.report.tile import Tile, baseline_tiles, instructions, tiles_of

ROWS, COLUMNS = 8, 6


def network() -> gl.Program:
    b = gl.Builder("tiles")
    x = b.input("x", (1, 5, 9, 9))
    x = b.relu(b.conv(x, b.constant("w", (7, 5, 3, 3)), padding=1, name="conv"))
    x = b.relu(b.conv(x, b.constant("d", (7, 1, 3, 3)), padding=1, groups=7, name="depthwise"))
    return b.finish(b.conv(x, b.constant("p", (4, 7, 1, 1)), strides=2, name="pointwise"))


@pytest.fixture(scope="module")
def result() -> gl.Result:
    return gl.optimize(network(), gl.SystolicArray(ROWS, COLUMNS), verify=False)


def numbers(tile: Tile) -> np.ndarray:
    found = np.cumsum(np.repeat(tile.cells[::2], tile.cells[1::2]))
    return found.reshape(tile.rows, tile.columns)


def test_elements_are_followed_to_where_all_of_them_come_from(result: gl.Result) -> None:
    seen = 0
    for layer in result.program.layers.values():
        for operand in instructions(layer)[0].children:
            dims = tuple(operand.access.dims)
            at = [axis.ravel() for axis in np.indices(dims)]
            terms, whose, place = sources(operand, at)
            all_of_it = places(operand)
            first = np.array([all_of_it.first[term] for term in terms])
            mine = np.where(whose < 0, 0, first[whose] + place)
            assert np.array_equal(mine.reshape(dims), all_of_it.numbers)
            seen += mine.size
    assert seen > 1000


@pytest.mark.parametrize("name", ["conv", "depthwise", "pointwise"])
def test_the_tile_of_a_mapping_is_what_the_instruction_reads(result: gl.Result, name: str) -> None:
    layer = result.program.layers[name]
    operand = instructions(layer)[0].children[1]
    every = places(operand)
    held = every.numbers.reshape(-1, ROWS, COLUMNS)
    for tile in tiles_of(layer):
        assert (tile.rows, tile.columns, tile.count) == (ROWS, COLUMNS, len(held))
        expected = held[tile.number - 1]
        own = numbers(tile)
        assert np.array_equal(own > 0, expected > 0)
        assert tile.used == np.count_nonzero(expected)
        if len(every.first) == 1:
            assert np.array_equal(own, expected)
            assert tile.sources[0].dims == tuple(next(iter(every.first)).access.dims)


def test_the_baseline_is_cut_as_it_stands(result: gl.Result) -> None:
    product = result.prepared.layers["conv"]  # K 45 = 5 x 3 x 3, N 7
    first, last = baseline_tiles(product, ROWS, COLUMNS)
    element = np.arange(1, 7 * 45 + 1).reshape(7, 45).T
    assert np.array_equal(numbers(first), element[:ROWS, :COLUMNS])
    assert (last.number, last.count) == (12, 12)
    assert last.used == 5
    assert np.array_equal(numbers(last)[:5, 0], element[40:, 6])
    assert not numbers(last)[5:].any()
    assert first.sources[0].name == "w"


def test_channels_of_a_depthwise_layer_lie_apart(result: gl.Result) -> None:
    """A column holds elements of one channel only: one output is of one channel."""
    own = result.program.layers["depthwise"]
    for tile in tiles_of(own):
        (source,) = tile.sources
        if source.name != "d":
            pytest.skip("the mapping swapped the operands")
        for column in numbers(tile).T:
            assert len({(n - 1) // 9 for n in column if n}) <= 1


def test_what_has_no_tiles_has_no_picture() -> None:
    result = gl.optimize(network(), gl.CPU("1MB"), verify=False)
    layer: Term = result.program.layers["conv"]
    assert tiles_of(layer) == []
