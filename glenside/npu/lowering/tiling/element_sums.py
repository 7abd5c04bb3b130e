"""Expresses the elements of a mapped layer as sums of elements of products on the array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from glenside.analysis.element_sources import leaves_of, moves, places
from glenside.ir.blockwise import positions
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, weave
from glenside.ir.types import Dims

WINDOWS = "access-overlap-add"
"""The operator that adds overlapping windows; if each element is in one window, it only moves them."""


def summands(term: Term) -> list[Term]:
    """Returns the terms that a term adds and moves; the term itself if it does neither."""
    found = list[Term]()
    for leaf in leaves_of(term):
        found += summands(leaf.children[0]) if _adds(leaf) else [leaf]
    return [*dict.fromkeys(found)]


def _adds(term: Term) -> bool:
    return _reduces(term) or term.operator.name == WINDOWS


def _reduces(term: Term) -> bool:
    return term.operator.name == "compute" and term.attributes[0] == "reduce-sum"


@dataclass(frozen=True)
class Sums:
    """The elements of a term as sums of elements of products.

    of    for each element the number of its sum, from 1 on; 0 is a zero, (dims)
    rows  element numbers of the summands of each sum, from 1 on, (n)(terms), padded with 0; None: the
          elements are those of the only product, in order
    """

    of: Array
    rows: Array | None


def sums(term: Term, products: Sequence[Term]) -> Sums:
    """Expresses the elements of a term as sums of elements of products. Raises BadInput if the term computes anything
    else.
    """
    first, count = {}, 1
    for product in products:
        first[product] = count
        count += product.access.size
    dtype: np.dtype[np.signedinteger] = np.dtype(np.int32 if count < 1 << 31 else np.int64)
    if term not in first and moves(term):
        return _moved(term, first, dtype)
    added = _added(term, first, dtype)
    rows = added.reshape(-1, added.shape[-1])
    return Sums(np.arange(1, len(rows) + 1, dtype=dtype).reshape(added.shape[:-1]), rows)


def _added(term: Term, first: Mapping[Term, int], dtype: np.dtype[np.signedinteger]) -> Array:
    """Returns the summands of each element, (dims)(terms), padded with 0."""
    if term in first:
        begin, dims = first[term], tuple(term.access.dims)
        return np.arange(begin, begin + term.access.size, dtype=dtype).reshape((*dims, 1))
    if moves(term):
        moved = _moved(term, first, dtype)
        return moved.of[..., None] if moved.rows is None else expanded(moved.rows, moved.of)
    if _reduces(term):
        below, shape = _added(term.children[0], first, dtype), tuple(term.children[0].access.shape)
        return below.reshape((*shape, -1))
    if term.operator.name == WINDOWS:
        of, below = sources_of_windows(term), _added(term.children[0], first, dtype)
        lead = below.shape[: below.ndim - 1 - 2 * (of.ndim - 1)]
        found = below.reshape(*lead, prod(below.shape[len(lead) : -1]), below.shape[-1])
        taken = np.where((of >= 0)[..., None], found[..., of, :], dtype.type(0))
        return taken.reshape(*taken.shape[:-2], -1)
    words = weave(term.operator, ["..."] * len(term.children), term.attributes)
    raise BadInput(f"the machine only adds and moves sums; it cannot compute {term.operator.name} {words}")


def sources_of_windows(term: Term) -> Array:
    """Returns the window elements that each element of a sum of windows adds, (out)(most): row-major numbers, -1 for
    none.
    """
    out, strides = (own for own in term.attributes if isinstance(own, Dims))
    child, axes = term.children[0].access, len(out)
    counts, window = tuple(child.dims)[-2 * axes : -axes or None], tuple(child.item)
    numbers = np.arange(prod(counts) * prod(window)).reshape(*counts, *window)
    found = np.full((prod(window), *out), -1)
    for number, position in enumerate(positions(window)):
        steps = (slice(i, i + (c - 1) * t + 1, t) for i, c, t in zip(position, counts, strides, strict=True))
        reached: tuple[Any, ...] = (number, *steps)
        found[reached] = numbers[(..., *position)]
    found = -np.sort(-np.moveaxis(found, 0, -1))
    most: Array = found[..., : max(1, int((found >= 0).sum(axis=-1).max(initial=0)))]
    return most


def expanded(rows: Array, of: Array) -> Array:
    """Returns the sum of each element, (dims)(terms)."""
    return np.concatenate([np.zeros_like(rows[:1]), rows]).take(of, axis=0)


def _moved(term: Term, first: Mapping[Term, int], dtype: np.dtype[np.signedinteger]) -> Sums:
    found = places(term)
    if len(found.first) == 1 and first.get(next(iter(found.first))) == 1:
        return Sums(np.ascontiguousarray(found.numbers, dtype), None)
    below = [_added(leaf, first, dtype) for leaf in found.first]
    rows = [each.reshape(-1, each.shape[-1]) for each in below]
    most = max(each.shape[1] for each in rows)
    rows = [np.pad(each, ((0, 0), (0, most - each.shape[1]))) if each.shape[1] < most else each for each in rows]
    return Sums(found.numbers, rows[0] if len(rows) == 1 else np.concatenate(rows))
