"""Integers of unknown value: polynomials in variables and quotients, in one normal form.

Equal polynomials are equal objects, so that most equations between sizes and indices need no solver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias, Union

Number: TypeAlias = Union[int, "Integer"]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Atom:
    """A factor of a monomial; `key` identifies it."""

    key: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.key

    __repr__ = __str__

    def parts(self) -> tuple[Integer, ...]:
        """Returns the integers from which the atom is computed."""
        return ()


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Variable(Atom):
    """A size, an attribute or an index of unknown value."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Quotient(Atom):
    """floor(dividend / divisor), for a divisor > 0."""

    dividend: Integer
    divisor: Integer

    def parts(self) -> tuple[Integer, ...]:
        return self.dividend, self.divisor


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Lookup(Atom):
    """The position that an element of a tensor of integers is in an axis, whose size is the last of `index`."""

    tensor: str
    index: tuple[Integer, ...]

    def parts(self) -> tuple[Integer, ...]:
        return self.index


def lookup(tensor: str, index: tuple[Integer, ...]) -> Integer:
    """Returns the position in an axis, whose size is the last of `index`, that an element of a tensor is."""
    return _of_terms({(Lookup(f"{tensor}[{', '.join(map(str, index))}]", tensor, index),): 1})


Monomial: TypeAlias = tuple[Atom, ...]
"""A product of atoms, sorted by key."""


