"""Elements of tensors at symbolic indices: sums, over bound variables, of products under conditions.

Every element is in this form from the start: a pad or a concatenation is a sum of terms under opposite conditions, and
products distribute over sums. Addition and multiplication are those of a commutative ring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from glenside.proofs.symbolic_integers import Atom, Condition, Integer, at_least, less, variable_of

Values: TypeAlias = Mapping[Atom, Integer]
Range: TypeAlias = tuple[Integer, Integer]
"""A bound variable and its size: it takes the values 0 to size - 1."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A factor of a product: equal factors have equal texts."""

    @cached_property
    def key(self) -> str:
        return str(self)

    def substitute(self, values: Values) -> Factor:
        return self


@dataclass(frozen=True, eq=False)
class Read(Factor):
    """An element of a tensor."""

    tensor: str
    index: tuple[Integer, ...]

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.index))}]"

    def substitute(self, values: Values) -> Read:
        return Read(self.tensor, tuple(i.substitute(values) for i in self.index))


@dataclass(frozen=True, eq=False)
class Apply(Factor):
    """A function of elements, of which it is only known whether it maps zeros to zero."""

    function: str
    arguments: tuple[Element, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    def substitute(self, values: Values) -> Apply:
        return Apply(self.function, tuple(a.substitute(values) for a in self.arguments))


@dataclass(frozen=True, eq=False)
class Reduction(Factor):
    """A function of all elements of an item, and of an index in it where the result is an item too.

    `ordered`: the function depends on the order of the elements. `zero`: it maps an item of zeros to zero.
    """

    function: str
    ordered: bool
    zero: bool
    ranges: tuple[Range, ...]
    body: Element
    index: tuple[Integer, ...] = ()

    def __str__(self) -> str:
        ranges = " ".join(f"{v}<{n}" for v, n in self.ranges)
        return f"{self.function}[{ranges}: {self.body}]{list(map(str, self.index)) if self.index else ''}"

    def substitute(self, values: Values) -> Reduction:
        ranges = tuple((v, n.substitute(values)) for v, n in self.ranges)
        index = tuple(i.substitute(values) for i in self.index)
        return Reduction(self.function, self.ordered, self.zero, ranges, self.body.substitute(values), index)


@dataclass(frozen=True, eq=False)
class Summand:
    """The sum over all values of bound variables of a product, where the guards hold."""

    ranges: tuple[Range, ...] = ()
    guards: frozenset[Condition] = frozenset()
    coefficient: Fraction = Fraction(1)
    factors: tuple[Factor, ...] = ()

    @cached_property
    def key(self) -> str:
        """Everything but the coefficient, as a text."""
        guards = " ".join(sorted(f"[{c}]" for c in self.guards))
        return f"{' '.join(f'{v}<{n}' for v, n in self.ranges)} {guards} {' '.join(f.key for f in self.factors)}"

    def __str__(self) -> str:
        return f"{self.coefficient} {self.key}"

    def bounds(self) -> tuple[Condition, ...]:
        """Returns the conditions that the bound variables are in their ranges."""
        return tuple(c for v, n in self.ranges for c in (at_least(v, 0), less(v, n)))

    @cached_property
    def bound(self) -> frozenset[Atom]:
        return frozenset(variable_of(v) for v, _ in self.ranges)

    def substitute(self, values: Values) -> Summand:
        guards = frozenset(c.substitute(values) for c in self.guards)
        factors = tuple(sorted((f.substitute(values) for f in self.factors), key=_key))
        ranges = tuple((v, n.substitute(values)) for v, n in self.ranges)
        return Summand(ranges, guards, self.coefficient, factors)


@dataclass(frozen=True, eq=False)
class Element:
    """A sum of summands; without any it is 0."""

    summands: tuple[Summand, ...] = ()

    def __str__(self) -> str:
        return " + ".join(map(str, self.summands)) or "0"

    def __add__(self, other: Element) -> Element:
        return Element((*self.summands, *other.summands))

    def __mul__(self, other: Element) -> Element:
        return Element(tuple(_times(a, b) for a in self.summands for b in other.summands))

    def scaled(self, by: Fraction) -> Element:
        return Element(tuple(Summand(s.ranges, s.guards, s.coefficient * by, s.factors) for s in self.summands))

    def where(self, *conditions: Condition) -> Element:
        """Returns the element where all conditions hold, else 0."""
        if any(c.known is False for c in conditions):
            return ZERO
        new = frozenset(c for c in conditions if c.known is None)
        kept = [s for s in self.summands if not any(c.negated in s.guards for c in new)]
        return Element(tuple(Summand(s.ranges, s.guards | new, s.coefficient, s.factors) for s in kept))

    def over(self, ranges: Sequence[Range]) -> Element:
        """Returns the sum over bound variables."""
        outer = tuple(ranges)
        return Element(tuple(Summand((*outer, *s.ranges), s.guards, s.coefficient, s.factors) for s in self.summands))

    def substitute(self, values: Values) -> Element:
        return Element(tuple(s.substitute(values) for s in self.summands)) if values else self

    @cached_property
    def conditions(self) -> list[Condition]:
        """The guards that no bound variable of their summand is in, one of each pair of opposites."""
        found: dict[Condition, None] = {}
        for s in self.summands:
            for c in sorted(s.guards, key=str):
                if c.value.atoms.isdisjoint(s.bound) and c.negated not in found:
                    found[c] = None
        return list(found)

    def given(self, condition: Condition) -> Element:
        """Returns the element where a condition is known to hold."""
        kept = [s for s in self.summands if condition.negated not in s.guards]
        return Element(tuple(Summand(s.ranges, s.guards - {condition}, s.coefficient, s.factors) for s in kept))


ZERO = Element()


def _key(factor: Factor) -> str:
    return factor.key


def _times(a: Summand, b: Summand) -> Summand:
    if clash := a.bound & b.bound:  # the same sum twice: the second has variables of its own
        fresh = {v: _renamed(v, a.bound | b.bound) for v in clash}
        ranges = tuple((fresh.get(variable_of(v), v), n) for v, n in b.ranges)
        b = Summand(ranges, b.guards, b.coefficient, b.factors).substitute(fresh)
    factors = tuple(sorted((*a.factors, *b.factors), key=_key))
    return Summand((*a.ranges, *b.ranges), a.guards | b.guards, a.coefficient * b.coefficient, factors)


def _renamed(atom: Atom, taken: frozenset[Atom]) -> Integer:
    from glenside.proofs.symbolic_integers import variable

    name = f"{atom.key}'"
    while any(other.key == name for other in taken):
        name += "'"
    return variable(name)


def number(value: Fraction) -> Element:
    """Returns an element that is a number."""
    return Element((Summand(coefficient=value),)) if value else ZERO


def of_factor(factor: Factor) -> Element:
    """Returns an element that is one factor."""
    return Element((Summand(factors=(factor,)),))


def _by_cases(
    parts: Sequence[Element], build: Callable[[Sequence[Element]], Element], bound: frozenset[Atom]
) -> Element:
    """Returns `build` of the parts, with each guard of a part around the result instead."""
    for part in parts:
        for c in part.conditions:
            if c.value.atoms.isdisjoint(bound):
                yes, no = ([p.given(k) for p in parts] for k in (c, c.negated))
                return _by_cases(yes, build, bound).where(c) + _by_cases(no, build, bound).where(c.negated)
    return build(parts)


def apply(function: str, arguments: Sequence[Element], keeps_zero: bool = False) -> Element:
    """Returns a function of elements."""

    def build(parts: Sequence[Element]) -> Element:
        if keeps_zero and not any(part.summands for part in parts):
            return ZERO
        return of_factor(Apply(function, tuple(parts)))

    return _by_cases(arguments, build, frozenset())


def reduction(
    function: str,
    ranges: Sequence[Range],
    body: Element,
    *,
    ordered: bool = False,
    zero: bool = False,
    index: Sequence[Integer] = (),
) -> Element:
    """Returns a function of all elements of an item; of one that has no axes, of its element."""
    bound = frozenset(variable_of(v) for v, _ in ranges)

    def build(parts: Sequence[Element]) -> Element:
        return of_factor(Reduction(function, ordered, zero, tuple(ranges), parts[0], tuple(index)))

    return _by_cases([body], build, bound)
