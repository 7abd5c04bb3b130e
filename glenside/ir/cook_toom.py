"""Short correlations by few products: the bilinear algorithms of Cook and Toom, which are Winograd's for windows."""

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
    """y = output ((filter g) * (data d)): m sums y[i] = sum over j of d[i + j] g[j], of r products each.

    `data` is alpha x alpha, `filter` alpha x r, `output` m x alpha, with alpha = m + r - 1 products instead of m r. In
    the literature these are B^T, G and A^T. `data` and `output` are of integers without a common divisor in any row of
    `data` and any column of `output`; fractions stand in `filter`, which is applied to weights beforehand.
    """

    data: Matrix
    filter: Matrix
    output: Matrix

    @property
    def growth(self) -> Fraction:
        """How many times larger than that of the direct sums the bound of rounding errors is, for numbers of any signs:
        the most that an output's sum of absolute values is over r (Barabasz, Anderson, Soodhalter and Gregg, Error
        analysis and improving the accuracy of Winograd convolution, 2020).
        """
        filters, data = ([sum(map(abs, row)) for row in matrix] for matrix in (self.filter, self.data))
        sums = [sum(abs(x) * g * d for x, g, d in zip(row, filters, data, strict=True)) for row in self.output]
        return Fraction(max(sums)) / len(self.filter[0])


def points() -> Iterator[Fraction]:
    """0, 1, -1, 2, -2, 1/2, -1/2, 3, -3, 1/3, ..: what keeps the matrices small comes first."""
    yield Fraction(0)
    yield from (Fraction(1), Fraction(-1))
    for n in count(2):
        yield from (Fraction(n), Fraction(-n), Fraction(1, n), Fraction(-1, n))


def cook_toom(m: int, r: int, at: Sequence[Fraction] | None = None) -> CookToom:
    """The algorithm F(m, r) at m + r - 2 distinct points and infinity; the first of `points()` unless given.

    A product of polynomials with r and m coefficients is known from its values at alpha points: V^-1 (V_r g * V_m h),
    with V the powers of the points. Its transpose with respect to h is y = V_m' (V_r g * V^-1' d), the correlation.
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
    """The coefficients of the product of (x - p) over the roots p, that of 1 first."""
    coefficients = [Fraction(1)]
    for p in roots:
        shifted, kept = [Fraction(0), *coefficients], [*coefficients, Fraction(0)]
        coefficients = [a - p * b for a, b in zip(shifted, kept, strict=True)]
    return coefficients


def _to_integers(values: Sequence[Fraction]) -> Fraction:
    """The positive number that makes these integers without a common divisor."""
    denominator = lcm(*(x.denominator for x in values))
    return Fraction(denominator, gcd(*(int(x * denominator) for x in values)))


def spelled(matrix: Matrix) -> str:
    """A matrix in row-major order, as `numbers` and `linear-map` take it: "1 0 -1/2"."""
    return " ".join(str(x) for row in matrix for x in row)
