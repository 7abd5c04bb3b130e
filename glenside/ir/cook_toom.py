"""Builds bilinear algorithms of Cook and Toom for short correlations, which are Winograd's algorithms for windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, islice
from math import gcd, lcm, prod

from glenside.ir.bounds import MOST_TAPS
from glenside.ir.errors import BadInput

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class CookToom:
    """y = output ((filter g) * (data d)): m sums y[i] = sum over j of d[i + j] g[j], each over r values of j.

    `data` is alpha x alpha, `filter` alpha x r, `output` m x alpha; there are alpha = m + r - 1 products instead of m
    r. The literature calls them B^T, G and A^T. `data` and `output` hold integers: rows of `data` and columns of
    `output` have no common divisor. Fractions are in `filter`, which is applied to weights at compile time.
    """

    data: Matrix
    filter: Matrix
    output: Matrix

    @property
    def growth(self) -> Fraction:
        """The bound of rounding errors, as a multiple of that of direct sums, for numbers of any signs.

        It is the maximum over outputs of the sum of absolute values, divided by r (Barabasz, Anderson, Soodhalter and
        Gregg, Error analysis and improving the accuracy of Winograd convolution, 2020).
        """
        filters, data = ([sum(map(abs, row)) for row in matrix] for matrix in (self.filter, self.data))
        sums = [sum(abs(x) * g * d for x, g, d in zip(row, filters, data, strict=True)) for row in self.output]
        return Fraction(max(sums)) / len(self.filter[0])


def points() -> Iterator[Fraction]:
    """Yields 0, 1, -1, 2, -2, 1/2, -1/2, 3, -3, 1/3, ..: points that keep the matrices' entries small come first."""
    yield Fraction(0)
    yield from (Fraction(1), Fraction(-1))
    for n in count(2):
        yield from (Fraction(n), Fraction(-n), Fraction(1, n), Fraction(-1, n))


def cook_toom(m: int, r: int, at: Sequence[Fraction] | None = None) -> CookToom:
    """Returns the algorithm F(m, r) at m + r - 2 distinct points and infinity; by default the first of `points()`.

    A product of polynomials with r and m coefficients is determined by its values at alpha points: V^-1 (V_r g * V_m
    h), with V the powers of the points. Its transpose with respect to h is y = V_m' (V_r g * V^-1' d), the correlation.
    Raises BadInput.
    """
    if m < 1 or r < 1 or m + r - 1 > MOST_TAPS:
        raise BadInput(f"F(m, r) requires m >= 1, r >= 1 and m + r - 1 <= {MOST_TAPS}, got F({m}, {r})")
    finite = tuple(islice(points(), m + r - 2)) if at is None else tuple(map(Fraction, at))
    if len(finite) != m + r - 2:
        raise BadInput(f"F({m}, {r}) requires {m + r - 2} points besides infinity, got {len(finite)}")
    if len(set(finite)) != len(finite):
        raise BadInput(f"F({m}, {r}) requires distinct points, got {' '.join(map(str, finite))}")
    data, filter_rows, output = [], [], []
    for p in finite:
        others = [q for q in finite if q != p]
        row, sign = [*_with_roots(others), Fraction(0)], prod(p - q for q in others)
        column = [p**i for i in range(m)]
        of_row, of_column = _to_integers(row), _to_integers(column)
        of_row = of_row if sign > 0 else -of_row  # the filter's first number is positive
        data.append(tuple(of_row * x for x in row))
        output.append(tuple(of_column * x for x in column))
        filter_rows.append(tuple(p**j / (sign * of_row * of_column) for j in range(r)))
    row = _with_roots(finite)
    of_row = _to_integers(row)
    data.append(tuple(of_row * x for x in row))
    output.append((*[Fraction(0)] * (m - 1), Fraction(1)))
    filter_rows.append((*[Fraction(0)] * (r - 1), 1 / of_row))
    return CookToom(tuple(data), tuple(filter_rows), tuple(zip(*output, strict=True)))


def _with_roots(roots: Sequence[Fraction]) -> list[Fraction]:
    """Returns the coefficients of the product of (x - p) over the roots p, the constant term first."""
    coefficients = [Fraction(1)]
    for p in roots:
        shifted, kept = [Fraction(0), *coefficients], [*coefficients, Fraction(0)]
        coefficients = [a - p * b for a, b in zip(shifted, kept, strict=True)]
    return coefficients


def _to_integers(values: Sequence[Fraction]) -> Fraction:
    """Returns the positive factor that makes these integers without a common divisor."""
    denominator = lcm(*(x.denominator for x in values))
    return Fraction(denominator, gcd(*(int(x * denominator) for x in values)))


def spelled(matrix: Matrix) -> str:
    """Spells a matrix in row-major order, as `numbers` and `linear-map` read it: "1 0 -1/2"."""
    return " ".join(str(x) for row in matrix for x in row)
