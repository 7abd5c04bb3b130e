"""Programs of which only the cycles are asked for, and only where these are few: as soon as it is known that they are
not, writing ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glenside.npu.isa.fields import UNITS
from glenside.npu.lowering.util.identity_memo import Again
from glenside.npu.machine.model import Machine
from glenside.npu.model.cycle_model import delays, dma_delay, stream_adds


class TooLong(Exception):
    """A program takes as long as one that is there; `written` are its instructions until that was known."""

    def __init__(self, written: int) -> None:
        super().__init__()
        self.written = written


@dataclass(frozen=True)
class Rest:
    """Cycles that units are busy for, at least, once a layer is written: with layers behind it, but for weights of the
    next one.
    """

    stream: int = 0
    dma: int = 0


@dataclass(frozen=True)
class Trial:
    """A program of which others are made, too.

    rest   what comes behind each layer, by number, at least
    again  what is known of each layer as it is mapped, by name
    clock  the machine whose cycles count, which may be larger than the one that it is planned for
    """

    rest: Sequence[Rest]
    again: Mapping[str, Again]
    clock: Machine


def enough(most: int, rest: Rest, machine: Machine) -> dict[str, int]:
    """Cycles of each unit with which a program takes so many, where that much is still to come."""
    found = {unit: most - late for unit, late in delays(machine).items()}
    found["stream"] = most - before_rows(machine) - after_rows(machine) - rest.stream
    found["dma"] -= rest.dma
    return {unit: found[unit] for unit in UNITS}


def before_rows(machine: Machine) -> int:
    """Cycles before a program's first row streams: a beat of weights comes, and these load."""
    return 1 + dma_delay(machine) + machine.rows


def after_rows(machine: Machine) -> int:
    """Cycles from its last row's until what that makes is in DRAM, by way of the accumulators and a beat."""
    return stream_adds(machine) + machine.columns - 1 + 1 + dma_delay(machine)
