"""Tests that items are rotated over the lanes as if rotated one after the other."""

import numpy as np
import pytest

from glenside.ir.operand import Array
from glenside.npu.lowering.emission.emit_results import turned


def one_by_one(item: Array, lane: Array, beat: Array, items: int, lanes: int) -> list[int]:
    found, step = list[int](), 0
    used = np.zeros((int(beat.max(initial=0)) + 1, lanes), int)
    for number in range(items):
        own = [*zip(beat[item == number].tolist(), lane[item == number].tolist(), strict=True)]
        clashes = [sum(int(used[at, (begin + turn) % lanes]) for at, begin in own) for turn in range(lanes)]
        turn = (found[-1] + step) % lanes if found else 0
        best = min(range(lanes), key=lambda each: clashes[each])
        if clashes[best] < clashes[turn]:
            step, turn = (best - found[-1]) % lanes, best
        for at, begin in own:
            used[at, (begin + turn) % lanes] += 1
        found.append(turn)
    return found


@pytest.mark.parametrize("seed", range(80))
def test_items_are_turned_one_after_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes, items, bytes_ = (int(rng.integers(1, most)) for most in (9, 30, 9))
    item, lane = (own.ravel() for own in np.indices((items, bytes_)))
    beat = rng.integers(0, 40, size=len(item))
    if rng.random() < 0.7:  # as those of tensors are: one byte of each item after the other
        beat = (lane * items + item) // lanes + int(rng.integers(9)) * (rng.random(len(item)) < 0.1)
    if rng.random() < 0.5:
        order = rng.permutation(len(item))
        item, lane, beat = item[order], lane[order], beat[order]
    lane %= lanes
    assert turned(item, lane, beat, items, lanes).tolist() == one_by_one(item, lane, beat, items, lanes)
