"""Which instruction uses which bank in which cycle: two at one port of one bank are refused.

Each lane and each column of the accumulators has a bank in each half, with one port for a reader and one for a writer.
A stream that adds to sums is a reader of theirs too; streams alone write sums, so that nobody meets them there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput

_NOBODY = -1


Halves = Callable[[], npt.NDArray[np.int8]]
"""What finds the half that each bank of each cycle is used in, (cycles)(banks), -1 for none: it is seldom asked for."""


def present(least: int, most: int, half: int) -> frozenset[int]:
    """In which halves places from the least to the greatest are, of which the upper ones begin at `half`."""
    return frozenset(own for own, there in enumerate((least < half, most >= half)) if there)


@dataclass(frozen=True)
class _Use:
    """An instruction at a port, for so many cycles from `begin` on, in halves that are present."""

    unit: str
    number: int
    begin: int
    cycles: int
    present: frozenset[int]
    find: Halves
    skew: int

    @property
    def end(self) -> int:
        return self.begin + self.cycles + self.skew

    @cached_property
    def halves(self) -> npt.NDArray[np.int8]:
        return self.find()


class Ports:
    """The ports of a kind, and who uses them. Instructions come in the order of their starts."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.uses: dict[str, list[_Use]] = defaultdict(list)

    def use(
        self,
        unit: str,
        number: int,
        start: int,
        begin: int,
        cycles: int,
        present: frozenset[int],
        halves: Halves,
        *,
        skew: int = 0,
    ) -> None:
        """Note a use for so many cycles from `begin` on, in the halves that are present; with `skew`, one column each
        of that many banks, each a cycle behind the one before. Raises BadInput.

        `start` is the instruction's: those who end before it meet nobody who comes later.
        """
        own = _Use(unit, number, begin, cycles, present, halves, skew)
        for other, uses in self.uses.items():
            uses[:] = [use for use in uses if use.end > start]
            for use in uses if other != unit else ():
                if use.present & present and (cycle := _met(use, own)) is not None:
                    raise BadInput(
                        f"{unit} instruction {number} and {other} instruction {use.number} both use {self.what} of one"
                        f" half in cycle {cycle}: let one wait for the other, or use the other half"
                    )
        self.uses[unit].append(own)


def _met(one: _Use, two: _Use) -> int | None:
    """The first cycle in which both use a bank."""
    if one.skew or two.skew:
        return _met_skewed(*((one, two) if one.skew else (two, one)))
    begin, end = max(one.begin, two.begin), min(one.end, two.end)
    if begin >= end:
        return None
    a, b = (use.halves[begin - use.begin : end - use.begin] for use in (one, two))
    met = ((a == b) & (a != _NOBODY)).any(axis=1)
    return begin + int(met.argmax()) if met.any() else None


def _met_skewed(skewed: _Use, other: _Use) -> int | None:
    """The same where one works through the banks like a wave, and the other uses all of them at once."""
    for half in sorted(skewed.present & other.present):
        waves = skewed.begin + np.flatnonzero(skewed.halves[:, 0] == half)
        cycles = other.begin + np.flatnonzero(other.halves[:, 0] == half)
        last = np.searchsorted(waves, cycles, side="right") - 1  # the wave that began last, and is in the first banks
        met = (last >= 0) & (cycles - waves[last] < skewed.skew)
        if met.any():
            return int(cycles[met.argmax()])
    return None
