"""Ends the emission of a candidate program as soon as it is known to take too many cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glenside.npu.isa.fields import UNITS
from glenside.npu.lowering.util.identity_memo import Memo
from glenside.npu.machine.model import Machine
from glenside.npu.model.cycle_model import delays, dma_delay, stream_adds


class TooLong(Exception):
    """Ends an emission: the program takes no fewer cycles than another one. `written`: instructions emitted so far."""

    def __init__(self, written: int) -> None:
        super().__init__()
        self.written = written


@dataclass(frozen=True)
class Rest:
    """Least busy cycles of units with the layers behind an emitted one, without the next layer's weights."""

    stream: int = 0
    dma: int = 0


@dataclass(frozen=True)
class Trial:
    """The context of candidate programs of one network.

    rest   least cycles behind each layer, by number
    again  the memo of each mapped layer, by name
    clock  the machine whose cycles count; it may be larger than the machine that programs are planned for
    """

    rest: Sequence[Rest]
    again: Mapping[str, Memo]
    clock: Machine


def enough(most: int, rest: Rest, machine: Machine) -> dict[str, int]:
    """Returns the busy cycles of each unit from which on a program takes at least `most` cycles."""
    found = {unit: most - late for unit, late in delays(machine).items()}
    found["stream"] = most - before_rows(machine) - after_rows(machine) - rest.stream
    found["dma"] -= rest.dma
    return {unit: found[unit] for unit in UNITS}


def before_rows(machine: Machine) -> int:
    """Returns the least cycles before a program's first row streams: a beat of weights arrives, and weights load."""
    return 1 + dma_delay(machine) + machine.rows


def after_rows(machine: Machine) -> int:
    """Returns the least cycles from the last row until its results are in DRAM."""
    return stream_adds(machine) + machine.columns - 1 + 1 + dma_delay(machine)
