"""The inputs on which programs are compared."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeVar

import numpy as np

from glenside.check.confined import Confined
from glenside.check.indices import counted_from_ends, from_end, index_limits, picks
from glenside.check.order import rounds
from glenside.check.stimuli import declared
from glenside.check.trials import OWN, Trials, Turn
from glenside.ir.errors import OutOfBounds
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.semantics import Arithmetic

Result = TypeVar("Result")


class Inputs:
    """Draws values of tensors with which every index of the reference terms is within its axis.

    Indices of other terms do not limit what is drawn, but for tensors that these alone read: where one of them is
    outside and none of the reference is, programs differ.

    drawn   the tensors to draw, by name
    known   values of the others
    own     values that constants of the programs have in the turns from `OWN` on
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
        """The tensors that may be anything."""
        return self.drawn.keys() - self.limits.keys() - self._confined.bounded

    def draw(self, trial: Turn, turn: int) -> dict[str, Array]:
        """The values of all tensors in a turn."""
        values = trial.values(self.drawn, self.limits)
        values |= {name: from_end(values[name], self.limits[name], turn) for name in self._ends}
        return values | self.known | (self.own if turn >= OWN else {})

    def used(
        self, values: Mapping[str, Array], arithmetic: Arithmetic, run: Callable[[Mapping[str, Array]], Result]
    ) -> Result:
        """The result of a run on these values, or on others where these lead to indices outside. Raises OutOfBounds."""
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
    """The finite values of constants that all programs which have them agree on. What is made integers by a scale that
    is drawn is mostly cut to the same one: a difference before it is seen by the scale that it was made for.
    """
    found: dict[str, Array] = {}
    for name in dict.fromkeys(name for program in programs for name in program.constants if name in drawn):
        first, *others = [p.constants[name] for p in programs if name in p.constants]
        agreed = all(other is first or np.array_equal(other, first) for other in others)
        if agreed and np.isfinite(first).all():
            found[name] = first
    return found
