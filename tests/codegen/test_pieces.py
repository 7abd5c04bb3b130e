"""Tests loops split where an access changes its operand: the pieces have no guards and the same values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, product

import numpy as np
import pytest

import glenside as gl
from glenside.builder import layout, pointwise
from glenside.codegen.loop_ir.affine_analysis import all_indices, is_affine, parts_in, substituted
from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.ir import Buffer, Choose, Formula, Load, Role
from glenside.codegen.loop_ir.scalar_expr import choose, number
from glenside.codegen.passes.fuse_producer_consumer import axes_of
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.codegen.scheduling.index_set_splitting import in_pieces
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.index_map import Axis, Guard, Index, Multiple, Within
from glenside.ir.term import Term
from glenside.ir.types import Dims


def _phases(x: Term, y: Term) -> Term:
    """x and y in turns along the last axis, but for the last element: as a transposed convolution of stride 2."""
    pairs = layout.stack([x, y], x.access.rank)
    rows, columns = x.access.dims
    return layout.slice_axis(layout.reshape(pairs, (rows, 2 * columns)), 1, 0, 2 * columns - 1)


PUT_TOGETHER: dict[str, Callable[[Term, Term], Term]] = {
    "side by side": lambda x, y: layout.concatenate([x, y], 1),
    "one above the other": lambda x, y: layout.concatenate([x, y, x], 0),
    "in turns": _phases,
    "in turns, across": lambda x, y: layout.transpose(
        _phases(layout.transpose(x, (1, 0)), layout.transpose(y, (1, 0))), (1, 0)
    ),
    "padded": lambda x, y: layout.pad(pointwise.add(x, y), [(1, 2), (3, 0)]),
    "reshaped and padded": lambda x, y: layout.pad(
        layout.reshape(layout.transpose(pointwise.add(x, y), (1, 0)), (19, 37)), [(0, 0), (1, 1)]
    ),
    "in other rows": lambda x, y: layout.reshape(layout.slice_axis(layout.reshape(x, (703,)), 0, 3, 690), (229, 3)),
    "every second": lambda x, y: layout.strided(layout.concatenate([x, y], 1), (1, 2)),
}


@pytest.mark.parametrize("how", PUT_TOGETHER)
@pytest.mark.parametrize("machine", ["avx512", "avx2"])
def test_what_is_put_together(how: str, machine: str) -> None:
    b = gl.Builder("p")
    x, y = b.input("x", (37, 19)), b.input("y", (37, 19))
    program = b.finish(pointwise.add(PUT_TOGETHER[how](x, y), pointwise.filled(PUT_TOGETHER[how](x, y), 1)))
    loops = lower(program, MACHINES[machine])
    assert faults(loops) == []
    draw = np.random.default_rng(0)
    values = {name: draw.standard_normal((37, 19)).astype(np.float32) for name in ("x", "y")}
    (want,) = gl.evaluate([program.term], values)
    assert np.array_equal(interpret(loops, values)[0].reshape(want.shape), want)
    assert not any(asked in str(loops) for asked in (" if ", "%", "//")), str(loops)


def _read(formula: Formula, places: dict[Axis, Index]) -> int:
    """Builds a formula that reads at some positions, and is -1 elsewhere."""
    if isinstance(formula, Choose):
        held = all(replace(g, index=substituted(g.index, places)).always for g in formula.guards)
        return _read(formula.then if held else formula.otherwise, places)
    if not isinstance(formula, Load):
        return -1
    place = substituted(formula.place, places)
    assert not place.terms
    return place.constant


def _elements(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    """Returns where blocks store, and where their results are read, in order."""
    found = []
    for block in blocks:
        for own in product(*(range(axis.size) for axis in block.axes)):
            places = {axis: Index() + n for axis, n in zip(block.axes, own, strict=True)}
            for place, value in ((block.place, block.value), *block.beside):
                found.append((substituted(place, places).constant, _read(value, places)))
    return sorted(found)


@pytest.mark.parametrize(
    "seeds", [range(24), pytest.param(range(24, 60), marks=pytest.mark.slow)], ids=["a few", "more"]
)
def test_pieces_store_what_the_block_does(seeds: range) -> None:
    """Blocks of quotients, remainders and guards that were drawn: each element is stored once, and is what it was."""
    known = 0
    for seed in seeds:
        block, pieces = _drawn(seed)
        if pieces is None:  # there would be many
            continue
        known += 1
        assert _elements(pieces) == _elements([block]), seed
        assert all(is_affine(index) for piece in pieces for index in all_indices(piece))
        assert not any(isinstance(part, Choose) for piece in pieces for part in parts_in(piece.value))
    assert 3 * known > 2 * len(seeds)


def test_pieces_of_a_band_are_of_its_own_axes() -> None:
    """The position on the band's axis is not known yet, so nothing is split there: no piece has an
    axis without a loop.
    """
    apart = 0
    for seed in range(300):
        block, _ = _drawn(seed)
        band, *own = block.axes
        made = in_pieces(replace(block, axes=tuple(own)), count(100)) or []
        apart += len(made) > 1
        for piece in made:
            assert set(axes_of(piece)) <= {band, *piece.axes}
    assert apart > 10


def _drawn(seed: int) -> tuple[Block, list[Block] | None]:
    draw = np.random.default_rng(seed)
    numbers = count()
    axes = [Axis(next(numbers), int(n)) for n in draw.integers(2, 40, draw.integers(1, 4))]
    buffer = Buffer("x", Dims((1 << 20,)), "float32", Role.INPUT)

    def drawn(depth: int = 2) -> Index:
        index = Index() + int(draw.integers(0, 9))
        for axis in draw.permutation(np.arange(len(axes)))[: draw.integers(1, 3)]:
            index += Index(((axes[axis], int(draw.integers(1, 6))),))
        if depth and draw.random() < 0.7:
            divisor = int(draw.choice([2, 3, 4, 7, 16]))
            index = drawn(depth - 1) * int(draw.integers(1, 3)) + (
                index % divisor if draw.random() < 0.5 else index // divisor
            )
        return index

    def guard() -> Guard:
        low = int(draw.integers(-1, 12))
        return (
            Multiple(drawn(0), int(draw.integers(2, 4)))
            if draw.random() < 0.3
            else Within(drawn(1), low, low + int(draw.integers(1, 20)))
        )

    value = choose([guard() for _ in range(draw.integers(0, 3))], Load(buffer, drawn()), number(0, "float32"))
    place = buffer.place([Index()])
    for axis in axes:
        place = place * axis.size + Index(((axis, 1),))
    block = Block(tuple(axes), (), Buffer("y", Dims([a.size for a in axes]), "float32", Role.RESULT), place, value)
    return block, in_pieces(block, numbers)
