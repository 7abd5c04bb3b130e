"""Work: what a nest asks of a processor, in numbers that a price may be put on."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Work:
    """What a nest, or several, asks of one thread; or what one of each takes, in nanoseconds.

    cycles     in which its steps are issued, if all that they read is in the nearest cache
    steps      of loops that are not unrolled
    scattered  elements that are read or written one by one
    divisions  quotients and roots, of vectors or numbers
    functions  exp, tanh and the like, of vectors or numbers
    near       bytes from the second cache
    far        bytes of what is computed, from behind it
    weights    bytes of constants, from there
    memory     bytes of what is computed that the last cache has not either
    memory_weights  bytes of constants that it has not
    nests      how many they are
    """

    cycles: float = 0
    steps: float = 0
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

    def priced(self, nanoseconds: Work) -> float:
        """What it takes, where one of each takes so many nanoseconds."""
        return sum(a * b for a, b in zip(self.amounts(), nanoseconds.amounts(), strict=True))


NAMES = tuple(field.name for field in fields(Work))
