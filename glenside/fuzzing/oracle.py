"""Compares the results of doors with reference results, and raises an exception where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from glenside.check import expected
from glenside.check.expected import coarsest, computed, each_result, values_of
from glenside.fuzzing.cases import Wrong
from glenside.ir.dtypes import REALS
from glenside.ir.operand import Array
from glenside.ir.operators.compute import compute
from glenside.ir.term import postorder
from glenside.semantics.interpreter import evaluate

__all__ = ["Expected", "coarsest", "computed", "each_result", "values_of"]

_ORDERED = ("argmax", "argmin", "argsort", "maximum", "minimum", "reduce-max", "reduce-min", "relu", "clip", "sign")


class Expected(expected.Expected):
    """The reference results of a program, with which a door compares its own."""

    @cached_property
    def orders_nans(self) -> bool:
        """True if nans are ordered, for which runtimes have different orders."""
        ordered = [
            term.children[0]
            for term in postorder(*self.parts)
            if term.operator is compute and str(term.attributes[0]).strip("()").split(" ")[0] in _ORDERED
        ]
        arrays = map(np.asarray, evaluate(ordered, self.values))
        return any(bool(np.isnan(a.astype(np.float64)).any()) for a in arrays if a.dtype.name in REALS)

    def compare(self, what: str, found: Sequence[Array], unit: float = 0.0) -> None:
        """Raises Wrong if results differ."""
        if said := self.difference(found, unit):
            raise Wrong(f"{what}: {said}")
