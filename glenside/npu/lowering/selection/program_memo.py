"""Remembers the programs that this process made of a network; they run on any machine at least as large."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from contextlib import suppress

import numpy as np

from glenside.ir.errors import BadInput
from glenside.npu.analysis.retargeting import cycles_on, is_at_least, retargeted
from glenside.npu.machine.model import Machine
from glenside.npu.program.program import NpuProgram
from glenside.quantization.layers import IntegerNetwork

_MAX_INSTRUCTIONS = 200_000
"""Maximum number of instructions of all programs remembered; the network used least recently is evicted first."""
_PROGRAMS: OrderedDict[bytes, list[NpuProgram]] = OrderedDict()


class Remembered:
    """The programs of a network, for inputs drawn from a seed."""

    def __init__(self, network: IntegerNetwork, seed: int) -> None:
        content = hashlib.sha256(repr((str(network.program), seed, network.inputs, network.outputs)).encode())
        for name, values in sorted(network.constants.items()):
            content.update(name.encode() + np.ascontiguousarray(values).tobytes())
        self.key = content.digest()

    def best(self, machine: Machine) -> tuple[int, NpuProgram] | None:
        """Returns the fewest cycles on a machine and the retargeted program; None if no program runs there."""
        own = [each for each in _PROGRAMS.get(self.key, ()) if is_at_least(machine, each.machine)]
        for cycles, _, program in sorted((cycles_on(each, machine), n, each) for n, each in enumerate(own)):
            with suppress(BadInput):
                return cycles, retargeted(program, machine)
        return None

    def add(self, program: NpuProgram) -> None:
        """Stores a program under the machine that it was planned for."""
        _PROGRAMS.setdefault(self.key, []).append(program)
        _PROGRAMS.move_to_end(self.key)
        while len(_PROGRAMS) > 1 and sum(each.size for own in _PROGRAMS.values() for each in own) > _MAX_INSTRUCTIONS:
            _PROGRAMS.popitem(last=False)


def forget() -> None:
    """Forgets the programs of all networks."""
    _PROGRAMS.clear()
