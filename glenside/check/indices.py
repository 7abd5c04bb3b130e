"""Finds the axis that each index selects from, and the bounds that keep indices within it.

A tensor of indices is drawn below the size of its axis. A computed index, of floats or integers, sets no bound while it
is within its axis: the tensors that it is computed from are drawn like all others. Only if drawn numbers lead outside,
those tensors are moved into intervals (`Confined`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from glenside.check.input_generators import declared
from glenside.check.order_dependence import dtypes
from glenside.ir.dtypes import REALS, RECORDS
from glenside.ir.operand import Array
from glenside.ir.operator import Operator
from glenside.ir.operators.casting import cast
from glenside.ir.term import Term, build, nearest, postorder, rebuild_all
from glenside.ir.types import Tensor
from glenside.semantics import Native
from glenside.semantics.interpreter import evaluate


class Pick(NamedTuple):
    """Indices, and the sizes of the axes that they select from: one, or one for each element of their last axis."""

    indices: Term
    sizes: tuple[int, ...]

    def outside(self, indices: Array) -> Array:
        """Returns where an index is outside its axis; negative indices count from the end."""
        sizes = np.asarray(self.sizes if len(self.sizes) > 1 else self.sizes[0])
        return np.asarray((indices < -sizes) | (indices >= sizes))


def picks(*roots: Term) -> list[Pick]:
    """Returns all indices below some terms."""
    return [*dict.fromkeys(_picks(*roots))]


def index_limits(*roots: Term, others: Sequence[Term] = ()) -> dict[str, int | Array]:
    """Returns, for each tensor whose elements are indices (moved or cast), the size of the axis that they select from.

    The size is an array of the tensor's dims if elements select from several axes, with 0 for an element that is no
    index. Limits of tensors that the roots do not read come from the `others`.
    """
    known = _limits(picks(*roots))
    read = declared(*roots)
    return {**{n: limit for n, limit in (_limits(picks(*others)) if others else {}).items() if n not in read}, **known}


def counted_from_ends(*roots: Term) -> set[str]:
    """Returns the tensors that may hold negative indices, which count from the end.

    These are signed tensors whose elements reach every index unchanged: moved, or cast to signed dtypes.
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
    """Replaces half of the indices by the negative ones of the same elements, as far as the dtype holds those."""
    half, least = np.random.default_rng([seed, 5]).random(indices.shape) < 0.5, int(np.iinfo(indices.dtype).min)
    by = np.maximum(indices.astype(np.int64) - limit, least + indices.astype(np.int64))
    return np.where(half & (np.asarray(limit) > 0), by.astype(indices.dtype), indices)


def opaque_limit(*roots: Term) -> int:
    """Returns the exclusive upper bound of whole numbers of black boxes, some of which may serve as indices."""
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
    """Returns the size of the named axis, or of the axes for which each element has an index."""
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
    """Yields integer tensors whose elements are indices: the tensor, the flat positions, and the size for each."""
    values: dict[str, Array] = {}
    known: dict[Term, Term] = {}
    leaves: list[tuple[Tensor, int]] = []
    first = 1
    for term in nearest(pick.indices, stops=lambda t: not (_is_whole(t) and _passes_on(t))):
        if _is_whole(term) and term.operator.name == "access-tensor":
            tensor = term.attributes[0]
            assert isinstance(tensor, Tensor)
            leaves.append((tensor, first))
            numbers = np.arange(first, first + term.access.size).reshape(tuple(term.access.dims))
            first += term.access.size
        else:
            numbers = np.zeros(tuple(term.access.dims), np.int64)
        name = f"{len(values)}"
        known[term] = build(
            "access", build("access-tensor", Tensor(name, term.access.dims, "int64")), term.access.split
        )
        values[name] = numbers
    if not leaves:
        return
    (moved,) = rebuild_all([pick.indices], lambda t, parts: parts[0] if t.operator is cast else None, known)
    (origins,) = evaluate([moved], values)
    sizes = np.broadcast_to(np.asarray(pick.sizes if len(pick.sizes) > 1 else pick.sizes[0]), origins.shape).ravel()
    for tensor, begin in leaves:
        here = np.flatnonzero((origins.ravel() >= begin) & (origins.ravel() < begin + tensor.dims.product()))
        if here.size:
            yield tensor, origins.ravel()[here] - begin, sizes[here]
