"""The area of a machine without synthesis: from what Yosys made of small ones, and the bits of its memories.

`glenside area` measures: minutes for each machine. Here gates are told from arrays of 8 and 16 lanes by 8 and 16
columns behind ports of 32 and 64 bytes: each part has fixed + lane R + column C + element R C gates, each of which
grows by the byte of the port, and beside them the array its triangles of registers. Of memories the bits are exact. All
else than R, C, B and the memories' sizes is taken to be as it is usually, pipelined; addresses of other sizes have a
few bits more or less, of which nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from glenside.npu.isa.encoding import words
from glenside.npu.isa.fields import UNITS
from glenside.npu.machine.model import FUNCTION, PARAMETER_ENTRY, TABLE_ENTRY, Machine
from glenside.npu.rtl.synthesis import GATE, TRANSISTORS, Growth, Part, delays

RAM_BIT = 6 / GATE
"""Gates of a bit of RAM: six transistors."""
REGISTER_BIT = TRANSISTORS["DFF_P"] / GATE
"""Gates of a bit of memory that is read without a clock: a flip-flop."""
COPIES = 4
"""Of lane tables: one for each unit that reads them at once."""


class _Measured(NamedTuple):
    """Gates of a part behind a port of `PORTS[0]` bytes, and of `PORTS[1]`: as those of `Growth`."""

    narrow: tuple[float, float, float, float]
    wide: tuple[float, float, float, float]


PORTS = (32, 64)
"""Bytes of the ports that were measured."""
MEASURED: Mapping[str, _Measured] = {
    "array": _Measured((-323, 15.9375, -785.75, 1259.375), (-323, 15.9375, -785.75, 1259.375)),
    "store": _Measured((5298.5, 1711.5, 11021.875, 14.328125), (5298.5, 1711.5, 11021.875, 14.328125)),
    "requantise": _Measured((162.5, -2.8125, 9482.625, 0.3515625), (-66.5, 8.875, 9511.25, -1.109375)),
    "dma": _Measured((25699, 5113.625, 1073.125, 9.6484375), (40081.5, 8856.3125, 1844.125, -1.0234375)),
    "accumulators": _Measured((718, 127.375, 1984.125, 2.6953125), (718, 127.375, 1984.125, 2.6953125)),
    "stream": _Measured((1921, 1491.25, 0, 0), (1921, 1491.25, 0, 0)),
    "functions": _Measured((173.5, 0, 681.5, 0), (208.5, 0, 1366, 0)),
    "lanes": _Measured((8.5, 659.9375, 0, 0), (8.5, 659.9375, 0, 0)),
    "npu": _Measured((8079.5, -1.75, -2.0625, 0.1640625), (8077.5, -0.75, -1.9375, 0.1015625)),
    "load": _Measured((766.5, -1.25, 66.5625, 0.0859375), (766.5, -1.25, 66.5625, 0.0859375)),
    "weights": _Measured((-5.5, 0, 21.25, 0), (-5.5, 0, 21.25, 0)),
    "queues": _Measured((1426, 1.5, 1.5, -0.1875), (1425, 1.625, 1.625, -0.203125)),
    "parameters": _Measured((35.5, 0, 1.875, 0), (36.5, 0, 0.875, 0)),
    "tables": _Measured((63.5, 0, 0, 0), (63.5, 0, 0, 0)),
}
"""By part, as `python -m benchmarks.fit_told_area` prints them, with functions of bytes and operations on columns."""


def told(machine: Machine) -> Mapping[str, Part]:
    """The parts of a machine; flip-flops are not told apart."""
    bits, (least, most) = memories(machine), PORTS
    parts = {}
    nothing = _Measured((0, 0, 0, 0), (0, 0, 0, 0))
    for name in dict.fromkeys((*MEASURED, *bits)):
        narrow, wide = MEASURED.get(name, nothing)
        share = (machine.bandwidth - least) / (most - least)
        growth = Growth(*(a + share * (b - a) for a, b in zip(narrow, wide, strict=True)))
        more = REGISTER_BIT * delays(name, machine.rows, machine.columns)
        parts[name] = Part(max(0.0, growth.at(machine.rows, machine.columns)) + more, **bits.get(name, {}))
    return parts


def gates(machine: Machine) -> float:
    """All of a machine in NANDs of two inputs, its memories with it as so many gates a bit."""
    return sum(part.gates + RAM_BIT * part.ram + REGISTER_BIT * part.registers for part in told(machine).values())


def memories(machine: Machine) -> Mapping[str, Mapping[str, int]]:
    """Bits of each part's memories by their kind, as Yosys counts them."""
    waiting = 1 << (machine.latency + 15).bit_length()
    return {
        "lanes": {"ram": 8 * machine.rows * machine.depth},
        "weights": {"ram": 8 * machine.columns * machine.weight_rows},
        "tables": {"ram": COPIES * machine.tables * 8 * TABLE_ENTRY * machine.entries},
        "parameters": {"ram": machine.parameters * 8 * PARAMETER_ENTRY * machine.columns},
        "functions": {"ram": 8 * machine.functions * FUNCTION * machine.columns},
        "accumulators": {"registers": 32 * machine.columns * machine.accumulators},
        "queues": {"registers": 64 * machine.instructions * sum(words(unit) for unit in UNITS)},
        "dma": {"registers": waiting * _WAITING},
    }


_WAITING = 136
"""Bits of what DMA keeps of a beat that is on its way."""
