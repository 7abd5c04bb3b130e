"""Decides which results are computed in place: straight into their part of an enclosing result.

A concatenation, a padding or an interleaving copies its operands into its result. If nothing else reads an operand, the
result is allocated first, and the operand is computed into its part of it, which may be strided: phases of a transposed
convolution are never held twice. Operands that precede one with large temporaries are still copied, if that lowers the
peak. The decision depends on the program alone, so that `glenside.analysis.liveness` can predict the memory.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.operator import OperatorKind
from glenside.ir.term import Term, constants_under, weave
from glenside.ir.types import AccessType

Placement = Mapping[Term, tuple[Term, int]]
"""term -> (the term whose result contains it, its operand number there)"""


def placement(order: Sequence[Term], reads: Mapping[Term, int], given: Container[Term]) -> Placement:
    """Returns the terms that are computed in place, given the evaluation order and the number of reads of each term."""

    def free(term: Term) -> bool:
        return reads[term] == 1 and term not in given and isinstance(term.type, AccessType)

    if not any(map(gathers, order)):
        return {}
    first = _Profile(order, given).decide(free)
    placed: dict[Term, tuple[Term, int]] = {}
    layouts: dict[Term, Array] = {}
    for term, start in reversed(first.items()):
        layout = layouts.pop(term) if term in layouts else _layout(term)
        for i, part in enumerate(parts_of(term, layout)):
            path = _path(term, i, part, free) if i >= start else None
            if path is not None:
                inner, array, links = path
                placed.update(links)
                if gathers(inner):
                    layouts[inner] = array
    return placed


def gathers(term: Term) -> bool:
    """True if the result is a new array that contains the operands."""
    operator = term.operator
    return operator.places is not None and operator.kind is OperatorKind.MOVEMENT and not operator.shares


def parts_of(term: Term, out: Array) -> Sequence[Array | None]:
    """Returns the view of `out` that each operand fills; None where its part is no view."""
    assert term.operator.places is not None, "only operators with places have parts"
    parts: Sequence[Array | None] = term.operator.places(out, *_types(term))
    return parts


def _types(term: Term) -> tuple[Any, ...]:
    return weave(term.operator, [child.type for child in term.children], term.attributes)


def _path(
    term: Term, i: int, part: Array | None, free: Callable[[Term], bool]
) -> tuple[Term, Array, dict[Term, tuple[Term, int]]] | None:
    """Follows an operand down through views to the term that can be computed into its part of the result."""
    links: dict[Term, tuple[Term, int]] = {}
    child = term.children[i]
    while part is not None and free(child):
        links[child] = term, i
        if gathers(child) or stores(child, part):
            return child, part, links
        if child.operator.places is None:
            return None
        term, i = child, 0
        child, part = term.children[0], parts_of(term, part)[0]
    return None


def stores(term: Term, out: Array | None = None) -> bool:
    """True if a result can be computed into an existing array: `out`, or one in row-major order."""
    may = term.operator.stores
    return may is not None and bool(may(_layout(term) if out is None else out, *_types(term)))


def _layout(term: Term) -> Array:
    """Returns an array with the shape of a result that is never accessed: it takes addresses but no memory."""
    dims, dtype = term.access.dims, np.dtype(term.access.dtype)
    return np.ndarray(tuple(dims), dtype, mmap.mmap(-1, max(1, prod(dims) * dtype.itemsize)))


class _Profile:
    """Bytes held while each term is computed: the sizes of results, without the operators' temporaries."""

    def __init__(self, order: Sequence[Term], given: Container[Term]) -> None:
        self.order = order
        self.place = {term: k for k, term in enumerate(order)}
        constant = constants_under(*order)  # computed at compile time, or one number everywhere: no memory of this run
        self.size = array("q", [0 if t in given or constant[t] or _is_view(t) else _bytes_of(t) for t in order])
        self.born = array("q", range(len(order)))
        last = array("q", range(len(order)))
        for k in reversed(range(len(order))):  # a view keeps its base alive
            until = last[k] if _is_view(order[k]) else k
            for child in order[k].children if order[k] not in given else ():
                if child in self.place:
                    last[self.place[child]] = max(last[self.place[child]], until)
        changes = array("q", [0]) * (len(order) + 1)
        for k, until in enumerate(last):
            changes[k] += self.size[k]
            changes[until + 1] -= self.size[k]
        self.held = array("q", accumulate(changes))

    def decide(self, free: Callable[[Term], bool]) -> dict[Term, int]:
        """Returns the first operand that is computed in place, for each gathering term, in evaluation order."""
        first: dict[Term, int] = {}
        for k, term in enumerate(self.order):
            if gathers(term) and self.size[k]:
                found = [_producer(child, free) for child in term.children]
                parts = [-1 if p is None else self.place[p] for p in found]
                ways = [[p for p in parts[i:] if p >= 0] for i in range(len(parts) + 1)]
                begin = min((self.born[p] for p in ways[0]), default=k)
                taken = [self._with(way, begin, k) for way in ways]
                first[term] = min(range(len(ways)), key=lambda i: max(taken[i]))
                self.held[begin : k + 1] = taken[first[term]]
                self.born[k] = min((self.born[p] for p in ways[first[term]]), default=k)
        return first

    def _with(self, parts: Sequence[int], begin: int, k: int) -> array[int]:
        """Returns the bytes held from `begin` to k if these operands are computed in the result of term k."""
        held = self.held[begin : k + 1]
        for part in parts:
            for x in range(self.born[part], k + 1):
                held[x - begin] -= self.size[part]
        for x in range(min((self.born[part] for part in parts), default=k), k):
            held[x - begin] += self.size[k]
        return held


def _is_view(term: Term) -> bool:
    return (
        term.operator.kind is OperatorKind.VIEW or term.operator.shares is True or not isinstance(term.type, AccessType)
    )


def _bytes_of(term: Term) -> int:
    return term.access.size * np.dtype(term.access.dtype).itemsize


def _producer(term: Term, free: Callable[[Term], bool]) -> Term | None:
    """Returns the term below views that can be computed in place, or None."""
    while free(term):
        if gathers(term) or stores(term):
            return term
        if term.operator.places is None:
            return None
        term = term.children[0]
    return None
