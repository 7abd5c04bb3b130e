"""Builds both sides of a clause as programs of concrete sizes, and evaluates them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glenside.egraph.clause import Clause
from glenside.egraph.pattern import Call, Pattern, Variable
from glenside.egraph.sorts import ACCESS, columns_of
from glenside.ir.errors import BadInput, TypeMismatch
from glenside.ir.operator import OPERATORS, Kind
from glenside.ir.term import Term, build, make
from glenside.ir.text import print_term
from glenside.ir.types import Dims, Tensor
from glenside.proofs.access_patterns import Access, NotExpressible
from glenside.proofs.assumptions import Assumptions
from glenside.proofs.clause_cases import ClauseCase, lets
from glenside.proofs.symbolic_integers import Integer
from glenside.semantics.interpreter import evaluate


@dataclass(frozen=True)
class Counterexample:
    """Two programs that a clause makes equal, the sizes of their tensors, and how they differ."""

    left: str
    right: str
    shapes: Mapping[str, Sequence[int]]
    difference: str

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {' '.join(map(str, dims))}" for name, dims in self.shapes.items())
        return f"{self.left}\nis not\n{self.right}\nfor {sizes or 'no tensor'}: {self.difference}"


class _Programs:
    """Terms of patterns under values of the sizes."""

    def __init__(self, found: ClauseCase, sizes: Mapping[str, int]) -> None:
        self._found, self._sizes = found, sizes
        self._terms: dict[str, Term] = {}
        self._matrices: dict[str, str] = {}
        self.tensors: dict[str, Tensor] = {}

    def let(self, name: str, pattern: Pattern) -> None:
        """Binds a name of the right side."""
        self._terms[name] = self.term(pattern)

    def term(self, pattern: Pattern) -> Term:
        """Returns the program of a pattern. Raises BadInput where an operator refuses its operands."""
        if isinstance(pattern, Variable):
            if pattern.name not in self._terms:
                form = self._found.form(pattern.name)
                self._terms[pattern.name] = self._leaf(pattern.name) if form is None else self.term(form)
            return self._terms[pattern.name]
        assert isinstance(pattern, Call)
        given = [self.term(a) if a.sort is ACCESS else self._found.value(a) for a in pattern.arguments]
        values: list[Any] = [each if isinstance(each, Term) else self._concrete(each) for each in given]
        if pattern.head.name == "linear-map" and str(given[3]).startswith("?"):
            x, axis, rows, _ = values
            if axis < x.access.rank:
                values[3] = self._matrix(str(given[3]), rows * x.access.dims[axis])
        operator, at, arguments = OPERATORS[pattern.head.name], iter(values), []
        for field in operator.fields:
            parts = [next(at) for _ in columns_of(field)]
            arguments.append(tuple(parts) if field.kind is Kind.ACCESS_SHAPE else parts[0])
        return make(operator, arguments)

    def _matrix(self, name: str, count: int) -> str:
        """Returns the numbers of a matrix of which nothing is known: as many as its first use needs."""
        return self._matrices.setdefault(name, " ".join(str(k % 7 + 1) for k in range(count)))

    def _leaf(self, name: str) -> Term:
        leaf = self._found.leaves[name]
        dims = Dims(self._concrete(n) for n in leaf.dims)
        self.tensors[name] = Tensor(name, dims, leaf.dtype)
        return build("access", build("access-tensor", self.tensors[name]), leaf.split)

    def _concrete(self, value: Any) -> Any:
        if isinstance(value, Integer):
            return value.value(self._sizes)
        if isinstance(value, tuple):
            return Dims(self._concrete(n) for n in value)
        if isinstance(value, str) and value.startswith("?"):
            return "2"  # a text of which nothing is known: a number
        if not isinstance(value, int | str):
            raise NotExpressible(f"a value of {value}")
        return value


def counterexample(
    clause: Clause, pair: tuple[Pattern, Pattern], found: ClauseCase, known: Assumptions, rng: random.Random, tries: int
) -> Counterexample | None:
    """Returns programs of small sizes that differ, None if none of those tried do."""
    found.case.owing = True  # what is computed here is assumed of nothing
    try:
        for _ in range(tries):
            sizes = known.example(rng)
            if sizes is None:
                return None
            if (different := _difference(clause, pair, found, _complete(found, sizes, rng), rng)) is not None:
                return different
    finally:
        found.case.owing = False
    return None


def _complete(found: ClauseCase, sizes: Mapping[str, int], rng: random.Random) -> Mapping[str, int]:
    """Adds values for the variables of which nothing is assumed."""
    values: list[Any] = [*found.values.values(), *(n for leaf in found.leaves.values() for n in leaf.dims)]
    names: set[str] = set()
    for value in values:
        for n in value if isinstance(value, tuple) else (value,):
            if isinstance(n, Integer):
                names |= {a.key for a in n.atoms if not a.parts()}
            elif isinstance(n, Access):
                names |= {a.key for m in n.dims for a in m.atoms if not a.parts()}
    return {**{name: rng.randint(0, 3) for name in sorted(names)}, **sizes}


def _difference(
    clause: Clause, pair: tuple[Pattern, Pattern], found: ClauseCase, sizes: Mapping[str, int], rng: random.Random
) -> Counterexample | None:
    programs = _Programs(found, sizes)
    try:
        left = programs.term(pair[0])
    except (BadInput, TypeMismatch, KeyError, ZeroDivisionError):
        return None  # the sizes do not make a program
    shapes = {name: tuple(t.dims) for name, t in programs.tensors.items()}
    if sum(int(np.prod(d)) for d in shapes.values()) > 1 << 16:
        return None
    try:
        for name, value in lets(clause):
            programs.let(name, value)
        right = programs.term(pair[1])
    except (BadInput, TypeMismatch) as refused:
        return Counterexample(print_term(left), "nothing", shapes, f"the right side is refused: {refused}")
    except (KeyError, ZeroDivisionError):
        return None
    shapes = {name: tuple(t.dims) for name, t in programs.tensors.items()}
    texts = print_term(left), print_term(right)
    if left.type != right.type:
        return Counterexample(*texts, shapes, f"types {left.type} and {right.type}")
    values = {name: _array(t, rng) for name, t in programs.tensors.items()}
    a, b = evaluate([left, right], values)
    x, y = a.astype(np.float64), b.astype(np.float64)
    differ = ~np.isclose(x, y, rtol=1e-3, atol=1e-3, equal_nan=True)
    finite = np.isfinite(x), np.isfinite(y)
    divides = any("elementwise-div" in text for text in texts)  # where the divisor is 0, a quotient is no real number
    where = np.argwhere(differ & (finite[0] & finite[1] if divides else finite[0] | finite[1]))
    if not len(where):
        return None
    at = tuple(map(int, where[0]))
    return Counterexample(*texts, shapes, f"element {at} is {a[at]} and {b[at]}")


def _array(tensor: Tensor, rng: random.Random) -> Any:
    numbers = np.random.default_rng(rng.getrandbits(32)).integers(-4, 5, tuple(tensor.dims))
    return numbers.astype(tensor.dtype)


def witness(clause: Clause, pair: tuple[Pattern, Pattern], found: ClauseCase, rng: random.Random) -> str:
    """Returns a program that the left side matches, and of which both sides were evaluated and are equal."""
    known = found.case.known
    sizes = known.example(rng)
    if sizes is None:
        return ""
    found.case.owing = True
    complete = _complete(found, sizes, rng)
    programs = _Programs(found, complete)
    try:
        text = print_term(programs.term(pair[0]))
        if (different := _difference(clause, pair, found, complete, rng)) is not None:
            raise AssertionError(f"proven, and yet {different}")
    except (BadInput, TypeMismatch, KeyError, ZeroDivisionError):
        return ""
    finally:
        found.case.owing = False
    return text
