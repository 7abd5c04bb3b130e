"""Choices beside the one that prices tell, lowered and compared by their cycles, where programs are small.

Prices are of parts of layers and of pairs of them. Of networks of few layers, whose cycles are mostly those in which
units wait for each other, programs take up to twice what others of the same space take; and these are made in no time.

A choice is ruled out where it takes too long at least, or where some unit of its program, as far as that is written, is
busy for too long. So most programs end early, once one is there that takes few cycles: first those are looked at that
differ from the best one in one answer, and then all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod

from glenside.npu.program.program import Choices, NpuProgram

Way = tuple[int, ...]
"""Of each question the answer, by number."""
_INSTRUCTIONS, _FEW, _WAYS = 60_000, 15, 4_096
"""Of all programs that are made, the most of these; of how many programs that is worth a try; and the most choices that
are all looked at.
"""


def is_small(program: NpuProgram) -> bool:
    """True if the program has so few instructions that others are worth a try."""
    return _are_few(program.size)


def _are_few(instructions: int) -> bool:
    return instructions * _FEW <= _INSTRUCTIONS


@dataclass(frozen=True)
class Evaluation:
    """The cycles of a choice, infinite where it is no better than what is there; the instructions that were written to
    know that.
    """

    cycles: float
    written: int = 0


@dataclass
class Search:
    """For the choice of the fewest cycles.

    answers  how many there are of each question
    told     what a choice takes, or that it takes no fewer than so many cycles
    least    what it takes at least, soon known
    size     instructions of a program
    best     the cycles of one that is there; found is a better choice
    """

    answers: Sequence[int]
    told: Callable[[Way, int], Evaluation]
    least: Callable[[Way], int]
    size: int
    best: int
    found: Way | None = None

    def __post_init__(self) -> None:
        self.known: dict[Way, float] = {}
        self.is_worth_it = _are_few(self.size)
        self.left = _INSTRUCTIONS if self.is_worth_it else 0

    @property
    def ways(self) -> int:
        """Returns the number of choices."""
        return prod(self.answers)

    def look(self, start: Way) -> None:
        """At all that differ in one answer from the best, from that one on, until none is better; then at the others,
        as long as there are instructions left.
        """
        best = start
        while self.left > 0:
            found = min([best, *self._near(best)], key=self._cycles)
            if found == best:
                break
            best = found
        if self.left > 0 and self.ways <= _WAYS:
            every = (way for way in product(*map(range, self.answers)) if way not in self.known)
            apart = sorted((sum(map(int.__ne__, way, best)), self.least(way), way) for way in every)
            for _, _, way in apart:
                self._cycles(way)

    def choices(self, least: Callable[[], int]) -> Choices:
        """Returns the search space; `least` computes a lower bound on any choice."""
        if len(self.known) == self.ways:
            return Choices(self.ways, self.ways, self.best)
        if self.ways <= _WAYS and self.is_worth_it:
            every = (way for way in product(*map(range, self.answers)) if way not in self.known)
            return Choices(self.ways, len(self.known), min(self.best, *map(self.least, every)))
        tried = min(self.ways - 1, max(1, len(self.known)))  # a program that is too large was not compared
        return Choices(self.ways, tried, min(self.best, least()))

    def _near(self, way: Way) -> Iterator[Way]:
        for place, count in enumerate(self.answers):
            yield from ((*way[:place], other, *way[place + 1 :]) for other in range(count) if other != way[place])

    def _cycles(self, way: Way) -> float:
        if way in self.known or self.left <= 0:
            return self.known.get(way, inf)
        self.known[way] = inf
        if self.least(way) < self.best:
            told = self.told(way, self.best)
            self.known[way] = told.cycles
            self.left -= told.written
            if told.cycles < self.best:
                self.best, self.found = int(told.cycles), way
        return self.known[way]
