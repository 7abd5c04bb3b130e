"""A program of the machine: four queues of instructions, the DRAM they work on, and the names of what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.instructions import UNITS, Instruction
from glenside.npu.machine import Machine


@dataclass(frozen=True)
class Place:
    """A tensor in DRAM: where its first byte is, and what it is; its bytes follow in row-major order."""

    address: int
    shape: tuple[int, ...]
    dtype: str = "int8"

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Stretch:
    """The instructions of a layer: of each unit those from `begin` until before `end`."""

    name: str
    begin: Mapping[str, int]
    end: Mapping[str, int]


@dataclass(frozen=True)
class NpuProgram:
    """Queues by unit, a DRAM image (uint8), inputs and outputs by name, and the instructions of each layer.

    `predicted` is what a schedule expects of `glenside.npu.timing`, in cycles, where somebody predicted it.
    """

    machine: Machine
    queues: Mapping[str, tuple[Instruction, ...]]
    dram: Array
    inputs: Mapping[str, Place] = field(default_factory=dict)
    outputs: Mapping[str, Place] = field(default_factory=dict)
    stretches: tuple[Stretch, ...] = ()
    predicted: int | None = None

    def queue(self, unit: str) -> tuple[Instruction, ...]:
        """The instructions of a unit, in order."""
        return self.queues.get(unit, ())

    @cached_property
    def size(self) -> int:
        """Instructions in all."""
        return sum(len(self.queue(unit)) for unit in UNITS)

    def layer_of(self, unit: str, number: int) -> str:
        """ ", of" the layer of an instruction, for messages; nothing where none is known."""
        own = (s.name for s in self.stretches if s.begin.get(unit, 0) <= number < s.end.get(unit, 0))
        return next((f", of {name}" for name in own), "")
