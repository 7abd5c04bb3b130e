"""Tests that bytes at the same distances are transferred by the same beats, at other addresses."""

from __future__ import annotations

import numpy as np
import pytest

from glenside.npu.lowering.transfer.permutation_table_transfers import Transfers, transfers
from glenside.npu.machine.model import Machine

MACHINE = Machine(8, 8, bandwidth=16)


def _drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    row, lane = (own.reshape(-1) for own in np.indices((12, 8)))
    return draw.permutation(300)[: len(row)] + 5, lane, row


@pytest.mark.parametrize("beats", [0, 3, 1000])
@pytest.mark.parametrize("rows", [0, 7])
def test_those_elsewhere_are_the_same(beats: int, rows: int) -> None:
    addresses, lane, row = _drawn(0)
    known = Transfers(MACHINE)
    assert known.of(addresses, lane, row) == transfers(addresses, lane, row, MACHINE)
    there = addresses + beats * MACHINE.bandwidth, lane, row + rows
    assert known.of(*there) == transfers(*there, MACHINE)


def test_others_of_the_same_sums_are_told_apart() -> None:
    addresses, lane, row = _drawn(1)
    known = Transfers(MACHINE)
    known.of(addresses, lane, row)
    others = addresses[::-1].copy(), lane, row
    assert known.of(*others) == transfers(*others, MACHINE)
    assert known.of(addresses + 1, lane, row) == transfers(addresses + 1, lane, row, MACHINE)  # other bytes of beats


def test_nothing_takes_no_beats() -> None:
    nothing = np.zeros(0, np.int64)
    assert Transfers(MACHINE).of(nothing, nothing, nothing) == []
