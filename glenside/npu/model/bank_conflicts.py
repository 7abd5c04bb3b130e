"""Detects bank conflicts: two units that use one port of one bank in the same cycle.

Each scratchpad lane and each accumulator column has one bank in each half, with one read port and one write port. A
stream that accumulates also uses the read ports of the accumulators.
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
"""Computes the half that each bank is used in, (cycles)(banks), -1 for unused. Deferred, as it is seldom needed."""


def present(least: int, most: int, half: int) -> frozenset[int]:
    """Returns the halves that addresses `least` to `most` touch; the upper half begins at `half`."""
    return frozenset(own for own, there in enumerate((least < half, most >= half)) if there)


@dataclass(frozen=True)
class _Use:
    """An instruction's use of a port: `cycles` cycles from `begin` on, in the halves that are `present`.

    With `skew`, banks are used one after the other, each a cycle after the bank before.
    """

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
    """The ports of one kind, and their uses. Instructions must be given in the order of their starts."""

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
        """Records a use of the port for `cycles` cycles from `begin` on, in the halves that are `present`.

        With `skew`, the instruction uses that many banks, one per column, each a cycle after the bank before. `start`
        is the instruction's start: uses that end by then cannot conflict with later ones. Raises BadInput for a bank
        conflict with another unit.
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
    """Returns the first cycle in which both use one bank, or None."""
    if one.skew or two.skew:
        return _met_skewed(*((one, two) if one.skew else (two, one)))
    begin, end = max(one.begin, two.begin), min(one.end, two.end)
    if begin >= end:
        return None
    a, b = (use.halves[begin - use.begin : end - use.begin] for use in (one, two))
    met = ((a == b) & (a != _NOBODY)).any(axis=1)
    return begin + int(met.argmax()) if met.any() else None


def _met_skewed(skewed: _Use, other: _Use) -> int | None:
    """Returns a cycle in which both use one bank, or None: `skewed` sweeps the banks, `other` uses all at once."""
    for half in sorted(skewed.present & other.present):
        waves = skewed.begin + np.flatnonzero(skewed.halves[:, 0] == half)
        cycles = other.begin + np.flatnonzero(other.halves[:, 0] == half)
        last = np.searchsorted(waves, cycles, side="right") - 1  # the wave that began last
        met = (last >= 0) & (cycles - waves[last] < skewed.skew)
        if met.any():
            return int(cycles[met.argmax()])
    return None
