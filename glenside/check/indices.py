"""The tensors that are indices, or that those are computed from: what their integers must be below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from glenside.check.order import dtypes
from glenside.check.stimuli import declared
from glenside.ir.dtypes import REALS, RECORDS
from glenside.ir.operand import Array
from glenside.ir.operator import Operator
from glenside.ir.operators.casting import cast
from glenside.ir.term import Term, postorder
from glenside.semantics import Native


def index_limits(*roots: Term) -> dict[str, int]:
    """Tensors that serve as indices -> the size of the smallest axis that they pick from."""
    limits: dict[str, int] = {}
    for indices, size in _picks(*roots):
        for name in declared(indices):
            limits[name] = min(size, limits.get(name, size))
    return limits


def counted_from_ends(*roots: Term) -> set[str]:
    """Tensors whose numbers are indices as they are, wherever they lead to any, and may be below 0: such indices count
    from the end.
    """
    direct, other = set[str](), set[str]()
    for indices, _ in _picks(*roots):
        plain = all(
            term.operator.name == "access-tensor"
            or (term.operator is cast and RECORDS[term.access.dtype].signed)
            or term.index_map is not None
            for term in postorder(indices)
        )
        (direct if plain else other).update(n for n, t in declared(indices).items() if RECORDS[t.dtype].signed)
    return direct - other


def from_end(indices: Array, limit: int, seed: int) -> Array:
    """Half of the indices, counted from the end of an axis of that size; in a dtype that holds fewer, from there on."""
    half, least = np.random.default_rng([seed, 5]).random(indices.shape) < 0.5, int(np.iinfo(indices.dtype).min)
    by = np.maximum(indices.astype(np.int64) - limit, least + indices.astype(np.int64))
    return np.where(half, by.astype(indices.dtype), indices)


def direct_index_limits(*roots: Term) -> dict[str, int]:
    """The same of tensors that are indices themselves, moved or cast, and not what indices are computed from."""
    limits: dict[str, int] = {}
    for indices, size in _picks(*roots):
        stack, seen = [indices], set[Term]()
        while stack:
            term = stack.pop()
            if term in seen or {*dtypes(term.type)} & {*REALS, "bool"}:
                continue
            seen.add(term)
            for name in declared(term) if term.operator.name == "access-tensor" else ():
                limits[name] = min(size, limits.get(name, size))
            if term.operator is cast or term.index_map is not None:
                stack += term.children
    return limits


def opaque_limit(*roots: Term) -> int:
    """What all whole numbers of black boxes must be below: some may serve as indices."""
    sizes = [size for indices, size in _picks(*roots) if any(t.operator.opaque for t in postorder(indices))]
    return max(1, min([Native.opaque_below, *sizes]))


def _picks(*roots: Term) -> Iterator[tuple[Term, int]]:
    """Terms of indices, with the sizes of the axes that they pick from."""
    for term in postorder(*roots):
        if _picks_by_indices(term.operator):
            arguments = dict(zip((f.name for f in term.operator.fields), term.arguments(), strict=False))
            yield arguments["indices"], _picked_size(arguments)


@cache
def _picks_by_indices(operator: Operator) -> bool:
    return any(field.name == "indices" for field in operator.fields)


def _picked_size(arguments: Mapping[str, Any]) -> int:
    """The smallest axis that indices pick from: the one that is named, or those that each place has a number for."""
    dims = arguments["a"].access.dims
    if "axis" in arguments:
        return int(dims[arguments["axis"]])
    first, count = arguments["shared"], arguments["indices"].access.dims[-1]
    return int(min(dims[first : first + count]))
