"""The oracle of the doors: the reference results, held to by an exception."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.check import expected
from glenside.check.expected import coarsest, computed, each_result, values_of
from glenside.fuzzing.cases import Wrong
from glenside.ir.operand import Array

__all__ = ["Expected", "coarsest", "computed", "each_result", "values_of"]


class Expected(expected.Expected):
    """The reference results of a program, which a door compares its own with."""

    def compare(self, what: str, found: Sequence[Array], unit: float = 0.0) -> None:
        """Raise Wrong where results differ."""
        if said := self.difference(found, unit):
            raise Wrong(f"{what}: {said}")
