"""Instructions one after the other as they are written down, but for tables and parameters that come sooner.

DMA takes its instructions in order. What is brought for later runs, weights above all, is written down before what the
next rows need; a lane table behind it would keep the array waiting until all of that is there. Tables and parameters
are few beats, constant, and may come before it where nothing needs their place until then.
"""

from __future__ import annotations

from collections.abc import Iterator

from glenside.npu.isa.base import Instruction, Parameters, Spread, Tables
from glenside.npu.isa.column_unit import Functions

_SOONER = (Tables, Parameters, Functions)


class Written:
    """The instructions of a program.

    ahead  the number of the first instruction that may be for later; None: none is
    """

    def __init__(self) -> None:
        self.ahead: int | None = None
        self._own: list[tuple[tuple[int, int, int], Instruction]] = []
        self._used: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self._own)

    def __iter__(self) -> Iterator[Instruction]:
        """In their order."""
        return (own for _, own in sorted(self._own, key=lambda each: each[0]))

    def since(self, number: int) -> list[Instruction]:
        """Returns the instructions added from that number on, in order.

        Later ones come behind them, unless some are `ahead`.
        """
        assert self.ahead is None, "what is ahead may come before them"
        return [own for _, own in sorted(self._own[number:], key=lambda each: each[0])]

    def add(self, instruction: Instruction) -> None:
        """One more; what it needs comes before it."""
        number = len(self._own)
        places, place = [*_places(instruction)], (number, 1, 0)
        if self.ahead is not None and isinstance(instruction, _SOONER):
            free = 1 + max(self._used.get(own, -1) for own in places)
            place = (min(number, max(self.ahead, free)), 0, number)
        self._own.append((place, instruction))
        self._used |= dict.fromkeys(places, number)


def _places(own: Instruction) -> Iterator[tuple[str, int]]:
    """The slots of tables that an instruction fills or looks at; rows of parameters, and functions, as if they were
    one.
    """
    if isinstance(own, Parameters | Functions) or own.unit == "store":
        yield "parameters", 0
    number = own.number if isinstance(own, Tables) else own.tables if isinstance(own, Spread) else 1
    table = getattr(own, "table", None)
    if isinstance(table, int):
        yield from (("table", table + each) for each in range(number))
