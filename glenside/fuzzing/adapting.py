"""Adapts a term to a type that an operator requires, so that any term can be the operand of any operator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

from glenside.builder.layout import split_at
from glenside.ir.dtypes import limits
from glenside.ir.term import Term, build

SIZE_LIMIT = 1 << 16
"""The maximum elements of a term."""
RANK_LIMIT = 7


def fits(term: Term) -> bool:
    """True if the term is small enough to be evaluated in milliseconds."""
    return term.access.size <= SIZE_LIMIT and term.access.rank <= RANK_LIMIT


def cast_to(term: Term, dtype: str) -> Term:
    """Casts a term, if it has another dtype."""
    return term if term.access.dtype == dtype else build("cast", term, dtype)


def reshaped(term: Term, dims: Sequence[int]) -> Term:
    """Reshapes to ()(dims)."""
    return build("access-reshape", term, ((), tuple(dims)))


def adapted(term: Term, dims: Sequence[int], dtype: str, pick: random.Random) -> Term | None:
    """Returns a term of type ()(dims) and this dtype that is computed from the given one, or None.

    Elements are moved as little as needed: by broadcasting, transposing, reshaping, or by cropping, padding or
    repeating the flattened elements.
    """
    dims = tuple(dims)
    term = split_at(cast_to(term, dtype), 0)
    own = tuple(term.access.dims)
    if own == dims:
        return term
    if len(own) == len(dims) and all(a in (1, b) for a, b in zip(own, dims, strict=True)):
        return build("access-broadcast", term, ((), dims))
    if sorted(own) == sorted(dims) and pick.random() < 0.7:
        order, left = [], list(range(len(own)))
        for size in dims:
            axis = pick.choice([axis for axis in left if own[axis] == size])
            left.remove(axis)
            order.append(axis)
        return build("access-transpose", term, order)
    have, want = prod(own), prod(dims)
    if have == want:
        return reshaped(term, dims)
    if not have:
        return None
    flat = reshaped(term, (have,))
    if want < have:
        low = pick.randint(0, have - want)
        return reshaped(build("access-slice", flat, 0, low, low + want), dims)
    if have == 1:
        return reshaped(build("access-broadcast", flat, ((), (want,))), dims)
    if pick.random() < 0.5:
        before = pick.randint(0, want - have)
        return reshaped(build("access-pad", flat, "zero-padding", 0, before, want - have - before), dims)
    times = -(-want // have)
    rows = build("access-broadcast", build("access-insert-axis", flat, 0), ((), (times, have)))
    return reshaped(build("access-slice", reshaped(rows, (times * have,)), 0, 0, want), dims)


def below(term: Term, size: int, dims: Sequence[int], dtype: str, pick: random.Random) -> Term | None:
    """Returns indices from 0 to size - 1 of these dims and of an integer dtype, computed from a term, or None.

    The last step of the computation keeps them in this range, whatever the value of the term.
    """
    dims = tuple(dims)
    most = min(size, limits(dtype)[1] + 1)
    source = term.access.dtype
    way = pick.choice(("clip", "clip", "argsort", "argmax", "mod"))
    if way == "clip":
        if source == "bool" or source not in _COMPUTED:
            term = build("cast", term, "int64")
        bounded = build("compute", f"(clip 0 {most - 1})", adapted(term, dims, term.access.dtype, pick) or term)
        return cast_to(bounded, dtype) if tuple(bounded.access.dims) == dims else None
    if way == "mod":
        whole = adapted(term, dims, "int32", pick)
        if whole is None:
            return None
        pair = build("access-insert-axis", whole, 0)
        size_of = build("full", (1, *dims), str(most), "int32")
        joined = build("access-concatenate", pair, size_of, 0)
        return cast_to(split_at(build("compute", "(mod floor)", joined), 0), dtype)
    rows = prod(dims)
    if way == "argsort":
        # A sort of `most` numbers gives each index below it once.
        length = pick.randint(1, min(most, 64))
        if not dims or dims[-1] > length:
            return None
        whole = adapted(term, (*dims[:-1], length), _ordered(source), pick)
        if whole is None:
            return None
        sorted_ = build("compute", "(argsort descending)", split_at(whole, len(dims) - 1))
        return cast_to(split_at(build("access-slice", sorted_, len(dims) - 1, 0, dims[-1]), 0), dtype)
    length = pick.randint(1, min(most, 16))
    if rows * length > SIZE_LIMIT:
        return None
    whole = adapted(term, (*dims, length), _ordered(source), pick)
    if whole is None:
        return None
    return cast_to(split_at(build("compute", "argmax", split_at(whole, len(dims))), 0), dtype)


_COMPUTED = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16")


def _ordered(dtype: str) -> str:
    """Returns the dtype in which elements are sorted: the given one, or int32 for a dtype that is only stored."""
    return dtype if dtype in _COMPUTED else "int32"
