"""Lowers the neighbours of the selected choice and compares their exact cycles, if programs are small.

Costs are predicted for parts of layers and for pairs of layers. In networks of few layers units mostly wait for each
other, so the selected program may need up to twice the cycles of the best one. Such programs are lowered quickly, so
many can be compared.

A choice is rejected if its lower bound is too large, or if a unit of its partly emitted program is already busy for too
long. So most programs end early once a good one is known. First the choices that differ from the best one in one answer
are tried, then all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod

from glenside.npu.program.program import Choices, NpuProgram

Way = tuple[int, ...]
"""The number of the answer to each question."""
_INSTRUCTIONS, _FEW, _WAYS = 60_000, 15, 4_096
"""Maximum number of instructions emitted in all; least number of programs for which a search pays; maximum number of
choices for an exhaustive search.
"""


def is_small(program: NpuProgram) -> bool:
    """True if the program has so few instructions that others are worth a try."""
    return _are_few(program.size)


def _are_few(instructions: int) -> bool:
    return instructions * _FEW <= _INSTRUCTIONS


@dataclass(frozen=True)
class Evaluation:
    """The cycles of a choice, infinite if it is no better than the best; and the instructions emitted to find out."""

    cycles: float
    written: int = 0


@dataclass
class Search:
    """Searches for the choice with the fewest cycles.

    answers   number of answers to each question
    evaluate  cycles of a choice, or a proof that they are at least the given limit
    least     a lower bound on the cycles of a choice, quickly computed
    size      instructions of a program
    best      cycles of the best program; found: a better choice
    """

    answers: Sequence[int]
    evaluate: Callable[[Way, int], Evaluation]
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
        """Searches by hill climbing from `start`: moves to the best choice that differs in one answer, until none is
        better. Then tries the other choices while the budget of instructions lasts.
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
            result = self.evaluate(way, self.best)
            self.known[way] = result.cycles
            self.left -= result.written
            if result.cycles < self.best:
                self.best, self.found = int(result.cycles), way
        return self.known[way]
