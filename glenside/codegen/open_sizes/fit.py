"""Fits integers that were observed at sample sizes by expressions of the sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, combinations_with_replacement
from math import prod
from typing import Any

import numpy as np

from glenside.ir.size_expression import Atom, Expression, Quotient, Size

Observed = tuple[int, ...]
"""The values of an integer at the sample sizes, in their order."""
_MAX_DEGREE = 3
"""The most sizes in a product."""
_FEW = 4
"""With fewer sizes, quotients are multiplied by two of them."""
_LEAST_FOR_THREE = 6
"""The fewest samples for sums of three products."""
_SPARE = 2
"""The fewest samples beyond the products of a sum that are solved for at once."""
_NEAR = 1e-4
"""Relative error of a floating-point solution."""
_DIVISORS = sorted(range(2, 65), key=lambda n: n & (n - 1) > 0)
"""The divisors of quotients that are tried: powers of two first, as those of strides."""


class Fitter:
    """Finds expressions for observed integers; quotients that explain one become atoms of others.

    sizes  the open sizes, with their steps, if they have any
    bases  expressions whose quotients are tried
    """

    def __init__(self, samples: Sequence[Mapping[str, int]], sizes: Sequence[Size] = ()) -> None:
        self.samples = samples
        self.sizes: list[Atom] = [*sizes] or [Size(name) for name in samples[0]]
        self.bases = [(Expression(((1, (size,)),)), self._values((size,))) for size in self.sizes]
        self.quotients: dict[Atom, None] = {}
        self._known: dict[Observed, Expression] = {}
        self._multiply()

    def _multiply(self) -> None:
        """Makes the products of sizes."""
        self.powers = [
            (atoms, self._values(atoms))
            for degree in range(1, _MAX_DEGREE + 1)
            for atoms in combinations_with_replacement(self.sizes, degree)
        ]
        self.monomials: list[tuple[tuple[Atom, ...], Observed]] = [*self.powers]
        for atom in self.quotients:
            self._multiply_by(atom)

    def fit_all(self, observed: Iterable[Observed]) -> dict[Observed, Expression | None]:
        """Returns an expression for each observed integer, or None."""
        left = sorted({*observed}, key=lambda values: (max(map(abs, values)), values))
        found: dict[Observed, Expression | None] = dict.fromkeys(left)
        while left:
            before = len(left)
            for values in left:
                found[values] = self._plain(values)
            left = [values for values in left if found[values] is None]
            for values in left:
                found[values] = (
                    self._plain(values) or self._quotient(values) or self._product(values) or self._of_many(values)
                )
            left = [values for values in left if found[values] is None]
            if len(left) == before:
                break
        return found

    def fit(self, values: Observed) -> Expression | None:
        """Returns an expression that has these values at the samples, or None."""
        return self.fit_all([values])[values]

    def _values(self, atoms: Sequence[Atom]) -> Observed:
        return tuple(prod(atom.at(sample) for atom in atoms) for sample in self.samples)

    def _plain(self, values: Observed) -> Expression | None:
        """Returns a sum of at most two products, of sizes and known quotients, and a constant; or None."""
        if values in self._known:
            return self._known[values]
        found = self._combined(values)
        if found is not None:
            self._keep(values, found)
        return found

    def _keep(self, values: Observed, found: Expression) -> None:
        self._known[values] = found
        if found.terms and min(values) >= 0:
            self.bases.append((found, values))

    def _combined(self, values: Observed) -> Expression | None:
        if len(set(values)) == 1:
            return Expression((), values[0])
        changes = tuple(v - values[0] for v in values)
        moved = [(atoms, tuple(o - own[0] for o in own), own) for atoms, own in self.monomials]
        alone = [found for one in moved if (found := _sum_of([one], values, changes)) is not None]
        if alone:
            return min(alone, key=lambda found: (found.constant != 0, len(found.terms[0][1])))
        for pair in _pairs(np.array([change for _, change, _ in moved], float), changes):
            found = _sum_of([moved[i] for i in pair], values, changes)
            if found is not None:
                return found
        few = [one for one in moved if all(isinstance(atom, Size) for atom in one[0])]
        for chosen in combinations(few, 3) if len(values) >= _LEAST_FOR_THREE else ():
            found = _sum_of(chosen, values, changes)
            if found is not None:
                return found
        return None

    def _product(self, values: Observed) -> Expression | None:
        """Returns a multiple of the product of two known values, or of sizes that strides divide; or None.

        Such as the elements of an image.
        """
        known = [*{**self._strided(), **self._known}.items()]
        every = np.array([own for own, _ in known], float).reshape(-1, len(values))
        for number, (own, expression) in enumerate(known):
            products = every[number:] * np.array(own, float)
            with np.errstate(all="ignore"):
                ratios = np.array(values, float) / products
            for place in np.flatnonzero(np.ptp(ratios, 1) < _NEAR * np.abs(ratios[:, 0])):
                others, other = known[number + place]
                factor = round(ratios[place, 0])
                if factor and all(factor * a * b == v for a, b, v in zip(own, others, values, strict=True)):
                    found = expression * other * Expression((), factor)
                    self._keep(values, found)
                    return found
        return None

    def _strided(self) -> dict[Observed, Expression]:
        """Returns the sizes, and their quotients by powers of two, rounded down and up."""
        found: dict[Observed, Expression] = {}
        for base, own in self.bases[: len(self.sizes)]:
            found[own] = base
            for divisor in (2, 4, 8, 16, 32, 64):
                for offset in (0, divisor - 1):
                    quotient = (base + Expression((), offset)) // divisor
                    found[tuple((v + offset) // divisor for v in own)] = quotient
        return found

    def _of_many(self, values: Observed) -> Expression | None:
        """Returns a sum of products of two sizes, and of those of one or two known quotients with sizes; or None.

        All factors are solved for at once, so there must be more samples than products.
        """
        names = [atom for atom in self.sizes if isinstance(atom, Size)]
        plain = [atoms for degree in (1, 2) for atoms in combinations_with_replacement(names, degree)]
        alone = list(self.quotients)
        for chosen in ((), *((one,) for one in alone), *combinations(alone, 2)):
            products = [*plain, *((one, *atoms) for one in chosen for atoms in ((), *((name,) for name in names)))]
            if len(products) + _SPARE > len(values):
                continue
            own = [self._values(atoms) for atoms in products]
            columns = np.array([[1] * len(values), *own], float).T
            solved, *_ = np.linalg.lstsq(columns, np.array(values, float), rcond=None)
            constant, *factors = map(round, solved.tolist())
            sums = [sum(f * n for f, n in zip(factors, row, strict=True)) for row in zip(*own, strict=True)]
            if all(constant + total == value for total, value in zip(sums, values, strict=True)):
                terms = [(f, atoms) for f, atoms in zip(factors, products, strict=True) if f]
                found = Expression(tuple(terms), constant)
                self._keep(values, found)
                return found
        return None

    def _add(self, base: Expression, offset: int, divisor: int) -> Atom:
        """Adds a quotient to the atoms, and its products with sizes to the monomials."""
        atom = Quotient(base, offset, divisor)
        if atom not in self.quotients:
            self.quotients[atom] = None
            self._multiply_by(atom)
        return atom

    def _multiply_by(self, atom: Atom) -> None:
        degree = _MAX_DEGREE - 1 if len(self.sizes) < _FEW else 1
        few = [atoms for atoms, _ in self.powers if len(atoms) <= degree]
        self.monomials += [((atom, *atoms), self._values((atom, *atoms))) for atoms in ((), *few)]

    def _quotient(self, values: Observed) -> Expression | None:
        """Returns an expression with new quotients, or None.

        The values are a quotient, the greatest multiple of a divisor, or a remainder.
        """
        sizes, others = self.bases[: len(self.sizes)], self.bases[len(self.sizes) :]
        ways = (self._of_divisor, self._of_moved)
        for bases, way in ((sizes, ways[0]), (sizes, ways[1]), (others, ways[0]), (others, ways[1])):
            for base, own in bases:
                for divisor in _DIVISORS:
                    found = way(values, base, own, divisor)
                    if found is not None:
                        return found
        return None

    def _of_moved(self, values: Observed, base: Expression, own: Observed, divisor: int) -> Expression | None:
        """Returns an expression with the quotient of a base and a number by a divisor, or None."""
        for offset in (divisor - 1, *range(divisor - 1)):
            first = values[0] - (own[0] + offset) // divisor
            if all((v + offset) // divisor + first == w for v, w in zip(own, values, strict=True)):
                return self._of_quotient(values, base, offset, divisor, first)
        return None

    def _of_divisor(self, values: Observed, base: Expression, own: Observed, divisor: int) -> Expression | None:
        """Returns an expression with quotients of a base by a divisor, or None."""
        if tuple(v // divisor for v in own) == values:
            return self._of_quotient(values, base, 0, divisor)
        rest = tuple(v % divisor for v in own)
        if values in (rest, tuple(v - r for v, r in zip(own, rest, strict=True))):
            self._add(base, 0, divisor)
            return self._plain(values)
        return None

    def _of_quotient(self, values: Observed, base: Expression, offset: int, divisor: int, more: int = 0) -> Expression:
        found = Expression(((1, (self._add(base, offset, divisor),)),), more)
        self._keep(values, found)
        return found


Moved = tuple[tuple[Atom, ...], Observed, Observed]
"""A product of atoms, its changes from the first sample on, and its values."""


def _sum_of(chosen: Sequence[Moved], values: Observed, changes: Observed) -> Expression | None:
    """Returns the sum of products with whole factors, and a constant, that has these values; or None."""
    factors = _solved([change for _, change, _ in chosen], changes)
    if factors is None:
        return None
    terms = tuple((f, atoms) for f, (atoms, *_) in zip(factors, chosen, strict=True))
    return Expression(terms, values[0] - sum(f * own[0] for f, (*_, own) in zip(factors, chosen, strict=True)))


def _pairs(products: np.ndarray[Any, np.dtype[np.float64]], changes: Observed) -> Iterator[tuple[int, int]]:
    """Yields pairs of products of which some combination probably has these changes, to be solved exactly."""
    (x, y, z), (a, b, c) = products[:, 1:4].T, changes[1:4]
    with np.errstate(all="ignore"):
        scale = np.outer(x, y) - np.outer(y, x)
        first = (a * y[None, :] - b * x[None, :]) / scale
        second = (b * x[:, None] - a * y[:, None]) / scale
        error = np.abs(first * z[:, None] + second * z[None, :] - c)
        near = (error <= _NEAR * (abs(c) + np.abs(first * z[:, None]) + 1)) & np.isfinite(first)
        near &= (np.abs(first - np.rint(first)) < _NEAR) & (np.abs(second - np.rint(second)) < _NEAR)
    rows, columns = np.nonzero(np.triu(near, 1))
    yield from sorted(zip(rows.tolist(), columns.tolist(), strict=True), key=sum)


def _solved(columns: Sequence[Observed], values: Observed) -> tuple[int, ...] | None:
    """Returns whole factors with which the columns add up to the values, or None; exact."""
    rows = [[*own, v] for own, v in zip(zip(*columns, strict=True), values, strict=True)]
    count = len(columns)
    for column in range(count):
        place = next((i for i in range(column, len(rows)) if rows[i][column]), None)
        if place is None:
            return None
        rows[column], rows[place] = rows[place], rows[column]
        head = rows[column]
        for i in range(column + 1, len(rows)):
            if rows[i][column]:
                f = rows[i][column]
                rows[i] = [head[column] * b - f * a for a, b in zip(head, rows[i], strict=True)]
    if any(row[count] for row in rows[count:]):
        return None
    found = [0] * count
    for column in reversed(range(count)):
        rest = rows[column][count] - sum(rows[column][j] * found[j] for j in range(column + 1, count))
        factor, left = divmod(rest, rows[column][column])
        if left or not factor:
            return None
        found[column] = factor
    return tuple(found)
