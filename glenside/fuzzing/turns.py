"""Lets the cases of a run take turns, so that each combination of interest is drawn before any is drawn again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Turn:
    """The number of a case among those of a door, in a run of a seed."""

    seed: int = 0
    number: int = 0

    def of(self, items: Sequence[T], count: int = 1) -> list[T]:
        """Returns `count` of the items. Successive numbers go through all items, in another order each time."""
        return [item for _, item in self.rounds(items, count)]

    def rounds(self, items: Sequence[T], count: int = 1) -> list[tuple[int, T]]:
        """Returns `count` of the items, each after the number of times that all items were drawn before."""
        found = []
        for number in range(self.number * count, (self.number + 1) * count):
            done, at = divmod(number, len(items))
            found.append((done, items[_order(self.seed, done, len(items))[at]]))
        return found

    def halved(self) -> tuple[bool, Turn]:
        """Returns whether this is one of the odd turns, and the turn among those."""
        return self.number % 2 == 1, Turn(self.seed, self.number // 2)


@lru_cache(64)
def _order(seed: int, done: int, count: int) -> list[int]:
    return random.Random(f"{seed}/{done}").sample(range(count), count)
