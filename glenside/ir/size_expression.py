"""Integer expressions of open sizes: sums of products of sizes and quotients, evaluated in Python and printed as C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from types import MappingProxyType


@dataclass(frozen=True)
class Size:
    """An open size, by name: how many steps it is above a number that is less than a step.

    So halves of a size of step 2, say, are whole.
    """

    name: str
    step: int = 1
    above: int = 0

    def at(self, sizes: Mapping[str, int]) -> int:
        """Returns the value at given sizes."""
        return (sizes[self.name] - self.above) // self.step

    def __str__(self) -> str:
        return self.in_c(self.name)

    def in_c(self, name: str) -> str:
        """Returns the value as C; `name`: the C name of the size."""
        moved = f"({name} - {self.above})" if self.above else name
        return f"({moved} / {self.step})" if self.step > 1 else name


@dataclass(frozen=True)
class Quotient:
    """The quotient (of + offset) // divisor, rounded down; 0 if the divisor is 0."""

    of: Expression
    offset: int
    divisor: int | Expression

    def at(self, sizes: Mapping[str, int]) -> int:
        """Returns the value at given sizes."""
        divisor = self.divisor if isinstance(self.divisor, int) else self.divisor.at(sizes)
        return (self.of.at(sizes) + self.offset) // divisor if divisor else 0

    def __hash__(self) -> int:
        return hash(self._text)  # which a string keeps; that of nested expressions would be computed at each look-up

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        moved = f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if self.offset else ""
        divisor = self.divisor if isinstance(self.divisor, int) else f"({self.divisor})"
        return f"(({self.of}{moved}) // {divisor})"


Atom = Size | Quotient
Product = tuple[int, tuple[Atom, ...]]
"""A factor and the atoms that it is multiplied by."""
_MOST_PRODUCTS = 16
"""The most products of a quotient that is searched for."""


