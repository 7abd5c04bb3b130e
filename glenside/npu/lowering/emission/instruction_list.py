"""Collects emitted instructions in order, but moves loads of tables and parameters forward.

DMA executes its instructions in order. Loads for later runs, above all of weights, are emitted before those for the
next rows; a permutation table behind these loads would stall the array until they all are done. Tables and parameters
are constant and need few beats, so they may come first, unless their slots are still in use.
"""

from __future__ import annotations

from collections.abc import Iterator

from glenside.npu.isa.base import Instruction, Parameters, Spread, Tables
from glenside.npu.isa.column_unit import Functions

_SOONER = (Tables, Parameters, Functions)


class Written:
    """The instructions of a program.

    ahead number of the first instruction that may belong to later runs; None if there is none
    """

    def __init__(self) -> None:
        self.ahead: int | None = None
        self._own: list[tuple[tuple[int, int, int], Instruction]] = []
        self._used: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self._own)

    def __iter__(self) -> Iterator[Instruction]:
        """Iterates over the instructions in program order."""
        return (own for _, own in sorted(self._own, key=lambda each: each[0]))

    def since(self, number: int) -> list[Instruction]:
        """Returns the instructions added from that number on, in order.

        Instructions added later follow them, unless `ahead` is set.
        """
        assert self.ahead is None, "later loads may still be moved before them"
        return [own for _, own in sorted(self._own[number:], key=lambda each: each[0])]

    def add(self, instruction: Instruction) -> None:
        """Appends an instruction; its producers must have been added."""
        number = len(self._own)
        places, place = [*_places(instruction)], (number, 1, 0)
        if self.ahead is not None and isinstance(instruction, _SOONER):
            free = 1 + max(self._used.get(own, -1) for own in places)
            place = (min(number, max(self.ahead, free)), 0, number)
        self._own.append((place, instruction))
        self._used |= dict.fromkeys(places, number)


def _places(own: Instruction) -> Iterator[tuple[str, int]]:
    """Yields the table slots that an instruction loads or reads; all parameter rows and lookup tables count as one
    slot.
    """
    if isinstance(own, Parameters | Functions) or own.unit == "store":
        yield "parameters", 0
    number = own.number if isinstance(own, Tables) else own.tables if isinstance(own, Spread) else 1
    table = getattr(own, "table", None)
    if isinstance(table, int):
        yield from (("table", table + each) for each in range(number))