@dataclass(frozen=True, eq=False, repr=False)
class Integer:
    """A polynomial with integer coefficients: its monomials, sorted, with coefficients that are not 0."""

    terms: tuple[tuple[Monomial, int], ...]
    key: str

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Integer) else self.constant == other

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.key

    __repr__ = __str__

    @cached_property
    def constant(self) -> int | None:
        """The value, if it is known."""
        if not self.terms:
            return 0
        monomial, coefficient = self.terms[0]
        return coefficient if len(self.terms) == 1 and not monomial else None

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """All atoms, those inside other atoms too."""
        found: set[Atom] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if atom not in found:
                    found.add(atom)
                    found.update(*(part.atoms for part in atom.parts()))
        return frozenset(found)

    def __add__(self, other: Number) -> Integer:
        sums = dict(self.terms)
        for monomial, coefficient in integer(other).terms:
            sums[monomial] = sums.get(monomial, 0) + coefficient
        return _of_terms(sums)

    def __mul__(self, other: Number) -> Integer:
        products: dict[Monomial, int] = {}
        for a, m in self.terms:
            for b, n in integer(other).terms:
                monomial = tuple(sorted((*a, *b), key=_key)) if a and b else a or b
                products[monomial] = products.get(monomial, 0) + m * n
        return _of_terms(products)

    def __neg__(self) -> Integer:
        return self * -1

    def __sub__(self, other: Number) -> Integer:
        return self + -integer(other)

    def __rsub__(self, other: Number) -> Integer:
        return integer(other) - self

    def __floordiv__(self, other: Number) -> Integer:
        return quotient(self, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def coefficient(self, atom: Atom) -> int | None:
        """Returns c if the polynomial is c * atom + rest, and rest does not depend on the atom; None otherwise."""
        found = 0
        for monomial, coefficient in self.terms:
            if monomial == (atom,):
                found = coefficient
            elif any(atom == other or any(atom in p.atoms for p in other.parts()) for other in monomial):
                return None
        return found

    def linear(self, atom: Atom) -> tuple[Integer, Integer] | None:
        """Returns (a, b) if the polynomial is a * atom + b, and neither depends on the atom; None otherwise."""
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            others = [other for other in monomial if other != atom]
            if len(monomial) - len(others) > 1 or any(atom in p.atoms for other in others for p in other.parts()):
                return None
            (factor if len(others) < len(monomial) else rest)[tuple(others)] = coefficient
        return _of_terms(factor), _of_terms(rest)

    def substitute(self, values: Mapping[Atom, Integer]) -> Integer:
        """Returns the polynomial with values for variables, those inside quotients too."""
        if not values or self.atoms.isdisjoint(values):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            factor = integer(coefficient)
            for atom in monomial:
                factor = factor * _substituted(atom, values)
            total = total + factor
        return total

    def value(self, assignment: Mapping[str, int]) -> int:
        """Returns the number under values of the variables."""
        return sum(c * prod(_value(atom, assignment) for atom in monomial) for monomial, c in self.terms)


def _key(atom: Atom) -> str:
    return atom.key


def _of_terms(sums: Mapping[Monomial, int]) -> Integer:
    kept = [("*".join(map(_key, monomial)), monomial, c) for monomial, c in sums.items() if c]
    kept.sort(key=lambda term: term[0])
    text = " + ".join(f"{c}*{name}" if name and c != 1 else name or str(c) for name, _, c in kept) or "0"
    return Integer(tuple((monomial, c) for _, monomial, c in kept), text)


ZERO = _of_terms({})
ONE = _of_terms({(): 1})


def integer(value: Number) -> Integer:
    """Returns a number as an integer of this module."""
    return value if isinstance(value, Integer) else _of_terms({(): int(value)})


def plain(value: Number) -> Number:
    """Returns an int for an integer whose value is known."""
    known = value.constant if isinstance(value, Integer) else value
    return value if known is None else known


def variable(name: str) -> Integer:
    """Returns the integer that is one variable."""
    return _of_terms({(Variable(name),): 1})


def variable_of(value: Integer) -> Atom:
    """Returns the variable of an integer that is one variable."""
    ((((atom,), _)),) = value.terms
    return atom


def product(sizes: Iterable[Number]) -> Integer:
    """Returns the product of sizes."""
    return prod(map(integer, sizes), start=ONE)


def quotient(dividend: Number, divisor: Number) -> Integer:
    """Returns floor(dividend / divisor), for a divisor > 0: multiples of the divisor leave the dividend."""
    rest, by = integer(dividend), integer(divisor)
    if rest.constant is not None and by.constant is not None:
        return integer(rest.constant // by.constant)
    if not by.terms:
        return ZERO  # who divides has required a divisor > 0
    whole = ZERO
    lead, scale = max(by.terms, key=_degree)
    for _ in range(16):
        multiple = next((m for monomial, c in rest.terms if (m := _divided(monomial, c, lead, scale))), None)
        if multiple is None:
            break
        whole, rest = whole + multiple, rest - multiple * by
    if not rest.terms or (rest.constant is not None and by.constant is not None):
        return whole + (rest.constant or 0) // (by.constant or 1)
    if (by - rest).constant == 1:
        return whole
    negative = rest.terms[-1][1] < 0 and all(c < 0 for monomial, c in rest.terms if monomial)
    if negative and all(c > 0 for monomial, c in by.terms if monomial):  # floor(-a / b) = -floor((a + b - 1) / b)
        return whole - quotient(by - rest - 1, by)
    for monomial, c in rest.terms:  # floor((floor(a / b) + r) / d) = floor((a + r b) / (b d))
        if c == 1 and len(monomial) == 1 and isinstance(inner := monomial[0], Quotient):
            others = rest - _of_terms({monomial: 1})
            return whole + quotient(inner.dividend + others * inner.divisor, inner.divisor * by)
    return whole + _of_terms({(Quotient(f"({rest} / {by})", rest, by),): 1})


def remainder(dividend: Number, divisor: Number) -> Integer:
    """Returns the dividend less the divisor times their quotient."""
    return integer(dividend) - integer(divisor) * quotient(dividend, divisor)


def remainder_of(value: Integer, equation: Integer) -> Integer:
    """Returns a polynomial of the same value where an equation holds, without multiples of its leading term."""
    lead, scale = max(equation.terms, key=_degree)
    if scale not in (1, -1):
        return value
    for _ in range(8):
        multiple = next((m for monomial, c in value.terms if (m := _divided(monomial, c, lead, scale))), None)
        if multiple is None:
            break
        value = value - multiple * equation
    return value


def _degree(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return len(term[0]), [atom.key for atom in term[0]]


def _divided(monomial: Monomial, coefficient: int, by: Monomial, scale: int) -> Integer | None:
    """Returns the quotient of two terms, if it is exact."""
    left = list(monomial)
    for atom in by:
        if atom not in left:
            return None
        left.remove(atom)
    return _of_terms({tuple(left): coefficient // scale}) if coefficient % scale == 0 else None


def position(index: Sequence[Number], dims: Sequence[Number]) -> Integer:
    """Returns the row-major position of an index."""
    found = ZERO
    for i, n in zip(index, dims, strict=True):
        found = found * integer(n) + i
    return found


def _substituted(atom: Atom, values: Mapping[Atom, Integer]) -> Integer:
    if atom in values:
        return values[atom]
    if isinstance(atom, Quotient):
        return quotient(atom.dividend.substitute(values), atom.divisor.substitute(values))
    if isinstance(atom, Lookup):
        return lookup(atom.tensor, tuple(i.substitute(values) for i in atom.index))
    return _of_terms({(atom,): 1})


def _value(atom: Atom, assignment: Mapping[str, int]) -> int:
    if isinstance(atom, Quotient):
        return atom.dividend.value(assignment) // atom.divisor.value(assignment)
    return assignment[atom.key]


@dataclass(frozen=True, slots=True)
class Condition:
    """`value >= 0`, `value = 0` or `value != 0`."""

    relation: str
    value: Integer

    @property
    def negated(self) -> Condition:
        if self.relation == ">=":
            return Condition(">=", -self.value - 1)
        return Condition("=" if self.relation == "!=" else "!=", self.value)

    @property
    def known(self) -> bool | None:
        """The truth, if the value is known."""
        n = self.value.constant
        if n is None:
            return None
        return n >= 0 if self.relation == ">=" else (n == 0) == (self.relation == "=")

    def substitute(self, values: Mapping[Atom, Integer]) -> Condition:
        return Condition(self.relation, self.value.substitute(values))

    def holds(self, assignment: Mapping[str, int]) -> bool:
        """True under values of the variables."""
        n = self.value.value(assignment)
        return n >= 0 if self.relation == ">=" else (n == 0) == (self.relation == "=")

    def __str__(self) -> str:
        return f"{self.value} {self.relation} 0"


def at_least(a: Number, b: Number) -> Condition:
    """Returns the condition a >= b."""
    return Condition(">=", integer(a) - b)


def less(a: Number, b: Number) -> Condition:
    """Returns the condition a < b."""
    return Condition(">=", integer(b) - a - 1)


def same(a: Number, b: Number) -> Condition:
    """Returns the condition a = b; a difference and its negative are one."""
    difference = integer(a) - b
    if difference.terms and difference.terms[-1][1] < 0:
        difference = -difference
    return Condition("=", difference)


def within(index: Iterable[Number], dims: Iterable[Number]) -> Iterator[Condition]:
    """Yields the conditions that each index is at least 0 and below its size."""
    for i, n in zip(index, dims, strict=True):
        yield at_least(i, 0)
        yield less(i, n)


def integers(values: Iterable[Any]) -> tuple[Integer, ...]:
    """Returns numbers as integers of this module."""
    return tuple(map(integer, values))
