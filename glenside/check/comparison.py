"""Running a program and looking at some of its terms on the way, and comparing what was seen: by digest, so that one of
the two values need not be kept, and element by element.
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

from glenside.check.order import depends_on_order
from glenside.check.places import Places
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
    """The deadline has passed."""


@dataclass(frozen=True)
class Trial:
    """One set of numbers: the arithmetic and the values of the tensors."""

    arithmetic: Arithmetic
    values: Mapping[str, Array]
    begin: Callable[[Term | None], None] = lambda term: None  # is told of each term before it is evaluated
    places: Places = field(default_factory=Places)


class Clock:
    """Counts evaluated terms, reports them, and stops at the deadline."""

    def __init__(self, total: int, deadline: float | None, progress: Progress | None) -> None:
        self.done, self.total, self.deadline, self.progress = 0, total, deadline, progress

    def tick(self) -> None:
        """One more term is evaluated. Raises OutOfTime."""
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)
        self.look()

    def look(self) -> None:
        """Raises OutOfTime when the deadline has passed."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTime


def steps(roots: Sequence[Term], given: Mapping[Term, Any] | None = None) -> list[Term]:
    """The terms between which a run may stop: those that compute, and are not given."""
    return [*_computed(tuple(roots), frozenset(given or ()))]


@lru_cache(maxsize=8)
def _computed(roots: Sequence[Term], given: Container[Term]) -> Mapping[Term, bool]:
    """The same, and of each whether it depends on order: a check asks for each set of numbers."""
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
    """Evaluate the roots, and let `look` see each of them as soon as it is computed, or was given. Raises OutOfTime.

    Returns the values of those to `keep`.
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
_NUMBER = 16  # bytes of one that knows its order


def shared(first: Iterable[Term], second: Iterable[Term]) -> list[Term]:
    """What the second roots read, or are, that the first ones have too: the smallest such arrays, up to 64 MiB."""
    known, own = set(postorder(*first)), set[Term]()
    read: dict[Term, None] = {}
    stack = list(second)
    while stack:
        term = stack.pop()
        if term in known and term.operator is not access_product:  # which is no array as long as it is not in memory
            if isinstance(term.type, AccessType):
                read[term] = None
        elif term not in own:
            own.add(term)
            stack += term.children
    found = sorted(read, key=lambda term: term.access.size)
    total = accumulate(_NUMBER * term.access.size for term in found)
    return [term for term, taken in zip(found, total, strict=True) if taken <= _HELD_BYTES]


def digest(value: Any, arithmetic: Arithmetic = NATIVE) -> bytes:
    """A hash of dims, dtype and elements; equal values have equal digests. Tuples count item by item."""
    state = hashlib.blake2b(digest_size=32)
    for array in arrays(value):
        hash_array(state, arithmetic.identity(array))
    return state.digest()


def difference(expected: Any, found: Any, arithmetic: Arithmetic = NATIVE) -> str | None:
    """None for equal values, else how many elements differ and where the first one is. Values are of one type."""
    pairs = list(zip(arrays(expected), arrays(found), strict=True))
    for position, (a, b) in enumerate(pairs):
        unequal = np.asarray(arithmetic.identity(a) != arithmetic.identity(b))
        count = int(np.count_nonzero(unequal))
        if count:
            first = tuple(map(int, np.unravel_index(int(np.argmax(unequal)), unequal.shape)))
            part = f"item {position} of the tuple " if len(pairs) > 1 else ""
            return f"{part}differs in {count:,} of {unequal.size:,} elements, first at {first}"
    return None
