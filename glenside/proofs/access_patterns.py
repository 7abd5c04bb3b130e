"""Access patterns of known rank and unknown sizes, and the case in which operators are applied to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

from glenside.ir.operators import CATEGORY_RESULT
from glenside.ir.types import AccessType, Dims
from glenside.proofs.assumptions import Assumptions, Effort
from glenside.proofs.elements import Element, Range
from glenside.proofs.symbolic_integers import (
    Atom,
    Condition,
    Integer,
    Number,
    at_least,
    integers,
    less,
    plain,
    same,
    variable,
    variable_of,
)

assert CATEGORY_RESULT  # the operators are loaded
Index: TypeAlias = tuple[Integer, ...]
T = TypeVar("T")


class Impossible(Exception):
    """The facts do not hold together, or an operator refuses its operands whatever the sizes."""


class NoSuchCase(Impossible):
    """One of the two cases of a distinction contradicts the facts."""


class NotExpressible(Exception):
    """The prover has no meaning for a part of a clause."""


@dataclass(frozen=True, eq=False)
class Access:
    """A type with symbolic sizes, and the element at an index."""

    type: AccessType
    at: Callable[[Index], Element]

    @property
    def dims(self) -> Index:
        return integers(self.type.dims)

    @property
    def split(self) -> int:
        return self.type.split

    @property
    def rank(self) -> int:
        return len(self.type.dims)

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> Index:
        return self.dims[: self.split]

    @property
    def item(self) -> Index:
        return self.dims[self.split :]


def access_type(dims: Iterable[Number], split: int, dtype: str) -> AccessType:
    """Returns a type with symbolic sizes: the type rules of operators are sums and products, which these have."""
    return AccessType(Dims(cast("Iterable[Any]", dims)), split, dtype)


class Choices:
    """A depth-first walk over all alternatives: each run makes the choices of a script, and the next run the next."""

    def __init__(self) -> None:
        self._script: list[int] = []
        self._counts: list[int] = []
        self._at = self._reached = 0

    def choose(self, options: Iterable[T]) -> T:
        """Returns the option of this run. Raises Impossible if there are none."""
        among = list(options)
        if not among:
            raise Impossible("no choice")
        if self._at == len(self._script):
            self._script.append(0)
        self._counts[self._at : self._at + 1] = [len(among)]
        self._at += 1
        self._reached = max(self._reached, self._at)
        return among[self._script[self._at - 1]]

    def skip(self) -> None:
        """Passes over a choice that does not matter; it did if the run started without what is now known."""
        if self._at == len(self._script):
            self.choose((None,))
        else:
            self._at += 1
            self._reached = max(self._reached, self._at)

    def restart(self) -> None:
        """Starts the same run again: it may end earlier, for what is known from later choices."""
        self._at = 0

    def advance(self) -> bool:
        """Moves to the next run; False if there is none."""
        del self._script[self._reached :], self._counts[self._reached :]
        while self._script and self._script[-1] + 1 >= self._counts[len(self._script) - 1]:
            self._script.pop()
        if self._script:
            self._script[-1] += 1
        del self._counts[len(self._script) :]
        self._at = self._reached = 0
        return bool(self._script)


class Case:
    """Choices of ranks, splits and axes, and what is assumed under them.

    On the left side of an equation the requirements of operators are assumed; on the right side they are owed.
    Equations between sizes are solved: after `restarted` each size is written in the free ones.
    """

    def __init__(self, choices: Choices, effort: Effort, dtype: str, max_rank: int) -> None:
        self.choices, self.effort, self.dtype, self.max_rank = choices, effort, dtype, max_rank
        self.solved: dict[Atom, Integer] = {}
        self.restarted()

    def restarted(self) -> None:
        """Starts again with the equations that were solved."""
        self.choices.restart()
        self.assumed: list[Condition] = []
        self.owed: list[Condition] = []
        self.unsolved = False
        self.owing = False
        self._ranges: dict[Atom, Condition] = {}

    def size(self, name: str) -> Integer:
        """Returns the size of that name, at least 0."""
        n = self.number(name)
        self.assume(Condition(">=", n))
        return n

    def number(self, name: str) -> Integer:
        """Returns the integer of that name."""
        n = variable(name)
        return n.substitute(self.solved)

    def bound(self, sizes: Sequence[Number]) -> list[Range]:
        """Returns new bound variables for axes of these sizes."""
        first = len(self._ranges)
        found = [(variable(f"q{first + k}"), n) for k, n in enumerate(integers(sizes))]
        self._ranges |= {variable_of(v): less(v, n) for v, n in found}
        return found

    def inside(self, index: Iterable[Integer]) -> Assumptions:
        """Returns the assumptions where an element at an index exists: its bound variables are within their ranges."""
        bound = set[Atom]().union(*(i.atoms for i in index)) & self._ranges.keys()
        found = self.known
        for atom in sorted(bound, key=str):
            found = found.assuming(at_least(variable_of_atom(atom), 0), self._ranges[atom])
        return found

    def need(self, holds: bool) -> None:
        """Raises Impossible unless the ranks, splits and axes are right."""
        if not holds:
            raise Impossible("an operator refuses its operands")

    def require(self, *conditions: Condition) -> None:
        """Assumes what an operator requires, or owes it on the right side. Raises Impossible."""
        for condition in conditions:
            if not self.owing:
                self.assume(condition)
            elif condition.known is not True:
                self.owed.append(condition)

    def require_equal(self, a: Sequence[Number], b: Sequence[Number]) -> None:
        """Requires equal sizes of as many axes. Raises Impossible."""
        self.need(len(a) == len(b))
        self.require(*map(same, a, b))

    def assume(self, condition: Condition) -> None:
        """Adds an assumption; solves an equation for a variable. Raises Impossible if it is false."""
        condition = condition.substitute(self.solved)
        if condition.known is False:
            raise Impossible("an assumption is false")
        if condition.known is True:
            return
        if condition.relation == "=" and self._solve(condition.value):
            self.unsolved = True
            return
        self.assumed.append(condition)

    def _solve(self, value: Integer) -> bool:
        for monomial, c in value.terms:
            if len(monomial) == 1 and c in (1, -1) and not monomial[0].parts():
                atom = monomial[0]
                if value.coefficient(atom) == c:
                    solution = variable_of_atom(atom) - value * c
                    self.solved = {v: n.substitute({atom: solution}) for v, n in self.solved.items()} | {atom: solution}
                    return True
        return False

    def decide(self, condition: Condition) -> bool:
        """Distinguishes two cases; assumes the condition or its negation. Returns True in the first."""
        holds = self.choices.choose((True, False))
        try:
            self.assume(condition if holds else condition.negated)
        except Impossible:
            raise NoSuchCase("a case distinction contradicts the facts") from None
        return holds

    @property
    def known(self) -> Assumptions:
        """The assumptions so far."""
        return Assumptions(self.effort).assuming(*(c.substitute(self.solved) for c in self.assumed))

    def count(self, size: Number) -> int | None:
        """Returns a size as an int, if it is known."""
        n = plain(size.substitute(self.solved) if isinstance(size, Integer) else size)
        return n if isinstance(n, int) else None


def variable_of_atom(atom: Atom) -> Integer:
    """Returns the integer that is one variable."""
    return variable(atom.key)


__all__ = ["Access", "Case", "Choices", "Impossible", "Index", "NotExpressible", "access_type", "variable_of"]
