"""Evaluates programs, observes chosen terms, and compares values.

Values are compared by digest, where one of the two is not kept, and element by element.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from glenside.check.equal_positions import Places
from glenside.check.order_dependence import depends_on_order
from glenside.ir.operand import Array, arrays
from glenside.ir.operators.products import access_product
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType
from glenside.semantics import Arithmetic, Native
from glenside.semantics.interpreter import evaluate, needed
from glenside.semantics.native import hash_array

NATIVE = Native()
_NOTHING: Array = np.empty(0)
Progress = Callable[[int, int], None]


class OutOfTime(Exception):
    """The error that the deadline has passed."""


@dataclass(frozen=True)
class Trial:
    """The inputs of one round: the arithmetic and the values of the tensors."""

    arithmetic: Arithmetic
    values: Mapping[str, Array]
    begin: Callable[[Term | None], None] = lambda term: None  # is called with each term before it is evaluated
    places: Places = field(default_factory=Places)


class Clock:
    """Counts evaluated terms, reports them, and stops at the deadline."""

    def __init__(self, total: int, deadline: float | None, progress: Progress | None) -> None:
        self.done, self.total, self.deadline, self.progress = 0, total, deadline, progress

    def tick(self) -> None:
        """Counts an evaluated term, and reports progress. Raises OutOfTime."""
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)
        self.look()

    def look(self) -> None:
        """Raises OutOfTime when the deadline has passed."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTime


def steps(roots: Sequence[Term], given: Mapping[Term, Any] | None = None) -> list[Term]:
    """Returns the terms after each of which a run may stop: those that compute and are not given."""
    return [*_computed(tuple(roots), frozenset(given or ()))]


@lru_cache(maxsize=8)
def _computed(roots: Sequence[Term], given: Container[Term]) -> Mapping[Term, bool]:
    """Returns the terms of `steps`, each with whether it depends on order; memoized, since each round needs them."""
    terms = (term for term in needed(roots, given) if term not in given and not term.operator.moves)
    return {term: depends_on_order(term) for term in terms}


def observe(
    roots: Sequence[Term],
    trial: Trial,
    clock: Clock,
    look: Callable[[Term, Any], None],
    given: Mapping[Term, Array] | None = None,
    keep: Sequence[Term] = (),
) -> dict[Term, Array]:
    """Evaluates the roots, and calls `look` with each root as soon as its value is computed or given.

    Returns the values of the terms to `keep`. Raises OutOfTime.
    """
    wanted, kept, given = set(roots), dict.fromkeys(keep, _NOTHING), given or {}

    def watch(term: Term, value: Any) -> None:
        if term in computed:
            clock.tick()
        if computed.get(term):
            for array in (a for a in arrays(value) if a.dtype.kind == "c" and a.flags.writeable):
                trial.places.settle(array)
        if term in kept:
            kept[term] = value
        if term in wanted:
            look(term, value)

    clock.look()
    computed = _computed(tuple(roots), frozenset(given))
    evaluate([*computed, *roots, *kept], trial.values, trial.arithmetic, given=given, watch=watch, begin=trial.begin)
    return kept


_HELD_BYTES = 64 << 20
_NUMBER = 16  # bytes of a residue with its position on the real line


def shared(first: Iterable[Term], second: Iterable[Term]) -> list[Term]:
    """Returns terms of the first roots that the second roots read, or are: the smallest arrays, up to 64 MiB."""
    known, own = set(postorder(*first)), set[Term]()
    read: dict[Term, None] = {}
    stack = list(second)
    while stack:
        term = stack.pop()
        if term in known and term.operator is not access_product:  # which is no array until it is materialized
            if isinstance(term.type, AccessType):
                read[term] = None
        elif term not in own:
            own.add(term)
            stack += term.children
    found = sorted(read, key=lambda term: term.access.size)
    total = accumulate(_NUMBER * term.access.size for term in found)
    return [term for term, taken in zip(found, total, strict=True) if taken <= _HELD_BYTES]


def digest(value: Any, arithmetic: Arithmetic = NATIVE) -> bytes:
    """Returns a hash of dims, dtype and elements, for tuples item by item; equal values have equal digests."""
    state = hashlib.blake2b(digest_size=32)
    for array in arrays(value):
        hash_array(state, arithmetic.identity(array))
    return state.digest()


def difference(expected: Any, found: Any, arithmetic: Arithmetic = NATIVE) -> str | None:
    """Returns None for equal values, else the number of elements that differ and the index of the first.

    Both values have the same type.
    """
    pairs = list(zip(arrays(expected), arrays(found), strict=True))
    for position, (a, b) in enumerate(pairs):
        unequal = np.asarray(arithmetic.identity(a) != arithmetic.identity(b))
        count = int(np.count_nonzero(unequal))
        if count:
            first = tuple(map(int, np.unravel_index(int(np.argmax(unequal)), unequal.shape)))
            part = f"item {position} of the tuple " if len(pairs) > 1 else ""
            return f"{part}differs in {count:,} of {unequal.size:,} elements, first at {first}"
    return None
