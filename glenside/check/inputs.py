"""Generates the inputs on which programs are compared."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeVar

import numpy as np

from glenside.check.confined import Confined
from glenside.check.indices import counted_from_ends, from_end, index_limits, picks
from glenside.check.input_generators import declared
from glenside.check.order_dependence import rounds
from glenside.check.trials import OWN, Trials, Turn
from glenside.ir.errors import OutOfBounds
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.semantics import Arithmetic

Result = TypeVar("Result")


class Inputs:
    """The generator of tensor values with which every index of the reference terms is within its axis.

    Indices of other terms bound only the tensors that no reference term reads: if such an index is outside and no
    reference index is, the programs differ.

    drawn   the tensors to draw, by name
    known   values of all other tensors
    own     values that constants of the programs have in rounds from number `OWN` on
    """

    def __init__(
        self,
        reference: Sequence[Term],
        others: Sequence[Term],
        programs: Sequence[Program],
        known: Mapping[str, Array],
        trials: Trials,
    ) -> None:
        self.known = dict(known)
        self.drawn = {name: t for name, t in declared(*reference, *others).items() if name not in self.known}
        self.limits = index_limits(*reference, others=others)
        self._ends = counted_from_ends(*reference) & self.limits.keys() & self.drawn.keys()
        self.own = _own(self.drawn, *programs) if trials.ordered and rounds(*reference, *others) else {}
        self._confined = Confined(picks(*reference))

    @property
    def movable(self) -> set[str]:
        """The names of drawn tensors without bounds."""
        return self.drawn.keys() - self.limits.keys() - self._confined.bounded

    def draw(self, trial: Turn, turn: int) -> dict[str, Array]:
        """Returns the values of all tensors in a round."""
        values = trial.values(self.drawn, self.limits)
        values |= {name: from_end(values[name], self.limits[name], turn) for name in self._ends}
        return values | self.known | (self.own if turn >= OWN else {})

    def used(
        self, values: Mapping[str, Array], arithmetic: Arithmetic, run: Callable[[Mapping[str, Array]], Result]
    ) -> Result:
        """Runs on these values, moved if they lead to indices outside, and returns the result. Raises OutOfBounds."""
        if not self._confined.boxes:
            try:
                return run(values)
            except OutOfBounds:
                if not self._confined.tensors:
                    raise
        own = {name for name, value in self.own.items() if values[name] is value}
        moved = self._confined.settle(values, arithmetic, {*self.known, *own})
        return run(values if moved is None else moved)


def _own(drawn: Container[str], *programs: Program) -> dict[str, Array]:
    """Returns the finite values of constants on which the programs agree.

    With a drawn scale, numbers mostly saturate when they are quantized, which hides differences before. With the
    scale of the program these differences show.
    """
    found: dict[str, Array] = {}
    for name in dict.fromkeys(name for program in programs for name in program.constants if name in drawn):
        first, *others = [p.constants[name] for p in programs if name in p.constants]
        agreed = all(other is first or np.array_equal(other, first) for other in others)
        if agreed and np.isfinite(first).all():
            found[name] = first
    return found
