"""Which instruction uses which bank in which cycle: two at one port of one bank are refused.

Each lane and each column of the accumulators has a bank in each half, with one port for a reader and one for a writer.
A stream that adds to sums is a reader of theirs too; streams alone write sums, so that nobody meets them there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.machine import HALVES

_NOBODY = -1


@dataclass(frozen=True)
class _Use:
    """An instruction at a port: the half that each bank of each cycle from `begin` on is used in, -1 for none."""

    unit: str
    number: int
    begin: int
    halves: npt.NDArray[np.int8]
    present: frozenset[int]
    skew: int

    @property
    def end(self) -> int:
        return self.begin + len(self.halves) + self.skew


class Ports:
    """The ports of a kind, and who uses them. Instructions come in the order of their starts."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.uses: dict[str, list[_Use]] = defaultdict(list)

    def use(
        self, unit: str, number: int, start: int, begin: int, halves: npt.NDArray[np.int8], *, skew: int = 0
    ) -> None:
        """Note a use from cycle `begin` on: halves (cycles)(banks), -1 for a bank that is not used; with `skew`, one
        column each of that many banks, each a cycle behind the one before. Raises BadInput.

        `start` is the instruction's: those who end before it meet nobody who comes later.
        """
        present = frozenset(half for half in range(HALVES) if (halves == half).any())
        own = _Use(unit, number, begin, halves, present, skew)
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
