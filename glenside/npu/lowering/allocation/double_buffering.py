"""Where rows are when they stream: halves of the lanes, of which one is filled while the other is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.lowering.tiling.tile_order import Order, Run


@dataclass(frozen=True)
class Chunk:
    """What half of the lanes holds at a time: rows by their numbers, from its first address on, for the runs from
    `begin` until before `end`.
    """

    rows: Array
    half: int
    begin: int
    end: int


@dataclass(frozen=True)
class Plan:
    """Where the runs of a layer find their rows: the addresses of each, and the chunk in which they are."""

    runs: list[Run]
    addresses: list[Array]
    chunks: list[Chunk]
    chunk_of: list[int]

    @staticmethod
    def of(order: Order, half: int) -> Plan:
        """Of a layer whose first chunk is in that half."""
        of_tile = order.rows.of_tile
        where = np.full(len(order.rows.numbers), -1)
        first = np.zeros(len(where), np.int64)
        plan, held, used = Plan([], [], [], []), list[Array](), 0

        def close() -> None:
            nonlocal half, used
            begin = plan.chunks[-1].end if plan.chunks else 0
            plan.chunks.append(Chunk(np.concatenate(held), half, begin, len(plan.runs)))
            where[:], used, half = -1, 0, 1 - half
            held.clear()

        for run in order.runs():
            wanted = of_tile[run.tile, run.begin : run.end]
            new = _distinct(wanted[where[wanted] < 0], first)
            if used + len(new) > order.depth:
                close()
                new = _distinct(wanted, first)
            where[new] = order.firsts[half] + used + np.arange(len(new))
            held.append(new)
            used += len(new)
            plan.runs.append(run)
            plan.addresses.append(where[wanted])
            plan.chunk_of.append(len(plan.chunks))
        close()
        return plan


def _distinct(numbers: Array, first: Array) -> Array:
    """Each once, in the order in which they appear; `first` has room for a number of each there may be."""
    places = np.arange(len(numbers))
    first[numbers[::-1]] = places[::-1]
    found: Array = numbers[first[numbers] == places]
    return found
