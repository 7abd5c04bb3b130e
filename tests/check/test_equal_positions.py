"""Tests that rounding errors, which grow along deep programs, do not change the branches of an exact comparison."""

from __future__ import annotations

import numpy as np
import pytest

from glenside.builder import Builder
from glenside.check import EXACT, check
from glenside.check.equal_positions import Places
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

X = build("access-tensor", Tensor("x", Dims((20, 21)), "float32"))
DEEP = 60


def _full(x: Term, value: str) -> Term:
    return build("full", tuple(x.access.dims), value, "float32")


def _tent(x: Term, factor: str, threshold: str) -> Term:
    """(factor - threshold |x|) / factor: each step makes what two numbers differ by 1.9 times as much."""
    once = build("compute", "abs", x)
    scaled = Builder.combine("elementwise-mul", once, _full(x, f"-{threshold}"))
    return Builder.combine(
        "elementwise-div", Builder.combine("elementwise-add", scaled, _full(x, factor)), _full(x, factor)
    )


def _deep(x: Term, factor: str, threshold: str, last: str = "1/8") -> Term:
    x = build("compute", "(clip -1 1)", x)
    for _ in range(DEEP):
        x = _tent(x, factor, threshold)
    return Builder.combine("maximum", x, _full(x, last))


@pytest.mark.parametrize("turned", [False, True])
def test_rounding_that_grew_is_no_difference(turned: bool) -> None:
    """Divided by 3 or by 1, and in another arrangement; without the places of the first, a sign differs at the end."""
    other = (
        Builder.transpose(_deep(Builder.transpose(X, (1, 0)), "30", "57"), (1, 0)) if turned else _deep(X, "30", "57")
    )
    assert check(Program(_deep(X, "1", "1.9")), Program(other)).result == EXACT


def test_a_difference_at_the_end_of_a_deep_program_is_seen() -> None:
    assert "differs" in check(Program(_deep(X, "1", "1.9")), Program(_deep(X, "30", "57", "1/4"))).result


def test_equal_residues_get_the_places_seen_first() -> None:
    first = np.array([[1 + 5j, 2 + 6j, 3 + 5j]])
    later, other = np.array([[2.1 + 6j], [3.1 + 5j], [1.1 + 5j]]), np.array([9 + 7j, 9 + 5j, 9 + 5j])
    places = Places()
    for value in (first, later, other):
        places.settle(value)
    assert later.ravel().tolist() == [2 + 6j, 3 + 5j, 1 + 5j]
    assert other.tolist() == [9 + 7j, 9 + 5j, 9 + 5j]


@pytest.mark.parametrize(
    ("dims", "axes", "other"),
    [
        ((2, 6, 5, 7), (0, 2, 3, 1), (2, 5, 7, 6)),
        ((2, 6, 5, 7), (0, 2, 3, 1), (70, 6)),
        ((32, 5, 7), (0, 1, 2), (32, 35)),
        ((2, 16, 35), (0, 2, 1), (2, 5, 7, 16)),
        ((4, 5, 6), (2, 1, 0), (6, 5, 4)),
    ],
)
def test_places_follow_their_numbers_into_another_layout(
    dims: tuple[int, ...], axes: tuple[int, ...], other: tuple[int, ...]
) -> None:
    """Residues that occur twice too; the last is no exchange of neighbours, where those are as good as the same."""
    rng = np.random.default_rng(0)
    first = np.empty(dims, np.complex128)
    first.imag = rng.integers(0, first.size // 2, dims)
    first.real = first.imag * first.size + rng.permutation(first.size).reshape(dims)
    later = first.transpose(axes).reshape(other).copy()
    expected = later.copy()
    later.real += 0.25 * rng.random(other)
    places = Places()
    places.settle(first.copy())
    places.settle(later)
    assert np.array_equal(later, expected)


def test_other_numbers_of_the_same_sum_are_not_moved() -> None:
    """-2 - 1 + 0 - 1 is four times -1: neither takes the places of the other."""
    places = Places()
    first, second = np.array([-2 - 2j, -1 - 1j, 0, -1 - 1j]), np.full(4, -1 - 1j)
    places.settle(first)
    places.settle(second)
    assert second.real.tolist() == [-1] * 4
