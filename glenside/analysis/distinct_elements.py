"""How many elements of its leaves a movement of data reads: each once, however often it stands in the result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glenside.analysis.layers import ends_layer
from glenside.ir.operand import Array
from glenside.ir.operator import OperatorKind
from glenside.ir.term import Term
from glenside.semantics import Native
from glenside.semantics.interpreter import evaluate

_AT_ONCE = 1 << 22
"""Elements of a result that are looked at at once: windows are views, of which a copy may be large."""


class _Numbered(Native):
    """Arithmetic of the numbers of elements: what fills borders is 0."""

    def lowest(self, dtype: str) -> Array:
        return np.zeros((), np.int64)


def distinct_elements(term: Term) -> int:
    """Elements that have to be at hand for `term`, an operand (shape)(item) of a layer: not what fills borders.

    Found by moving the numbers of the leaves' elements, so it holds for every operator that only moves them.
    """
    leaves = [t for t in _down_to_leaves(term) if _is_leaf(t)]
    given: dict[Term, Array] = {}
    count = 1  # 0 is what fills borders
    for leaf in leaves:
        size = leaf.access.size
        given[leaf] = np.arange(count, count + size, dtype=np.int64).reshape(tuple(leaf.access.dims))
        count += size
    if term in given:
        return term.access.size
    seen = np.zeros(count, bool)
    (moved,) = evaluate([term], {}, _Numbered(), given=given)
    for part in _parts(moved):
        seen[part] = True
    return int(seen[1:].sum())


def _is_leaf(term: Term) -> bool:
    return term.operator.kind is OperatorKind.LEAF or ends_layer(term)


def _down_to_leaves(term: Term) -> Iterator[Term]:
    stack, seen = [term], set[Term]()
    while stack:
        own = stack.pop()
        if own not in seen:
            seen.add(own)
            yield own
            stack += () if _is_leaf(own) else own.children


def _parts(moved: Array) -> Iterator[Array]:
    """The array in parts that are small enough to be copied."""
    if moved.size <= _AT_ONCE or moved.ndim == 0:
        yield moved
        return
    for part in moved:
        yield from _parts(part)
