"""Traces each element of a term to the element of another term that it copies.

Movement is evaluated on element numbers, so this works for every operator that moves elements to known positions:
windows, pads, transposes, regroupings. It stops at terms that compute.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from glenside.analysis.layers import ends_layer
from glenside.ir.index_map import Fill
from glenside.ir.operand import Array
from glenside.ir.term import Term, build, nearest, rebuild_all
from glenside.ir.types import Tensor
from glenside.semantics.interpreter import evaluate

_AT_ONCE = 1 << 22
"""The number of elements processed at once."""


@dataclass(frozen=True)
class Places:
    """Element numbers in the dims of a term: consecutive ones for each leaf, from its first number; 0 is a zero."""

    numbers: Array
    first: Mapping[Term, int]

    def values(self, given: Mapping[Term, Array], dtype: str) -> Array:
        """Returns the elements, given those of each leaf."""
        every = [np.zeros(1, dtype), *(np.asarray(given[leaf], dtype).ravel() for leaf in self.first)]
        found: Array = np.concatenate(every).take(self.numbers)
        return found


def moves(term: Term) -> bool:
    """True if every element of a term is an element of its operands, or zero."""
    if not term.children or ends_layer(term):
        return False
    map_ = term.index_map
    return map_ is not None and map_.fill is not Fill.LOWEST


def places(term: Term, ends: Container[Term] = ()) -> Places:
    """Returns for each element of a term its source: an element of a term that computes or holds it, or of one in
    `ends`.
    """
    first, count, numbers, stand_ins = dict[Term, int](), 1, dict[str, Array](), dict[Term, Term]()
    leaves = leaves_of(term, ends)
    dtype = "int32" if sum(leaf.access.size for leaf in leaves) < (1 << 31) - 1 else "int64"
    for leaf in leaves:
        first[leaf], of = count, leaf.access
        tensor = Tensor(f"leaf {len(first)}", of.dims, dtype)
        stand_ins[leaf] = build("access", build("access-tensor", tensor), of.split)
        numbers[tensor.name] = np.arange(count, count + of.size, dtype=dtype).reshape(tuple(of.dims))
        count += of.size
    (moved,) = rebuild_all([term], lambda _, __: None, stand_ins)
    (found,) = evaluate([moved], numbers)
    return Places(np.asarray(found).reshape(tuple(term.access.dims)), first)


def sources(term: Term, at: Sequence[Array]) -> tuple[list[Term], Array, Array]:
    """Finds the sources of some elements of a term, whose indices are given as (points) for each of its axes.

    Returns the source terms; for each element, the number of its source term, or -1 for a zero; and its position in
    that term in row-major order. Only these elements are followed.
    """
    points = at[0].size if at else 1
    found, whose, place = list[Term](), np.full(points, -1), np.zeros(points, np.int64)
    waiting = [(term, list(at), np.arange(points))]
    while waiting:
        top, axes, of = waiting.pop()
        if not of.size:
            continue
        map_ = top.index_map
        if not moves(top) or map_ is None:
            if top not in found:
                found.append(top)
            dims = tuple(top.access.dims)
            whose[of] = found.index(top)
            place[of] = np.ravel_multi_index(tuple(axes), dims) if dims else 0
            continue
        for piece in map_.pieces:
            held = np.full(of.size, True)
            for guard in piece.guards:
                held &= guard.evaluate(axes)
            inner = [np.broadcast_to(index.evaluate(axes), of.shape)[held] for index in piece.indices]
            waiting.append((top.children[piece.operand], inner, of[held]))
    return found, whose, place


def leaves_of(term: Term, ends: Container[Term] = ()) -> list[Term]:
    """Returns the first terms at or below one that do not move elements, or that are among `ends`, in order of
    appearance.
    """
    return nearest(term, stops=lambda top: top in ends or not moves(top))


def distinct_elements(term: Term) -> int:
    """Counts the elements that `term`, an operand of a layer, reads: each once, however often it occurs, and no
    padding.
    """
    found = places(term)
    seen = np.zeros(1 + sum(leaf.access.size for leaf in found.first), bool)
    for part in _parts(_once(found.numbers)):
        seen[part.astype(np.intp)] = True  # which takes half the time that int32 takes
    return int(np.count_nonzero(seen[1:]))


def _once(moved: Array) -> Array:
    """Returns the distinct elements of memory that a view reads: few if its windows overlap much."""
    whole, holder = moved, moved.base
    while holder is not None:  # of a strided view it is not an array, and has one
        whole, holder = holder if isinstance(holder, np.ndarray) else whole, getattr(holder, "base", None)
    if whole.size >= moved.size or whole.dtype != moved.dtype or not whole.flags.c_contiguous:
        return moved
    size = whole.itemsize
    begin = (moved.__array_interface__["data"][0] - whole.__array_interface__["data"][0]) // size
    read = np.zeros(whole.size, bool)
    np.lib.stride_tricks.as_strided(read[begin:], moved.shape, [step // size for step in moved.strides])[...] = True
    found: Array = whole.reshape(-1)[read]
    return found


def _parts(moved: Array) -> Iterator[Array]:
    """Yields the array in parts that are small enough to be copied; windows are views."""
    if moved.size <= _AT_ONCE or moved.ndim == 0:
        yield moved
        return
    for part in moved:
        yield from _parts(part)
