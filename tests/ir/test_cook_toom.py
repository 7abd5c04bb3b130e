"""Tests Cook-Toom matrices: a rational identity, integers where promised, one sentence for bad sizes."""

from __future__ import annotations

from fractions import Fraction
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glenside.ir.cook_toom import CookToom, Matrix, cook_toom, spelled
from glenside.ir.errors import BadInput

SIZES = [(m, r) for alpha in range(1, 10) for m in range(1, alpha + 1) for r in [alpha + 1 - m]]
RATIONALS = st.fractions(-4, 4, max_denominator=6)


def _times(matrix: Matrix, vector: list[Fraction]) -> list[Fraction]:
    return [sum((a * x for a, x in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


def _is_a_correlation(found: CookToom, m: int, r: int) -> bool:
    """True if a correlation is computed for every pair of unit vectors, and so, by linearity, for
    all data and filters.
    """
    alpha = m + r - 1
    for j in range(r):
        filters = _times(found.filter, [Fraction(j == k) for k in range(r)])
        for i in range(alpha):
            data = _times(found.data, [Fraction(i == k) for k in range(alpha)])
            made = _times(found.output, [x * y for x, y in zip(data, filters, strict=True)])
            if made != [Fraction(i == y + j) for y in range(m)]:
                return False
    return True


def _integers(matrix: Matrix) -> bool:
    return all(x.denominator == 1 for row in matrix for x in row)


@pytest.mark.parametrize(("m", "r"), SIZES)
def test_usual_points_give_the_correlation(m: int, r: int) -> None:
    found = cook_toom(m, r)
    assert (len(found.data), len(found.filter), len(found.output)) == (m + r - 1, m + r - 1, m)
    assert _integers(found.data)
    assert _integers(found.output)
    assert _is_a_correlation(found, m, r)


@given(st.data(), st.integers(1, 4), st.integers(1, 4))
def test_any_distinct_points_give_the_correlation(data: st.DataObject, m: int, r: int) -> None:
    points = data.draw(st.lists(RATIONALS, min_size=m + r - 2, max_size=m + r - 2, unique=True))
    found = cook_toom(m, r, points)
    assert _is_a_correlation(found, m, r)
    assert _integers(found.data)
    assert _integers(found.output)
    for vector in (*found.data, *zip(*found.output, strict=True)):
        assert gcd(*map(int, vector)) == 1
    assert all(next(x for x in row if x) > 0 for row in found.filter)


def test_the_well_known_ones() -> None:
    small, large = cook_toom(2, 3), cook_toom(4, 3)
    assert spelled(small.data) == "1 0 -1 0 0 1 1 0 0 -1 1 0 0 -1 0 1"
    assert spelled(small.filter) == "1 0 0 1/2 1/2 1/2 1/2 -1/2 1/2 0 0 1"
    assert spelled(small.output) == "1 1 1 0 0 1 -1 1"
    assert spelled(large.data[:1]) == "4 0 -5 0 1 0"
    assert spelled(large.filter[3:]) == "1/24 1/12 1/6 1/24 -1/12 1/6 0 0 1"
    assert spelled(large.output[1:]) == "0 1 -1 2 -2 0 0 1 1 4 4 0 0 1 -1 8 -8 1"


@pytest.mark.parametrize(
    ("m", "r", "points", "message"),
    [
        (0, 3, None, r"F\(m, r\) requires m >= 1, r >= 1 and m \+ r - 1 <= 64, got F\(0, 3\)"),
        (2, 0, None, r"F\(m, r\) requires m >= 1, r >= 1 and m \+ r - 1 <= 64, got F\(2, 0\)"),
        (2, 3, [0, 1], r"F\(2, 3\) requires 3 points besides infinity, got 2"),
        (2, 3, [0, 1, -1, 2], r"F\(2, 3\) requires 3 points besides infinity, got 4"),
        (2, 3, [Fraction(1, 2), 1, Fraction(2, 4)], r"F\(2, 3\) requires distinct points, got 1/2 1 1/2"),
    ],
)
def test_bad_input_is_named(m: int, r: int, points: list[Fraction] | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        cook_toom(m, r, points)
