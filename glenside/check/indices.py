"""Integers that select elements: the axis that each selects from, and inputs that keep all of them within it.

A tensor that is an index itself is drawn below the size of its axis. An index that is computed, of floats or integers,
limits nothing as long as it stays within its axis: the tensors that it is computed from are drawn as all others are.
Only where drawn numbers lead outside are those tensors moved into intervals that do not (`Confined`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from glenside.check.order import dtypes
from glenside.check.stimuli import declared
from glenside.ir.dtypes import REALS, RECORDS
from glenside.ir.operand import Array
from glenside.ir.operator import Operator
from glenside.ir.operators.casting import cast
from glenside.ir.term import Term, nearest, postorder, rebuild
from glenside.ir.types import Tensor
from glenside.semantics import Native
from glenside.semantics.interpreter import evaluate


class Pick(NamedTuple):
    """Indices, and the axes that they select from: one, or one for each number of their last axis."""

    indices: Term
    sizes: tuple[int, ...]

    def outside(self, indices: Array) -> Array:
        """Whether each index is outside of its axis, from which it may count from the end."""
        sizes = np.asarray(self.sizes if len(self.sizes) > 1 else self.sizes[0])
        return np.asarray((indices < -sizes) | (indices >= sizes))


def picks(*roots: Term) -> list[Pick]:
    """All indices below some terms."""
    return [*dict.fromkeys(_picks(*roots))]


def index_limits(*roots: Term, others: Sequence[Term] = ()) -> dict[str, int | Array]:
    """Tensors that serve as indices themselves, moved or cast -> the size of the axis that they select from. It is an
    array of the tensor's dims where elements select from several axes; 0 is the limit of an element that is no index.

    Limits of tensors that the roots do not read come from the others.
    """
    known = _limits(picks(*roots))
    read = declared(*roots)
    return {**{n: limit for n, limit in (_limits(picks(*others)) if others else {}).items() if n not in read}, **known}


def counted_from_ends(*roots: Term) -> set[str]:
    """Tensors whose numbers are indices as they are, wherever they lead to any, and may be below 0: such indices count
    from the end.
    """
    direct, other = set[str](), set[str]()
    for indices, _ in picks(*roots):
        plain = all(
            term.operator.name == "access-tensor"
            or (term.operator is cast and RECORDS[term.access.dtype].signed)
            or term.index_map is not None
            for term in postorder(indices)
        )
        (direct if plain else other).update(n for n, t in declared(indices).items() if RECORDS[t.dtype].signed)
    return direct - other


def from_end(indices: Array, limit: int | Array, seed: int) -> Array:
    """Half of the indices, counted from the end of an axis of that size; in a dtype that holds fewer, from there on."""
    half, least = np.random.default_rng([seed, 5]).random(indices.shape) < 0.5, int(np.iinfo(indices.dtype).min)
    by = np.maximum(indices.astype(np.int64) - limit, least + indices.astype(np.int64))
    return np.where(half & (np.asarray(limit) > 0), by.astype(indices.dtype), indices)


def opaque_limit(*roots: Term) -> int:
    """What all whole numbers of black boxes must be below: some may serve as indices."""
    sizes = [min(p.sizes) for p in picks(*roots) if any(t.operator.opaque for t in postorder(p.indices))]
    return max(1, min([Native.opaque_below, *sizes]))


def _picks(*roots: Term) -> Iterator[Pick]:
    for term in postorder(*roots):
        if _picks_by_indices(term.operator):
            arguments = dict(zip((f.name for f in term.operator.fields), term.arguments(), strict=False))
            yield Pick(arguments["indices"], _picked_sizes(arguments))


@cache
def _picks_by_indices(operator: Operator) -> bool:
    return any(field.name == "indices" for field in operator.fields)


def _picked_sizes(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """The axis that is named, or those that each place has a number for."""
    dims = arguments["a"].access.dims
    if "axis" in arguments:
        return (int(dims[arguments["axis"]]),)
    first, count = arguments["shared"], arguments["indices"].access.dims[-1]
    return tuple(int(n) for n in dims[first : first + count])


def _limits(found: Sequence[Pick]) -> dict[str, int | Array]:
    most: dict[Tensor, Array] = {}
    for pick in found:
        for tensor, elements, sizes in _direct(pick):
            np.minimum.at(most.setdefault(tensor, np.full(tensor.dims.product(), _NO_INDEX)), elements, sizes)
    limits: dict[str, int | Array] = {}
    for tensor, each in most.items():
        if each.size and (each == each[0]).all():
            limits[tensor.name] = int(each[0])
        else:
            limits[tensor.name] = np.where(each == _NO_INDEX, 0, each).reshape(tuple(tensor.dims))
    return limits


_NO_INDEX = np.iinfo(np.int64).max


def _is_whole(term: Term) -> bool:
    return not {*dtypes(term.type)} & {*REALS, "bool"}


def _passes_on(term: Term) -> bool:
    """True if a term's elements are its operands', moved or cast."""
    return bool(term.children) and (term.operator is cast or term.index_map is not None)


def _direct(pick: Pick) -> Iterator[tuple[Tensor, Array, Array]]:
    """Tensors of integers of which elements are indices as they are: which elements, and the size that limits each."""
    given: dict[Term, Array] = {}
    leaves: list[tuple[Tensor, int]] = []
    first = 1
    for term in nearest(pick.indices, stops=lambda t: not (_is_whole(t) and _passes_on(t))):
        if _is_whole(term) and term.operator.name == "access-tensor":
            tensor = term.attributes[0]
            assert isinstance(tensor, Tensor)
            leaves.append((tensor, first))
            given[term] = np.arange(first, first + term.access.size).reshape(tuple(term.access.dims))
            first += term.access.size
        else:
            given[term] = np.zeros(tuple(term.access.dims), np.int64)
    if not leaves:
        return
    moved = rebuild(pick.indices, lambda t, children: t if t in given else children[0] if t.operator is cast else None)
    (origins,) = evaluate([moved], {}, given=given)
    sizes = np.broadcast_to(np.asarray(pick.sizes if len(pick.sizes) > 1 else pick.sizes[0]), origins.shape).ravel()
    for tensor, begin in leaves:
        here = np.flatnonzero((origins.ravel() >= begin) & (origins.ravel() < begin + tensor.dims.product()))
        if here.size:
            yield tensor, origins.ravel()[here] - begin, sizes[here]
