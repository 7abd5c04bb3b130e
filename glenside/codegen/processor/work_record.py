"""Work: the amounts of each kind of work of a nest, from which its time is predicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from math import hypot


@dataclass(frozen=True)
class Work:
    """The work of one or several nests on one thread; or the cost of one unit of each kind, in nanoseconds.

    cycles     issue cycles of the steps, if all operands are in L1
    matrices   cycles of a matrix unit, likewise
    steps      steps of loops that are not unrolled
    stores     vectors stored; a scalar, or a shorter vector, counts as a fraction of a vector
    scattered  elements that are gathered or scattered one by one
    divisions  quotients and roots, of vectors or scalars
    functions  exp, tanh and the like, of vectors or scalars
    near       bytes from L2
    far        bytes of non-constant buffers from beyond L2
    weights    bytes of constants from beyond L2
    memory     bytes of non-constant buffers from beyond the last-level cache
    memory_weights  bytes of constants from beyond the last-level cache
    nests      number of nests
    """

    cycles: float = 0
    matrices: float = 0
    steps: float = 0
    stores: float = 0
    scattered: float = 0
    divisions: float = 0
    functions: float = 0
    near: float = 0
    far: float = 0
    weights: float = 0
    memory: float = 0
    memory_weights: float = 0
    nests: float = 0

    def amounts(self) -> tuple[float, ...]:
        return tuple(getattr(self, name) for name in NAMES)

    def plus(self, other: Work, times: float = 1) -> Work:
        return Work(*(a + times * b for a, b in zip(self.amounts(), other.amounts(), strict=True)))

    def parts(self, nanoseconds: Work) -> tuple[float, float, float]:
        """Returns the nanoseconds of computing, of memory stalls that may overlap it, and of overhead.

        nanoseconds  cost of one unit of each kind of work
        """
        found = [0.0, 0.0, 0.0]
        for part, amount, price in zip(_PARTS, self.amounts(), nanoseconds.amounts(), strict=True):
            found[part] += amount * price
        return found[0], found[1], found[2]

    def priced(self, nanoseconds: Work) -> float:
        """Returns the predicted nanoseconds, given the cost of one unit of each kind of work.

        Computing and memory stalls overlap in part, least if they are equal: the root of the sum of their squares. A
        matrix unit does not overlap them: their sum.
        """
        computing, waiting, alone = self.parts(nanoseconds)
        return (computing + waiting if self.matrices else hypot(computing, waiting)) + alone


def sum_of(works: Iterable[tuple[Work, float]]) -> Work:
    """Returns the sum of works, each times its factor."""
    return reduce(lambda found, own: found.plus(*own), works, Work())


NAMES = tuple(field.name for field in fields(Work))
_WAITING = ("near", "far", "weights", "memory", "memory_weights")
_PARTS = tuple(1 if name in _WAITING else 2 if name == "nests" else 0 for name in NAMES)
"""The part of `Work.parts` to which each kind of work belongs."""


def overlapped(amounts: Sequence[Sequence[float]], nanoseconds: Work) -> list[list[float]]:
    """Linearizes `Work.priced` at given unit costs: scales each amount by the fraction of it that is not overlapped."""
    found = []
    for own in amounts:
        work = Work(*own)
        computing, waiting, _ = work.parts(nanoseconds)
        whole = hypot(computing, waiting) or 1.0
        shares = (1.0, 1.0, 1.0) if work.matrices else (computing / whole, waiting / whole, 1.0)
        found.append([amount * shares[part] for part, amount in zip(_PARTS, own, strict=True)])
    return found
