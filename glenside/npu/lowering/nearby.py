"""Choices beside the one that prices tell, lowered and compared by their cycles, where programs are small.

Prices are of parts of layers and of pairs of them. Of networks of few layers, whose cycles are mostly those in which
units wait for each other, programs take up to twice what others of the same space take; and these are made in no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import inf, prod

Way = tuple[int, ...]
"""Of each question the answer, by number."""
_INSTRUCTIONS, _TRIES, _FEW = 20_000, 64, 8
"""Of all programs that are made, the most of these, and of one where it is worth a try, the fewest."""


def tries(size: int) -> int:
    """How many programs of about so many instructions are made; 0 where these are too few to learn anything."""
    found = min(_TRIES, _INSTRUCTIONS // max(1, size))
    return found if found >= _FEW else 0


def quickest(start: Way, answers: Sequence[int], cycles: Callable[[Way], float], most: int) -> Way:
    """The way that takes the fewest cycles, as that function tells of at most so many: of all ways where these are no
    more, the first one of the fewest; else of those that are met by changing one answer at a time, from the start on,
    to whatever takes the fewest, until none is better.

    answers  how many there are of each question
    """
    known: dict[Way, float] = {}

    def told(way: Way) -> float:
        if way not in known:
            known[way] = cycles(way) if len(known) < most else inf
        return known[way]

    if prod(answers) <= most:
        return min(product(*map(range, answers)), key=told)
    best = start
    while True:
        others = [
            (*best[:place], other, *best[place + 1 :])
            for place, count in enumerate(answers)
            for other in range(count)
            if other != best[place]
        ]
        found = min([best, *others], key=told)
        if found == best:
            return best
        best = found
