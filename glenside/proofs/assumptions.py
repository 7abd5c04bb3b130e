"""Assumptions about integers, and what follows from them, by z3."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import z3

from glenside.proofs.symbolic_integers import (
    ZERO,
    Atom,
    Condition,
    Integer,
    Quotient,
    at_least,
    integer,
    less,
    quotient,
    remainder_of,
)

_LIMIT = 100_000  # resources instead of seconds, so that answers do not depend on the machine
_DRAWS = 40  # of values of all variables
_PAIRS = 400  # products of two bounds that are tried
_expressions: dict[str, Any] = {}


class OutOfTime(Exception):
    """The time for a clause is over."""


@dataclass
class Effort:
    """Limits of one proof, and the answers so far."""

    seconds: float
    answers: dict[tuple[frozenset[Condition], Condition | None], bool] = field(default_factory=dict)
    queries: int = 0

    def __post_init__(self) -> None:
        self.deadline = time.process_time() + self.seconds

    def check(self) -> None:
        """Raises OutOfTime past the deadline."""
        if time.process_time() > self.deadline:
            raise OutOfTime


@dataclass(frozen=True, eq=False)
class Assumptions:
    """Conditions that hold together."""

    effort: Effort
    conditions: frozenset[Condition] = frozenset()

    def substitute(self, values: Mapping[Atom, Integer]) -> Assumptions:
        """Returns the assumptions with values for variables."""
        return Assumptions(self.effort).assuming(*(c.substitute(values) for c in self.conditions)) if values else self

    def quotient(self, dividend: Integer, divisor: Integer) -> Integer:
        """Returns floor(dividend / divisor), without quotients that are known to be 0."""
        found = quotient(dividend, divisor)
        zero: dict[Atom, Integer] = {
            atom: ZERO
            for monomial, _ in found.terms
            for atom in monomial
            if isinstance(atom, Quotient) and self._is_below(atom.dividend, atom.divisor)
        }
        return found.substitute(zero)

    def _is_below(self, dividend: Integer, divisor: Integer) -> bool:
        return self.proves(at_least(dividend, 0)) and self.proves(less(dividend, divisor))

    def assuming(self, *more: Condition) -> Assumptions:
        """Returns these assumptions and more."""
        new = self.conditions.union(c for c in more if c.known is not True)
        return self if new == self.conditions else Assumptions(self.effort, new)

    @cached_property
    def nonnegative(self) -> frozenset[Atom]:
        """The atoms that an assumption alone says to be at least 0."""
        bounds = [c.value.terms for c in self.conditions if c.relation == ">=" and len(c.value.terms) == 1]
        return frozenset(m[0] for ((m, c),) in bounds if c > 0 and len(m) == 1)

    def proves(self, wanted: Condition) -> bool:
        """True if the condition follows; False if it does not, or if that was not found out in time."""
        if wanted.known is not None:
            return wanted.known or self.contradictory
        if wanted in self.conditions or self._follows_at_once(wanted):
            return True
        reduced = Condition(wanted.relation, self._reduced(wanted.value))
        if reduced.known is not None:
            return bool(reduced.known) or self.contradictory
        if self._alternatives:
            return all(a.contradictory or a.proves(wanted.substitute(v)) for a, v in self._alternatives)
        return self._unsatisfiable(wanted)

    @property
    def contradictory(self) -> bool:
        """True if no integers meet all assumptions."""
        if any(c.known is False for c in self.conditions):
            return True
        if self._alternatives:
            return all(a.contradictory for a, _ in self._alternatives)
        return self._unsatisfiable(None)

    @cached_property
    def _alternatives(self) -> list[tuple[Assumptions, Mapping[Atom, Integer]]]:
        """The two cases of a product that is 0, if there is one: one factor is 0, or the other is."""
        for c in sorted(self.conditions, key=str):
            found = _factored(c.value) if c.relation == "=" else None
            if found is not None:
                rest = Assumptions(self.effort, self.conditions - {c})
                return [rest._solved(value) for value in found]
        return []

    def _reduced(self, value: Integer) -> Integer:
        """Returns a polynomial modulo the equations: their leading products are replaced."""
        for c in sorted(self.conditions, key=str) if len(value.terms) > 1 else ():
            if c.relation == "=":
                value = remainder_of(value, c.value)
        return value

    def _solved(self, zero: Integer) -> tuple[Assumptions, Mapping[Atom, Integer]]:
        """Returns the assumptions where an integer is 0, solved for a variable if that is possible."""
        for atom in sorted(zero.atoms, key=str):
            c = zero.coefficient(atom)
            if c in (1, -1) and not atom.parts():
                values = {atom: integer(0) - (zero - c * _of(atom)) * c}
                return self.substitute(values), values
        return self.assuming(Condition("=", zero)), {}

    def _follows_at_once(self, wanted: Condition) -> bool:
        """True for a value that is one of the assumed bounds, or more."""
        if wanted.relation != ">=":
            return False
        if self._is_nonnegative(wanted.value):
            return True
        return any(c.relation == ">=" and self._is_nonnegative(wanted.value - c.value) for c in self.conditions)

    def _is_nonnegative(self, value: Integer) -> bool:
        return all(c > 0 and all(atom in self.nonnegative for atom in m) for m, c in value.terms)

    def _unsatisfiable(self, wanted: Condition | None) -> bool:
        """True if the assumptions contradict each other, or the negation of `wanted`."""
        key = self.conditions, wanted
        if key not in self.effort.answers:
            self.effort.check()
            self.effort.queries += 1
            conditions = [*sorted(self.conditions, key=str), *([] if wanted is None else [wanted.negated])]
            self.effort.answers[key] = _contradictory(conditions)
        return self.effort.answers[key]

    def example(self, rng: random.Random, largest: int = 4) -> Mapping[str, int] | None:
        """Returns small values of the variables that meet the assumptions, drawn at random; None if none was found."""
        for _ in range(_DRAWS):
            self.effort.check()
            found = self._drawn(rng, largest)
            if found is not None:
                return found
        return None

    def _drawn(self, rng: random.Random, largest: int) -> Mapping[str, int] | None:
        """Draws one variable after another, within the bounds that conditions of it alone leave."""
        atoms = sorted({a for c in self.conditions for a in c.value.atoms if not a.parts()}, key=str)
        rng.shuffle(atoms)
        rest, found = sorted(self.conditions, key=str), dict[str, int]()
        while atoms:
            alone = [c for c in rest if c.relation == "=" and sum(not a.parts() for a in c.value.atoms) == 1]
            atom = next((a for c in alone for a in c.value.atoms if not a.parts()), atoms[-1])
            low, high = _range_of(atom, rest, largest)
            if low > high:
                return None
            values = {atom: integer(rng.randint(low, high))}
            atoms.remove(atom)
            found[atom.key] = values[atom].constant or 0
            rest = [c for c in (c.substitute(values) for c in rest) if c.known is not True]
            if any(c.known is False for c in rest):
                return None
        return found


def _range_of(atom: Atom, conditions: Sequence[Condition], largest: int) -> tuple[int, int]:
    """Returns the least and the most that a variable may be, by the conditions of it alone."""
    low, high = -1, None
    for c in conditions:
        factor = c.value.coefficient(atom)
        rest = (c.value - _of(atom) * factor).constant if factor else None
        if not factor or rest is None or c.relation == "!=":
            continue
        if c.relation == "=" and rest % factor == 0:
            return -rest // factor, -rest // factor
        if factor > 0:
            low = max(low, -(rest // factor))
        else:
            high = rest // -factor if high is None else min(high, rest // -factor)
    return low, low + largest if high is None else min(high, max(low, 0) + largest)


def _of(atom: Atom) -> Integer:
    return Integer((((atom,), 1),), atom.key)


def _factored(value: Integer) -> tuple[Integer, Integer] | None:
    """Returns a variable and the rest, if the variable is a factor of the whole polynomial."""
    for atom in value.terms[0][0] if value.terms else ():
        parts = value.linear(atom)
        if parts is not None and not parts[1].terms and not atom.parts() and parts[0].constant is None:
            return _of(atom), parts[0]
    return None


def _variable(name: str) -> Any:
    if name not in _expressions:
        _expressions[name] = z3.Int(name)
    return _expressions[name]


def _contradictory(conditions: Sequence[Condition]) -> bool:
    """True if no integers meet all conditions.

    Products of variables are variables of their own, so that the questions are linear, and z3 answers all of them. What
    is known of products is added: their signs, and products of two bounds.
    """
    solver = z3.SolverFor("QF_LIA")
    solver.set("rlimit", _LIMIT)
    facts = [*conditions, *_definitions(conditions)]
    solver.add(*map(_formula, facts))
    if solver.check() == z3.unsat:
        return True
    products = _products(facts)
    if not products:
        return False
    solver.add(*map(_formula, products))
    return bool(solver.check() == z3.unsat)


def _products(conditions: Sequence[Condition]) -> list[Condition]:
    """Returns what follows for products of variables in the conditions from bounds of their factors."""
    wanted = {m for c in conditions for m, _ in c.value.terms if len(m) > 1}
    bounds = [c.value for c in conditions if c.relation == ">="]
    atoms = {a for m in wanted for a in m}
    bounds = [b for b in bounds if not b.atoms.isdisjoint(atoms)]
    found = []
    for k, (a, b) in enumerate((a, b) for i, a in enumerate(bounds) for b in bounds[i:]):
        if k > _PAIRS:
            break
        both = a * b
        if all(m in wanted or len(m) < 2 for m, _ in both.terms):
            found.append(Condition(">=", both))
    return found


def _linear_product(monomial: Sequence[Atom]) -> Any:
    return _variable("*".join(atom.key for atom in monomial))


def _expression(value: Integer) -> Any:
    if f"={value.key}" not in _expressions:
        terms = [z3.IntVal(c) * _linear_product(m) if m else z3.IntVal(c) for m, c in value.terms]
        _expressions[f"={value.key}"] = z3.Sum(*terms) if terms else z3.IntVal(0)
    return _expressions[f"={value.key}"]


def _formula(condition: Condition) -> Any:
    value = _expression(condition.value)
    if condition.relation == ">=":
        return value >= 0
    return value == 0 if condition.relation == "=" else value != 0


def _definitions(conditions: Iterable[Condition]) -> list[Condition]:
    """Returns what defines the quotients in conditions, whose divisors are known to be at least 1."""
    given = list(conditions)
    atoms = set[Atom]().union(*(c.value.atoms for c in given))
    lower = {c.value for c in given if c.relation == ">="}
    found = []
    for atom in sorted(atoms, key=lambda a: a.key):
        if isinstance(atom, Quotient) and _is_positive(atom.divisor, lower):
            rest = atom.dividend - atom.divisor * _of(atom)
            found += [at_least(rest, 0), less(rest, atom.divisor)]
            if atom.dividend in lower or _is_sum_of(atom.dividend, lower):
                found.append(at_least(_of(atom), 0))
    return found


def _is_positive(value: Integer, lower: Collection[Integer]) -> bool:
    """True if a value less 1 is a sum of what is assumed to be at least 0."""
    return value - 1 in lower or _is_sum_of(value - 1, lower) or any(_is_sum_of(value - 1 - b, lower) for b in lower)


def _is_sum_of(value: Integer, lower: Collection[Integer]) -> bool:
    return all(c > 0 and all(_of(a) in lower or _of(a) - 1 in lower for a in m) for m, c in value.terms)
