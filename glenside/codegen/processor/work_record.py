"""Work: what a nest asks of a processor, in numbers that a price may be put on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from math import hypot


@dataclass(frozen=True)
class Work:
    """What a nest, or several, asks of one thread; or what one of each takes, in nanoseconds.

    cycles     in which its steps are issued, if all that they read is in the nearest cache
    matrices   cycles of a unit for matrices, in the same way
    steps      of loops that are not unrolled
    stores     vectors that are stored, and numbers by the part of one that they are
    scattered  elements that are read or written one by one
    divisions  quotients and roots, of vectors or numbers
    functions  exp, tanh and the like, of vectors or numbers
    near       bytes from the second cache
    far        bytes of what is computed, from behind it
    weights    bytes of constants, from there
    memory     bytes of what is computed that the last cache has not either
    memory_weights  bytes of constants that it has not
    fetched    bytes that another thread's cache has
    nests      how many they are
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
    fetched: float = 0
    nests: float = 0

    def amounts(self) -> tuple[float, ...]:
        return tuple(getattr(self, name) for name in NAMES)

    def plus(self, other: Work, times: float = 1) -> Work:
        return Work(*(a + times * b for a, b in zip(self.amounts(), other.amounts(), strict=True)))

    def parts(self, nanoseconds: Work) -> tuple[float, float, float]:
        """What it takes to compute, to wait for memory meanwhile, and to do neither, where one of each takes so many
        nanoseconds.
        """
        found = [0.0, 0.0, 0.0]
        for part, amount, price in zip(_PARTS, self.amounts(), nanoseconds.amounts(), strict=True):
            found[part] += amount * price
        return found[0], found[1], found[2]

    def priced(self, nanoseconds: Work) -> float:
        """What it takes, where one of each takes so many nanoseconds: a processor computes while it waits for memory,
        but not all the time, which makes it the more the nearer one comes to the other: the root of their squares. A
        unit for matrices does nothing while it waits.
        """
        computing, waiting, alone = self.parts(nanoseconds)
        return (computing + waiting if self.matrices else hypot(computing, waiting)) + alone


def sum_of(works: Iterable[tuple[Work, float]]) -> Work:
    """Of several works, each so many times."""
    return reduce(lambda found, own: found.plus(*own), works, Work())


NAMES = tuple(field.name for field in fields(Work))
_WAITING = ("near", "far", "weights", "memory", "memory_weights", "fetched")
_PARTS = tuple(1 if name in _WAITING else 2 if name == "nests" else 0 for name in NAMES)
"""To which of what it takes each kind of work belongs."""


def overlapped(amounts: Sequence[Sequence[float]], nanoseconds: Work) -> list[list[float]]:
    """The amounts of several works, each as often as it counts in what `priced` tells by prices near those: a kind of
    work of which little is hidden behind others counts nearly whole.
    """
    found = []
    for own in amounts:
        work = Work(*own)
        computing, waiting, _ = work.parts(nanoseconds)
        whole = hypot(computing, waiting) or 1.0
        shares = (1.0, 1.0, 1.0) if work.matrices else (computing / whole, waiting / whole, 1.0)
        found.append([amount * shares[part] for part, amount in zip(_PARTS, own, strict=True)])
    return found
