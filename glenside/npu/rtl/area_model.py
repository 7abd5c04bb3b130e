"""Estimates the area of a machine without synthesis, from synthesized small machines and exact memory bits.

`glenside area` synthesizes, which takes minutes per machine. This model was fitted to arrays of 8 and 16 rows by 8 and
16 columns with ports of 32 and 64 bytes. A part has fixed + lane R + column C + element R C gates. The coefficients are
linear in the port's bytes; the array has triangles of delay registers in addition. Options other than R, C, B and
memory sizes are assumed to be the defaults, pipelined. The model neglects the few gates by which address widths differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from glenside.npu.isa.encoding import words
from glenside.npu.isa.fields import UNITS
from glenside.npu.machine.model import FUNCTION, PARAMETER_ENTRY, TABLE_ENTRY, Machine
from glenside.npu.rtl.synthesis import GATE, TRANSISTORS, Growth, Part, delays

RAM_BIT = 6 / GATE
"""Gates per bit of RAM: six transistors."""
REGISTER_BIT = TRANSISTORS["DFF_P"] / GATE
"""Gates per bit of memory with asynchronous reads: a flip-flop."""
COPIES = 4
"""Copies of the permutation tables: one for each unit that reads them in parallel."""


class _Measured(NamedTuple):
    """The coefficients of `Growth` of a part's gates, for ports of `PORTS[0]` and `PORTS[1]` bytes."""

    narrow: tuple[float, float, float, float]
    wide: tuple[float, float, float, float]


PORTS = (32, 64)
"""Bytes of the measured ports."""
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
"""Coefficients by part, as printed by `python -m benchmarks.fit_area_model`; with lookup tables and column unit."""


def predicted_parts(machine: Machine) -> Mapping[str, Part]:
    """Estimates the parts of a machine; gates include flip-flops, which are not estimated separately."""
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
    """Estimates the area of a whole machine, memories included, in two-input NAND gates."""
    return sum(
        part.gates + RAM_BIT * part.ram + REGISTER_BIT * part.registers for part in predicted_parts(machine).values()
    )


def memories(machine: Machine) -> Mapping[str, Mapping[str, int]]:
    """Returns the memory bits of each part by kind, as Yosys counts them."""
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
"""Bits that DMA stores per beat in flight."""
