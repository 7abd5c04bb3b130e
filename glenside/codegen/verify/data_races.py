"""Finds data races between the steps of a parallel loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from glenside.codegen.loop_ir.accesses import Access
from glenside.codegen.loop_ir.footprints import distinct, footprint, moves_evenly
from glenside.ir.index_map import Axis
from glenside.ir.operand import Array


def collision(own: Sequence[Access], axis: Axis, fixed: Mapping[Axis, int], picks: Mapping[str, int]) -> int | None:
    """Returns the index of an element that one step of an axis writes and another uses; None if there is none."""
    if axis.size < 2:
        return None
    moves = {moves_evenly(access, (axis,)) for access in own}
    if len(moves) == 1 and None not in moves:
        (((move,),),) = (moves,)  # type: ignore[misc]
        if _span(own, {**fixed, axis: 0}, picks) <= abs(move):
            return None
        written, used = _touched(own, {**fixed, axis: 0}, picks)
        return _meets_itself(written, used, abs(move), axis.size)
    every = [_touched(own, {**fixed, axis: step}, picks) for step in range(axis.size)]
    places = np.concatenate([used for _, used in every])
    steps = np.repeat(np.arange(axis.size), [used.size for _, used in every])
    writes = np.concatenate([np.isin(used, written) for written, used in every])
    order = np.argsort(places, kind="stable")
    places, steps, writes = places[order], steps[order], writes[order]
    several = np.flatnonzero(places[1:] == places[:-1])
    for place in distinct(places[several]):  # a step lists an index once, so these are of several steps
        if writes[places == place].any():
            return int(place)
    return None


def _span(own: Sequence[Access], fixed: Mapping[Axis, int], picks: Mapping[str, int]) -> int:
    """Returns the number of elements from the first to the last index that is used."""
    found = [one.bounds for access in own if not (one := footprint(access, fixed, picks)).is_empty]
    return max(last for _, last in found) - min(first for first, _ in found) + 1 if found else 0


def _touched(own: Sequence[Access], fixed: Mapping[Axis, int], picks: Mapping[str, int]) -> tuple[Array, Array]:
    """Returns the indices that are written, and all that are used, sorted."""
    found = [(access, footprint(access, fixed, picks).places()) for access in own]
    nothing = np.empty(0, np.int64)
    written = distinct(np.concatenate([nothing, *(places for access, places in found if access.writes)]))
    return written, distinct(np.concatenate([nothing, *(places for _, places in found)]))


def _meets_itself(written: Array, used: Array, move: int, count: int) -> int | None:
    """Returns an index that one step writes and another, fewer than `count` steps away, uses; None if there is none.

    `written` and `used` are the indices of one step, and each step moves them by `move`.
    """
    if not written.size:
        return None
    if move == 0:
        return int(written[0])
    low = int(used.min())
    remainder, quotient = (used - low) % move, (used - low) // move
    order = np.lexsort((quotient, remainder))
    remainder, quotient, places = remainder[order], quotient[order], used[order]
    writes = np.isin(places, written)
    near = (remainder[1:] == remainder[:-1]) & (quotient[1:] - quotient[:-1] < count) & (writes[1:] | writes[:-1])
    return int(places[1:][near][0]) if near.any() else None