@dataclass(frozen=True)
class Expression:
    """The sum of `constant` and of products of atoms, each times a factor."""

    terms: tuple[tuple[int, tuple[Atom, ...]], ...] = ()
    constant: int = 0

    def at(self, sizes: Mapping[str, int]) -> int:
        """Returns the value at given sizes."""
        found = self.constant
        for factor, atoms in self.terms:
            for atom in atoms:
                factor *= atom.at(sizes)
            found += factor
        return found

    def __add__(self, other: Expression) -> Expression:
        if not other.terms:
            return Expression(self.terms, self.constant + other.constant)
        return _sum((*self.terms, *other.terms), self.constant + other.constant)

    def __mul__(self, other: Expression) -> Expression:
        if not other.terms and (by := other.constant):
            return Expression(tuple((factor * by, atoms) for factor, atoms in self.terms), self.constant * by)
        ours, theirs = ((*one.terms, (one.constant, ())) for one in (self, other))
        products = [(a * b, (*left, *right)) for a, left in ours for b, right in theirs]
        return _sum(products, 0)

    def __floordiv__(self, divisor: int) -> Expression:
        """Divides by a fixed integer, rounding down; products that it divides leave the quotient.

        Common divisors are left out, and the quotient of a quotient is one of the first sum.
        """
        whole = [(factor // divisor, atoms) for factor, atoms in self.terms if factor % divisor == 0]
        rest = [(factor, atoms) for factor, atoms in self.terms if factor % divisor]
        outside, inside = divmod(self.constant, divisor)
        if not rest:
            return _sum(whole, outside)
        common = gcd(divisor, *(factor for factor, _ in rest))
        of = Expression(tuple((factor // common, atoms) for factor, atoms in rest))
        inside, divisor = inside // common, divisor // common
        inner = of.terms[0][1][0]
        if len(of.terms) == len(of.terms[0][1]) == of.terms[0][0] == 1 and isinstance(inner, Quotient):
            if isinstance(inner.divisor, int) and inner.divisor > 0:
                of, inside, divisor = inner.of, inner.offset + inside * inner.divisor, divisor * inner.divisor
        return _sum([*whole, (1, (Quotient(of, inside, divisor),))], outside)

    def quotient(self, other: Expression) -> Expression | None:
        """Returns the expression that gives this one when it is multiplied by `other`, or None if none is found."""
        by, rest, found = max(other._products(), key=_order, default=(0, ())), self, list[Product]()
        while rest.terms or rest.constant:  # of the greatest products in an order that multiplication keeps
            part = _divided(max(rest._products(), key=_order), by)
            if part is None or len(found) == _MOST_PRODUCTS:
                return None
            found.append(part)
            rest += other * Expression(((-part[0], part[1]),)) if part[1] else other * Expression((), -part[0])
        return _sum(found, 0)

    def _products(self) -> list[Product]:
        """Returns the products of the sum, the constant among them."""
        return [*self.terms, *([(self.constant, ())] if self.constant else [])]

    def divided(self, other: Expression) -> Expression:
        """Returns the quotient by an expression that does not divide this one."""
        return Expression(((1, (Quotient(Expression(self.terms), self.constant, other),)),))

    @property
    def is_affine(self) -> bool:
        """True if each product is a single atom."""
        return all(len(atoms) == 1 for _, atoms in self.terms)

    def expanded(self) -> Expression:
        """Returns the expression without sums in place of sizes (quotients by 1) that are added to others."""
        found: dict[tuple[Atom, ...], int] = {}
        constant = self.constant
        for factor, atoms in self.terms:
            if len(atoms) == 1 and isinstance(atoms[0], Quotient) and atoms[0].divisor == 1:
                inner = atoms[0].of.expanded()
                constant += factor * (inner.constant + atoms[0].offset)
                parts = [(factor * times, own) for times, own in inner.terms]
            else:
                parts = [(factor, atoms)]
            for times, own in parts:
                found[own] = found.get(own, 0) + times
        return _sum([(times, own) for own, times in found.items()], constant)

    def quotients(self) -> Iterator[Quotient]:
        """Yields the quotients in the expression, those within others before them."""
        for _, atoms in self.terms:
            for atom in atoms:
                if isinstance(atom, Quotient):
                    yield from atom.of.quotients()
                    yield from () if isinstance(atom.divisor, int) else atom.divisor.quotients()
                    yield atom

    def in_c(self, names: Mapping[str, str], known: Mapping[Atom, str] = MappingProxyType({})) -> str:
        """Returns the expression as C over int64_t.

        names  C names of sizes
        known  C names of quotients that are computed before
        """
        found = [
            " * ".join([*([] if factor == 1 else [str(factor)]), *(_atom_in_c(atom, names, known) for atom in atoms)])
            for factor, atoms in self.terms
        ]
        return " + ".join([*found, *([str(self.constant)] if self.constant or not found else [])])

    def __str__(self) -> str:
        if len(self.terms) == 1 and len(self.terms[0][1]) == 1 and isinstance(size := self.terms[0][1][0], Size):
            times, rest = divmod(self.terms[0][0], size.step)
            if size.step > 1 and not rest:  # a multiple of the size itself
                return str(Expression(((times, (Size(size.name),)),), self.constant - times * size.above))
        found = ["*".join([*([] if factor == 1 else [str(factor)]), *map(str, atoms)]) for factor, atoms in self.terms]
        return " + ".join([*found, *([str(self.constant)] if self.constant or not found else [])])


def _order(product: Product) -> tuple[int, list[str]]:
    return len(product[1]), sorted(map(str, product[1]))


def _divided(term: Product, by: Product) -> Product | None:
    """Returns the product by which `by` gives a product, or None."""
    left = list(term[1])
    for atom in by[1]:
        if atom not in left:
            return None
        left.remove(atom)
    return (term[0] // by[0], tuple(left)) if by[0] and term[0] % by[0] == 0 else None


def _sum(products: Iterable[tuple[int, tuple[Atom, ...]]], constant: int) -> Expression:
    """Returns the sum of products and a constant in a canonical order: equal sums are equal expressions."""
    factors: dict[tuple[Atom, ...], int] = {}
    for factor, atoms in products:
        own = tuple(sorted(atoms, key=str))
        factors[own] = factors.get(own, 0) + factor
    constant += factors.pop((), 0)
    terms = sorted(
        ((factor, atoms) for atoms, factor in factors.items() if factor), key=lambda term: [*map(str, term[1])]
    )
    return Expression(tuple(terms), constant)


def _atom_in_c(atom: Atom, names: Mapping[str, str], known: Mapping[Atom, str]) -> str:
    if isinstance(atom, Size):
        return atom.in_c(names[atom.name])
    return known.get(atom) or quotient_in_c(atom, names, known)


def quotient_in_c(atom: Quotient, names: Mapping[str, str], known: Mapping[Atom, str]) -> str:
    """Returns C that computes a quotient from sizes and quotients that are known."""
    divisor = atom.divisor if isinstance(atom.divisor, int) else atom.divisor.in_c(names, known)
    return f"floor_quotient({atom.of.in_c(names, known)} + {atom.offset}, {divisor})"


FLOOR_QUOTIENT = """static int64_t floor_quotient(int64_t a, int64_t b)
{
    return b ? a / b - (a % b < 0) : 0;
}"""
"""C of the quotient of `in_c`."""
