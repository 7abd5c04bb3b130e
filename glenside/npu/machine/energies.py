"""Estimates the energies of a machine from published tables.

A memory's energy per access is interpolated and extrapolated in its size, linearly on a log-log scale. The energy of
an access of several bytes is divided evenly among its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

from glenside.ir.errors import BadInput
from glenside.npu.machine.model import Energy, Machine


@dataclass(frozen=True)
class Published:
    """A published table of energies in picojoules.

    multiply  energy of a product of two int8
    add       energy of an addition of int32
    memory    bytes of a memory -> energy of an access of `width` bytes
    width     bytes per access in `memory` and `dram`
    dram      energy of an access of `width` bytes
    source    citation
    """

    multiply: float
    add: float
    memory: Mapping[int, float]
    width: int
    dram: float
    source: str

    def byte(self, size: int) -> float:
        """Returns the picojoules per byte accessed in a memory of `size` bytes."""
        known = sorted((log(own), log(energy)) for own, energy in self.memory.items())
        at = log(max(size, 1))
        after = next((n for n in range(1, len(known) - 1) if at <= known[n][0]), len(known) - 1)
        (x, y), (right, top) = known[after - 1], known[after]
        return exp(y + (at - x) * (top - y) / (right - x)) / self.width

    def of(self, name: str, machine: Machine) -> Energy:
        """Estimates a machine's energies; a bank, an accumulator column and the weights are one memory each."""
        return Energy(
            product=self.multiply + self.add,
            lane_byte=self.byte(machine.depth),
            weight_byte=self.byte(machine.weight_bytes),
            accumulator_word=4 * self.byte(4 * machine.accumulators),
            dram_byte=self.dram / self.width,
            source=self.source,
            table=name,
        )


PUBLISHED: Mapping[str, Published] = {
    "horowitz-2014": Published(
        multiply=0.2,
        add=0.1,
        memory={8 << 10: 10.0, 32 << 10: 20.0, 1 << 20: 100.0},
        width=8,
        dram=1950.0,
        source=(
            "M. Horowitz, Computing's Energy Problem (and what we can do about it), ISSCC 2014, figure 1.1.9: 45 nm,"
            " 0.9 V; memories by their size between its caches of 8 KB, 32 KB and 1 MB, DRAM the middle of its 1.3 to"
            " 2.6 nJ"
        ),
    )
}
"""Published tables by name."""


def named(name: str, machine: Machine) -> Energy:
    """Estimates a machine's energies by the named table. Raises BadInput if there is no table of that name."""
    if name not in PUBLISHED:
        raise BadInput(f"a published table of energies is one of {', '.join(PUBLISHED)}, got {name!r}")
    return PUBLISHED[name].of(name, machine)
