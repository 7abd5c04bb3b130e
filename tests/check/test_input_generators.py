"""Tests that generated inputs reach the branches on which programs may differ."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from glenside.check import check
from glenside.check.input_generators import draw_near, further
from glenside.ir.dtypes import WHOLE, limits
from glenside.ir.program import Program
from glenside.ir.text import parse
from glenside.ir.types import Dims, Tensor

TURNS = 256


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("constant", [3, -40])
def test_a_whole_tensor_is_beyond_a_constant_where_another_is_about_0(dtype: str, constant: int) -> None:
    x, w = (Tensor(name, Dims(dims), dtype) for name, dims in (("x", (2, 8, 5)), ("w", (2, 2))))
    among = [Fraction(constant)]
    sides = set()
    for turn in range(TURNS):
        a, b = (draw_near(tensor, seed=0, turn=turn, among=among) for tensor in (x, w))
        if np.abs(b).max() <= 2:
            sides |= {side for side, all_ in ((1, a.min() > constant), (-1, a.max() < constant)) if all_}
    assert sides == {1, -1}


def test_parts_of_a_tensor_are_beyond_a_constant_and_others_about_0() -> None:
    x = Tensor("x", Dims((6, 5)), "int32")
    drawn = [draw_near(x, seed=0, turn=turn, among=[Fraction(20)]) for turn in range(TURNS)]
    rows = [(np.abs(a).max(axis=1) < 6, a.min(axis=1) > 20) for a in drawn]
    assert any(calm.any() and far.any() and (calm | far).all() for calm, far in rows)


def test_one_element_and_none_are_drawn_too() -> None:
    for dims in ((), (1,), (0, 3), (1, 1)):
        for turn in range(16):
            assert draw_near(Tensor("x", Dims(dims)), seed=3, turn=turn, among=()).shape == dims


WINDOWED = """
(input x (shape 2 8 5) int32)
(input w (shape 2 2) int32)
(let ((least (compute reduce-min (access-windows (access (access-tensor x) 1) (shape 3 3) (shape 1 1))))
      (kept (compute elementwise-mul (access (access-cartesian-product (access least 0)
        (cast (compute (compare gt) (access-cartesian-product (access least 0) (full (shape 2 6 3) 3 int32)))
        int32)) 0))))
  (compute (clip -3 2) (compute dot-product (access-cartesian-product
    (access {} 1) (access (access-transpose kept (list 1 2 0)) 2)))))
"""


def test_what_only_windows_above_a_threshold_let_through_is_seen() -> None:
    """Of a window that is above 3 as a whole, weights small enough that a clip does not hide them again."""
    right, wrong = (parse(WINDOWED.format(w)) for w in ("(access-tensor w)", "(access-flip (access-tensor w) 1)"))
    for seed in range(2):
        assert check(Program(right.term), Program(wrong.term), seed=seed).result.startswith("differs")


def test_sums_of_few_numbers_are_zero_at_any_depth() -> None:
    """Of three products one after the other, whether the weights are constants or not."""
    dims = {"x": (24, 30), "u": (26, 24), "v": (28, 26), "w": (25, 28)}
    for weights in ((), ("u", "v", "w")):
        x, *layers = (
            draw_near(Tensor(n, Dims(d)), seed=1, turn=further(3), among=[Fraction(1, 3)], weights=weights)
            for n, d in dims.items()
        )
        for layer in layers:
            x = layer @ x
        assert 0.05 < (x == 0).mean() < 0.95


def test_integers_are_drawn_at_their_bounds_too() -> None:
    drawn = {int(v) for turn in range(TURNS) for v in draw_near(X8, seed=0, turn=turn, among=[]).ravel()}
    assert len(drawn) > 230


@pytest.mark.parametrize("dtype", WHOLE)
def test_integers_are_the_least_and_the_most_too(dtype: str) -> None:
    """Float64 knows not all of them; and tensors of the same dims are so at once."""
    drawn = [
        [draw_near(Tensor(n, Dims((4, 6)), dtype), seed=0, turn=turn, among=[]) for n in "xy"] for turn in range(TURNS)
    ]
    assert {*limits(dtype)} <= {int(v) for x, _ in drawn for v in x.ravel()}
    assert any(((x == y) & (x == limits(dtype)[0])).any() for x, y in drawn)


def test_integers_of_an_index_are_one_that_wraps() -> None:
    """Three of each are negative throughout a row: a maximum of a window then sees what is around it."""
    drawn = [draw_near(Tensor("x", Dims((4, 6)), "int64"), seed=0, turn=turn, among=[]) for turn in range(TURNS)]
    wraps = [(x > 0) & (3 * x < 0) for x in drawn]
    assert any(w.all(1).any() for w in wraps)


X8 = Tensor("x", Dims((3, 6)), "int8")
