"""Records branch outcomes: the outcome of each comparison, and the operand that each maximum took.

A difference behind a branch outcome that no input reached is not found, so the report names such outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any, NamedTuple

import numpy as np

from glenside.analysis.integer_valued import whole_terms
from glenside.analysis.ranges import EVERY, Range, ranges
from glenside.check.branch_outcomes import CAST, ROUNDED, WATCHED, Function, cast_possible, cast_taken
from glenside.ir.dtypes import REALS
from glenside.ir.operand import Array
from glenside.ir.operators.casting import cast
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.term import Term, postorder
from glenside.semantics import Arithmetic

_SAMPLE = 6  # elements of each axis in the first look
_MANY = 1 << 12  # elements up to which a look at all costs no more than a sample
Sides = list[int]
"""For each branch outcome, the number of rounds that reached it."""


class Missing(NamedTuple):
    """A branch outcome that no round reached, although some input may reach it."""

    term: Term
    primitive: str
    side: int

    def __str__(self) -> str:
        words = CAST if self.primitive == "cast" else WATCHED[self.primitive].words
        kind = self.term.attributes[0] if self.term.attributes else self.term.operator.name
        dims = " x ".join(map(str, self.term.access.dims)) or "1"
        return f"{self.primitive} of {kind}, {dims}, never {words[self.side]}"


class Branches:
    """The branch outcomes reached so far, by term and primitive; rounds are counted up to the number `wanted`."""

    def __init__(self, roots: Sequence[Term], wanted: int = 1) -> None:
        self.roots, self.wanted = roots, wanted
        self._term: Term | None = None
        self._settled: dict[tuple[Term, str], Sides] = {}
        """Counts of each outcome; an outcome that cannot be reached has the count that is wanted."""
        self._done: set[tuple[Term | None, str]] = {(None, name) for name in (*WATCHED, "cast")}
        """Terms and primitives whose counts are complete. This set is looked up for each operation of each round."""

    def watched(self, arithmetic: Arithmetic) -> None:
        """Instruments the primitives and the casts of an arithmetic, so that they record branch outcomes."""
        functions = {name: function_of(arithmetic, name) for name in WATCHED}
        arithmetic.own = {**arithmetic.own, **{n: partial(self._run, n, f) for n, f in functions.items()}}
        vars(arithmetic)["cast"] = partial(self._cast, arithmetic.cast)
        arithmetic.meanings.clear()  # those refer to the primitives before

    def begin(self, term: Term | None) -> None:
        """Attributes the outcomes from now on to a term; with None, outcomes are not recorded."""
        self._term = term

    def _run(self, name: str, function: Function, *operands: Array) -> Array:
        place = self._term, name
        if place not in self._done and all(operand.size for operand in operands):
            self._look(place, len(WATCHED[name].words), partial(WATCHED[name].taken, function), *operands)
        return function(*operands)

    def _cast(self, function: Function, a: Array, dtype: str) -> Array:
        place = self._term, "cast"
        if dtype not in REALS and place not in self._done and a.size and _casts(self._term):
            self._look(place, len(CAST), partial(cast_taken, dtype=dtype), a)
        return function(a, dtype)

    def _look(self, place: tuple[Any, str], count: int, taken: Callable[..., Sequence[Any]], *operands: Array) -> None:
        """Counts the outcomes that elements reach, out of `count` outcomes, unless all were reached often enough."""
        sides = self._settled.setdefault(place, [0] * count)
        wanted = [times < self.wanted for times in sides]
        if any(wanted):
            found = _found(wanted, taken, *operands)
            sides[:] = [times + bool(now) for times, now in zip(sides, found, strict=True)]
        if min(sides) >= self.wanted:
            self._done.add(place)

    def times(self, goal: Missing) -> int:
        """Returns the number of rounds that reached an outcome, up to the number wanted."""
        return self._settled[goal.term, goal.primitive][goal.side]

    def counts(self) -> list[tuple[int, str, Sides]]:
        """Returns the counts for another process with the same roots: (index of the term, primitive, counts)."""
        place = {term: i for i, term in enumerate(self.order)}
        return [(place[term], name, sides) for (term, name), sides in self._settled.items()]

    def add(self, counts: Sequence[tuple[int, str, Sides]]) -> None:
        """Merges the counts that another process returned from `counts`."""
        for place, name, sides in counts:
            known = self._settled.setdefault((self.order[place], name), [0] * len(sides))
            known[:] = map(max, known, sides)

    @cached_property
    def order(self) -> list[Term]:
        """All terms in postorder, so that processes agree on indices."""
        return list(postorder(*self.roots))

    def missing(self) -> list[Missing]:
        """Returns the outcomes that no round reached, without those that no input can reach."""
        return self._below(1)

    def rare(self) -> list[Missing]:
        """Returns the reachable outcomes that fewer rounds reached than are wanted, the rarest first."""
        return sorted(self._below(self.wanted), key=self.times)

    def places(self) -> list[Missing]:
        """Returns the first outcome of each term and primitive that were observed."""
        return [Missing(term, primitive, 0) for term, primitive in self._settled]

    def _below(self, wanted: int) -> list[Missing]:
        if all(min(sides) >= wanted for sides in self._settled.values()):
            return []
        for place, sides in self._settled.items():
            if not all(sides):
                possible = self._possible.get(place, [1] * len(sides))
                sides[:] = [times if may else self.wanted for times, may in zip(sides, possible, strict=True)]
        return [
            Missing(term, primitive, side)
            for (term, primitive), sides in self._settled.items()
            for side, times in enumerate(sides)
            if times < wanted
        ]

    @cached_property
    def _possible(self) -> dict[tuple[Term, str], Sides]:
        found: dict[tuple[Term, str], Sides] = {}
        whole = whole_terms(*self.roots)

        def seen(term: Term, primitive: str, arguments: Sequence[Range]) -> None:
            if primitive not in WATCHED:
                return
            possible = list(WATCHED[primitive].possible(*arguments))
            if primitive in ROUNDED and str(term.attributes[0]) == primitive and term.children[0] in whole:
                possible = [primitive != "round", False]
            known = found.setdefault((term, primitive), [0] * len(possible))
            known[:] = map(max, known, map(int, possible))

        for term, _ in (known := ranges(*self.roots, seen=seen)).items():
            if term.operator is cast and term.access.dtype not in REALS:
                child = term.children[0]
                given = known.get(child, EVERY), term.access.dtype, child.access.dtype, child in whole
                found[term, "cast"] = list(map(int, cast_possible(*given)))
        return found


def places(of: Sequence[Term], layers: Sequence[Term]) -> Callable[..., list[int]]:
    """Returns a function from layers to the indices in `of` of the terms inside them, without those of other layers."""
    inside: dict[Term, int] = {}  # one bit for each of the terms
    for place, term in enumerate(of):
        inside[term] = inside.get(term, 0) | 1 << place
    others = set(layers)
    for term in postorder(*layers) if of else ():
        for child in term.children:
            if child not in others:
                inside[term] = inside.get(term, 0) | inside.get(child, 0)

    def within(*some: Term) -> list[int]:
        found = reduce(or_, (inside.get(layer, 0) for layer in some))
        return [place for place in range(len(of)) if found >> place & 1]

    return within


def _casts(term: Term | None) -> bool:
    """True if the term is a cast itself, rather than a term that casts its accumulator."""
    return term is not None and term.operator is cast


def function_of(arithmetic: Arithmetic, name: str) -> Function:
    """Returns the function that a primitive is in an arithmetic."""
    primitive = PRIMITIVES[name]
    if name in arithmetic.own:
        return arithmetic.own[name]
    if primitive.arithmetic is not None:
        return partial(primitive.arithmetic, arithmetic)
    return _select if name == "select" else primitive.numpy


def _select(condition: Array, then: Array, otherwise: Array) -> Array:
    return np.where(condition != 0, then, otherwise)


def _found(wanted: Sequence[bool], taken: Callable[..., Sequence[Any]], *operands: Array) -> Sequence[Any]:
    """Returns the outcomes that elements reach: of a sample first, and of all if the sample lacks a wanted outcome."""
    if max(operand.size for operand in operands) > _MANY:
        arrays = np.broadcast_arrays(*operands)
        steps = tuple(slice(None, None, max(1, size // _SAMPLE)) for size in arrays[0].shape)
        found = taken(*(a[steps] for a in arrays))
        if not any(want and not now for want, now in zip(wanted, found, strict=True)):
            return found
    return taken(*operands)
