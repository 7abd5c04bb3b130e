"""Which side of each comparison, and which operand of each maximum, a run of a program took.

A program that differs from another only where no number led is not told from it, so what was never reached is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from glenside.analysis.ranges import Range, ranges
from glenside.ir.operand import Array
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.term import Term
from glenside.semantics import Arithmetic

_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")
_CHOSEN = ("min", "max")
_OF_ZERO = ("abs", "sign")
_SAMPLE = 6  # elements of each axis to look at first
Sides = list[bool]


class Missing(NamedTuple):
    """A side that was never taken, where an input may exist that takes it."""

    term: Term
    primitive: str
    first: bool

    def __str__(self) -> str:
        compared = self.primitive in _COMPARED
        words = ("held", "failed") if compared else ("took the first number", "took the second number")
        if self.primitive in _OF_ZERO:
            words = ("was of a number below 0", "was of a number above 0")
        kind = self.term.attributes[0] if self.term.attributes else self.term.operator.name
        dims = " x ".join(map(str, self.term.access.dims)) or "1"
        return f"{self.primitive} of {kind}, {dims}, never {words[0 if self.first else 1]}"


class Branches:
    """The sides that the terms of a comparison took so far: by term and primitive."""

    def __init__(self, roots: Sequence[Term]) -> None:
        self.roots = roots
        self.taken: dict[tuple[Term, str], Sides] = {}
        self._now: dict[str, Sides] = {}
        """Of the term that is being evaluated."""

    def watched(self, arithmetic: Arithmetic) -> None:
        """Let an arithmetic's primitives tell which sides they take."""
        functions: dict[str, Callable[..., Any]] = {
            name: arithmetic.own.get(name, PRIMITIVES[name].numpy) for name in (*_COMPARED, *_CHOSEN, *_OF_ZERO)
        }
        arithmetic.own = {**arithmetic.own, **{n: partial(self._run, n, f) for n, f in functions.items()}}

    def _run(self, name: str, function: Callable[..., Array], *operands: Array) -> Array:
        sides = self._now.setdefault(name, [False, False])
        if not all(sides) and all(operand.size for operand in operands):
            a, b = np.broadcast_arrays(operands[0], operands[1] if len(operands) > 1 else 0)
            if a.size > _SAMPLE**2:
                steps = tuple(slice(None, None, max(1, size // _SAMPLE)) for size in a.shape)
                _note(sides, name, function, a[steps], b[steps])
            if not all(sides):
                _note(sides, name, function, a, b)
        return function(*operands)

    def claim(self, term: Term | None) -> None:
        """What was taken since the last claim was taken by this term; by None, it does not count."""
        now, self._now = self._now, {}
        if term is not None:
            for name, sides in now.items():
                _add(self.taken.setdefault((term, name), [False, False]), sides)

    def missing(self) -> list[Missing]:
        """What was never taken, but for what no input can take."""
        if all(all(sides) for sides in self.taken.values()):
            return []
        return [
            Missing(term, primitive, first)
            for (term, primitive), sides in self.taken.items()
            for first, taken, could in zip(
                (True, False), sides, self._possible.get((term, primitive), (True, True)), strict=True
            )
            if could and not taken
        ]

    @cached_property
    def _possible(self) -> dict[tuple[Term, str], Sides]:
        found: dict[tuple[Term, str], Sides] = {}

        def seen(term: Term, primitive: str, arguments: Sequence[Range]) -> None:
            possible = _possible(primitive, arguments[0], arguments[1] if len(arguments) > 1 else Range(0.0, 0.0))
            known = found.get((term, primitive), possible)
            found[term, primitive] = [x or y for x, y in zip(known, possible, strict=True)]

        ranges(*self.roots, seen=seen)
        return found


def _note(sides: Sides, name: str, function: Callable[..., Array], a: Array, b: Array) -> None:
    """Which sides these numbers take: what a comparison says, or which of two that differ is chosen."""
    if name in _COMPARED:
        holds = np.asarray(function(a, b))
        found = bool(holds.any()), not holds.all()
    else:
        less = a.real < b.real
        differ = a.imag != b.imag if a.dtype.kind == "c" else a != b
        found = bool((less & differ).any()), bool((~less & differ).any())
        found = found[::-1] if name == "max" else found
    _add(sides, found)


def _add(known: Sides, taken: Sequence[bool]) -> None:
    """What was taken before and now."""
    known[:] = [before or now for before, now in zip(known, taken, strict=True)]


def _possible(name: str, a: Range, b: Range) -> Sides:
    """Which sides numbers of these ranges can take."""
    match name:
        case "lt":
            return [a.low < b.high, a.high >= b.low]
        case "le":
            return [a.low <= b.high, a.high > b.low]
        case "gt" | "ge" | "max":
            return _possible({"gt": "lt", "ge": "le", "max": "min"}[name], b, a)
        case "eq" | "ne":
            sides = [a.low <= b.high and b.low <= a.high, not a.low == a.high == b.low == b.high]
            return sides if name == "eq" else sides[::-1]
    return [a.low < b.high, a.high > b.low]
