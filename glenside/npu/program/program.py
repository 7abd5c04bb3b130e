"""A program of the machine: four queues of instructions, the DRAM they work on, and the names of what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.isa.address_loops import Nest, addresses_of, nests
from glenside.npu.isa.base import Instruction
from glenside.npu.isa.fields import UNITS
from glenside.npu.machine.model import Machine
from glenside.npu.program.affine_quantization import StandsFor

DTYPES = ("int8", "uint8", "int32", "float32")
"""What a place in DRAM may hold."""


@dataclass(frozen=True)
class Place:
    """A tensor in DRAM: where its first byte is, and what it is.

    nests       the address of each element in row-major order; -1 is a zero that is not there. Without them one follows
                the other in that order.
    stands_for  the real numbers that its integers are; None where that is not known
    outer       where there are any, an address is the sum of one of these, of the first axes, and of one of `nests`, of
                the others: weights in tiles are few of both, and many nests
    """

    address: int
    shape: tuple[int, ...]
    dtype: str = "int8"
    nests: tuple[Nest, ...] = ()
    stands_for: StandsFor | None = None
    outer: tuple[Nest, ...] = ()

    @staticmethod
    def of_sums(addresses: Array, dtype: str) -> Place:
        """Of the addresses of its elements, (shape), as sums of those of the first axes and of the others, where they
        are.
        """
        for split in range(1, addresses.ndim):
            own = addresses.reshape(prod(addresses.shape[:split]), -1)
            if min(own.shape) > 1 and _adds_up(own):
                least = own[:, 0].min()
                parts = own[:, 0] - least, own[0] - own[0, 0] + least  # no address is less than 0
                outer, inner = (tuple(nests(part.reshape(-1, 1))) for part in parts)
                return Place(int(parts[1].min()), addresses.shape, dtype, inner, outer=outer)
        return Place.of(addresses, dtype)

    @staticmethod
    def of(addresses: Array, dtype: str) -> Place:
        """Of the addresses of its elements, (shape)."""
        flat = addresses.reshape(-1)
        there = flat[flat >= 0]
        first = int(there.min(initial=0 if not len(there) else there[0]))
        return Place(first, addresses.shape, dtype, tuple(nests(flat[:, None])))

    @property
    def addresses(self) -> Array:
        """Of its elements, (shape)."""
        size = np.dtype(self.dtype).itemsize
        if not self.nests:
            return self.address + size * np.arange(prod(self.shape)).reshape(self.shape)
        found = addresses_of(self.nests)
        if self.outer:
            found = addresses_of(self.outer)[:, None] + found
        return found.reshape(self.shape)

    def read(self, dram: Array, at: Array | None = None) -> Array:
        """The tensor, from the bytes of DRAM; `at` are its addresses where they are known."""
        at, size = self.addresses if at is None else at, np.dtype(self.dtype).itemsize
        if not self.nests:
            return dram[self.address : self.address + self.size].copy().view(self.dtype).reshape(self.shape)
        there = np.maximum(at, 0)
        found = dram[there] if size == 1 else dram[there[..., None] + np.arange(size)]
        found = found.view(self.dtype).reshape(self.shape)
        return np.where(at >= 0, found, np.zeros((), self.dtype)) if (at < 0).any() else found

    def write(self, dram: Array, values: Array) -> None:
        """Put the tensor where it belongs."""
        at, size = self.addresses, np.dtype(self.dtype).itemsize
        content = np.ascontiguousarray(values, self.dtype).reshape(-1, 1).view(np.uint8)
        dram[at.reshape(-1, 1)[at.reshape(-1) >= 0] + np.arange(size)] = content[at.reshape(-1) >= 0]

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


def _adds_up(addresses: Array) -> bool:
    """Whether all of (n)(k) are there, and rows are a constant apart, as wholes."""
    corner = addresses[:: max(1, len(addresses) - 1), :: max(1, addresses.shape[1] - 1)]
    if (corner != corner[:, :1] + (corner[0] - corner[0, 0])).any():
        return False  # most that do not add up
    own = addresses[:, :1] + (addresses[0] - addresses[0, 0])
    return bool((addresses == own).all() and own.min() >= 0)


@dataclass(frozen=True)
class Stretch:
    """The instructions of a layer, or of copies of an input: of each unit those from `begin` until before `end`, where
    the next one begins. DMA has more to do while a layer's last results pass through lanes: those that bring them to
    DRAM are among the next's.

    meaning   the text of a program of integers that it computes, of tensors by name
    operands  where those are in DRAM
    result    where what it computes is, or what stands for it; bytes that nobody reads are nowhere
    made      which layers make operands, by name
    macs      multiply-accumulates of the layer as it is written, or None
    """

    name: str
    begin: Mapping[str, int]
    end: Mapping[str, int]
    meaning: str = ""
    operands: Mapping[str, Place] = field(default_factory=dict)
    result: Place | None = None
    made: Mapping[str, str] = field(default_factory=dict)
    macs: int | None = None

    def of(self, program: NpuProgram, unit: str) -> tuple[Instruction, ...]:
        """Its instructions of a unit."""
        return program.queue(unit)[self.begin.get(unit, 0) : self.end.get(unit, 0)]


@dataclass(frozen=True)
class Host:
    """The steps that a program leaves to the host.

    meaning   the text of a program; its inputs are outputs of the machine by name, as the real numbers that they stand
              for, and its results are those of the network in order
    operands  where its constants are in DRAM
    results   the names of its results
    rest      the same steps in words
    """

    meaning: str
    operands: Mapping[str, Place]
    results: tuple[str, ...]
    rest: str = ""


@dataclass(frozen=True)
class Choices:
    """What is known of the choices of which a program was made: of mappings for its layers, and tensors that stay.

    count  how many there are
    tried  of how many it is known that they take no fewer cycles
    least  cycles that none of them takes less than
    """

    count: int
    tried: int
    least: int

    @property
    def are_all_tried(self) -> bool:
        return self.tried == self.count

    def gap(self, cycles: int) -> float:
        """What part of a program's cycles another choice may spare, at most."""
        return max(0.0, 1 - self.least / cycles) if cycles else 0.0


@dataclass(frozen=True, eq=False)
class NpuProgram:
    """Queues by unit, a DRAM image (uint8), inputs and outputs by name, and the instructions of each layer.

    predicted  cycles that a schedule predicts, as of `glenside.npu.model.cycle_model`; None where nobody predicted them
    choices    what is known of other mappings and other tensors that stay; None where nobody chose
    host       the steps from the outputs of the machine to the results of the network; None where these are the same
    """

    machine: Machine
    queues: Mapping[str, tuple[Instruction, ...]]
    dram: Array
    inputs: Mapping[str, Place] = field(default_factory=dict)
    outputs: Mapping[str, Place] = field(default_factory=dict)
    stretches: tuple[Stretch, ...] = ()
    predicted: int | None = None
    choices: Choices | None = None
    host: Host | None = None

    def run(self, inputs: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The results of the network by name, simulated; inputs that are not given are what DRAM holds of them. Floats
        are quantized as the program says, integers are taken as they are. Raises BadInput.
        """
        from glenside.npu.model.execute import run
        from glenside.npu.program.results import results, with_inputs

        own = with_inputs(self, inputs or {})
        return results(own, run(own).dram)

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
