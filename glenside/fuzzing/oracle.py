"""Compares the results of doors with reference results, and raises an exception where they differ."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.check import expected
from glenside.check.expected import coarsest, computed, each_result, values_of
from glenside.fuzzing.cases import Wrong
from glenside.ir.operand import Array

__all__ = ["Expected", "coarsest", "computed", "each_result", "values_of"]


class Expected(expected.Expected):
    """The reference results of a program, with which a door compares its own."""

    def compare(self, what: str, found: Sequence[Array], unit: float = 0.0) -> None:
        """Raises Wrong if results differ."""
        if said := self.difference(found, unit):
            raise Wrong(f"{what}: {said}")
