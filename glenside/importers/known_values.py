"""Evaluates terms that are known at import: constants, and terms that depend on constants alone."""

from __future__ import annotations

from collections.abc import Mapping

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType, Tensor
from glenside.semantics.interpreter import evaluate

KNOWN = 1 << 26
"""Elements that may be evaluated at import: shapes, axes and their operands are small."""


class KnownValues:
    """Values of tensors by name, and of terms that depend on them alone; each term is evaluated once."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.tensors = dict(values)
        self._fixed: dict[Term, bool] = {}
        self._large: set[Term] = set()
        self._evaluated: dict[Term, Array] = {}

    def of(self, term: Term) -> Array | None:
        """Returns the value of the term, or None if it depends on unknown data."""
        if not self._is_fixed(term):
            return None
        if term in self._large:
            raise BadInput(f"a value that must be known at import may depend on at most {KNOWN} elements, got more")
        if term not in self._evaluated:
            (self._evaluated[term],) = evaluate([term], self.tensors, given=self._evaluated)
        return self._evaluated[term]

    def _is_fixed(self, root: Term) -> bool:
        for term in postorder(root, without=self._fixed):
            if term.operator.name == "access-tensor":
                tensor = term.attributes[0]
                self._fixed[term] = isinstance(tensor, Tensor) and tensor.name in self.tensors
                continue
            self._fixed[term] = not term.operator.opaque and all(self._fixed[child] for child in term.children)
            large = isinstance(term.type, AccessType) and term.type.size > KNOWN
            if large or any(child in self._large for child in term.children):
                self._large.add(term)
        return self._fixed[root]
