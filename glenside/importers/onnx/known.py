"""What is known beforehand: terms of constants, evaluated when a node needs their value as a shape or an axis."""

from __future__ import annotations

from collections.abc import Mapping

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.ir.types import AccessType, Tensor
from glenside.semantics.interpreter import evaluate

ELEMENTS = 1 << 26
"""What is evaluated while a model is read: shapes, axes, and what they are computed from, are small."""


class KnownValues:
    """Values of tensors by name, and through them those of terms; each term is evaluated once."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.tensors = dict(values)
        self._fixed: dict[Term, bool] = {}
        self._large: set[Term] = set()
        self._evaluated: dict[Term, Array] = {}

    def of(self, term: Term) -> Array | None:
        """The value of the term, or None when it depends on what is not known."""
        if not self._is_fixed(term):
            return None
        if term in self._large:
            raise BadInput(f"what must be known beforehand is computed from at most {ELEMENTS} elements, got more")
        if term not in self._evaluated:
            (self._evaluated[term],) = evaluate([term], self.tensors, given=self._evaluated)
        return self._evaluated[term]

    def _is_fixed(self, root: Term) -> bool:
        stack = [root]
        while stack:
            term = stack[-1]
            if term in self._fixed:
                stack.pop()
            elif term.operator.name == "access-tensor":
                tensor = term.attributes[0]
                self._fixed[term] = isinstance(tensor, Tensor) and tensor.name in self.tensors
            else:
                open_ = [child for child in term.children if child not in self._fixed]
                stack += open_
                if not open_:
                    below = all(self._fixed[child] for child in term.children)
                    self._fixed[term] = below and not term.operator.opaque
                    if _is_large(term) or any(child in self._large for child in term.children):
                        self._large.add(term)
        return self._fixed[root]


def _is_large(term: Term) -> bool:
    return isinstance(term.type, AccessType) and term.type.size > ELEMENTS
