"""Double buffering of streamed rows: one half of the banks is filled while the other is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.lowering.tiling.tile_order import Order, Run


@dataclass(frozen=True)
class Chunk:
    """The rows, by number, that one half of the banks holds for the runs from `begin` to `end`, exclusive."""

    rows: Array
    half: int
    begin: int
    end: int


@dataclass(frozen=True)
class Plan:
    """The addresses of the rows of each run, and the chunk that holds them."""

    runs: list[Run]
    addresses: list[Array]
    chunks: list[Chunk]
    chunk_of: list[int]

    @staticmethod
    def of(order: Order, half: int) -> Plan:
        """Plans a layer whose first chunk is in the given half."""
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
    """Returns each number once, in order of appearance; `first` is scratch space indexed by number."""
    places = np.arange(len(numbers))
    first[numbers[::-1]] = places[::-1]
    found: Array = numbers[first[numbers] == places]
    return found
