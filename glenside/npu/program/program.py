"""Defines a program of the npu: four instruction queues, the DRAM image, and the named tensors in DRAM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.npu.isa.address_loops import Nest, addresses_of, nests
from glenside.npu.isa.base import Instruction
from glenside.npu.isa.fields import UNITS
from glenside.npu.machine.model import Machine
from glenside.npu.program.affine_quantization import StandsFor

DTYPES = ("int8", "uint8", "int32", "float32")
"""The dtypes of tensors in DRAM."""


@dataclass(frozen=True)
class Place:
    """A tensor in DRAM: the address of its first byte, its shape, dtype and layout.

    nests       the address of each element in row-major order; -1: the element is 0 and is not stored. Without nests
                the elements are contiguous.
    stands_for  the quantization of its integers; None if unknown
    outer       if any, an element's address is the sum of an `outer` address, of the first axes, and an address of
                `nests`, of the remaining axes. Tiled weights then need few nests of both kinds instead of many.
    """

    address: int
    shape: tuple[int, ...]
    dtype: str = "int8"
    nests: tuple[Nest, ...] = ()
    stands_for: StandsFor | None = None
    outer: tuple[Nest, ...] = ()

    @staticmethod
    def of_sums(addresses: Array, dtype: str) -> Place:
        """Builds a place from its element addresses, (shape).

        Factors them into sums of `outer` and `nests` addresses if some split of the axes allows it.
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
        """Builds a place from its element addresses, (shape)."""
        flat = addresses.reshape(-1)
        there = flat[flat >= 0]
        first = int(there.min(initial=0 if not len(there) else there[0]))
        return Place(first, addresses.shape, dtype, tuple(nests(flat[:, None])))

    @property
    def addresses(self) -> Array:
        """Returns the address of each element, (shape)."""
        size = np.dtype(self.dtype).itemsize
        if not self.nests:
            return self.address + size * np.arange(prod(self.shape)).reshape(self.shape)
        found = addresses_of(self.nests)
        if self.outer:
            found = addresses_of(self.outer)[:, None] + found
        return found.reshape(self.shape)

    def read(self, dram: Array, at: Array | None = None) -> Array:
        """Reads the tensor from the bytes of DRAM; `at`: its `addresses`, if already computed."""
        at, size = self.addresses if at is None else at, np.dtype(self.dtype).itemsize
        if not self.nests:
            return dram[self.address : self.address + self.size].copy().view(self.dtype).reshape(self.shape)
        there = np.maximum(at, 0)
        found = dram[there] if size == 1 else dram[there[..., None] + np.arange(size)]
        found = found.view(self.dtype).reshape(self.shape)
        return np.where(at >= 0, found, np.zeros((), self.dtype)) if (at < 0).any() else found

    def write(self, dram: Array, values: Array) -> None:
        """Writes the tensor to DRAM."""
        at, size = self.addresses, np.dtype(self.dtype).itemsize
        content = np.ascontiguousarray(values, self.dtype).reshape(-1, 1).view(np.uint8)
        dram[at.reshape(-1, 1)[at.reshape(-1) >= 0] + np.arange(size)] = content[at.reshape(-1) >= 0]

    @property
    def size(self) -> int:
        """Returns the size of the tensor in bytes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


def _adds_up(addresses: Array) -> bool:
    """True if the addresses (n)(k) are at least 0, and any two rows differ by a constant."""
    corner = addresses[:: max(1, len(addresses) - 1), :: max(1, addresses.shape[1] - 1)]
    if (corner != corner[:, :1] + (corner[0] - corner[0, 0])).any():
        return False  # early exit: the corners reject most
    own = addresses[:, :1] + (addresses[0] - addresses[0, 0])
    return bool((addresses == own).all() and own.min() >= 0)


@dataclass(frozen=True)
class Stretch:
    """The instructions of a layer, or of copies of an input: per unit those from `begin` to `end`, exclusive.

    The next stretch begins at `end`. The DMA stores of a layer's last results belong to the next stretch, as DMA has
    other work while these results pass through the scratchpad.

    meaning   the text of the integer program that the layer computes from named tensors
    operands  the places of these tensors in DRAM
    result    the place of the result, or of what represents it; bytes that nothing reads have no address
    made      operand name -> name of the layer that computes it
    macs      multiply-accumulates of the layer as written in the network, or None
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
        """Returns the stretch's instructions of a unit."""
        return program.queue(unit)[self.begin.get(unit, 0) : self.end.get(unit, 0)]


@dataclass(frozen=True)
class Host:
    """The steps that a program leaves to the host.

    meaning   the text of a program from the npu's dequantized outputs, by name, to the network's results, in order
    operands  the places of its constants in DRAM
    results   the names of its results
    rest      the same steps in words
    """

    meaning: str
    operands: Mapping[str, Place]
    results: tuple[str, ...]
    rest: str = ""


@dataclass(frozen=True)
class Choices:
    """The search space of a program: choices of layer mappings and of tensors that stay on chip.

    count  number of choices
    tried  number of choices known to take no fewer cycles than the program
    least  lower bound on the cycles of any choice
    """

    count: int
    tried: int
    least: int

    @property
    def are_all_tried(self) -> bool:
        return self.tried == self.count

    def gap(self, cycles: int) -> float:
        """Returns the optimality gap: the largest fraction of `cycles` that another choice may save."""
        return max(0.0, 1 - self.least / cycles) if cycles else 0.0


@dataclass(frozen=True, eq=False)
class NpuProgram:
    """A program: queues by unit, a DRAM image (uint8), inputs and outputs by name, and each layer's instructions.

    predicted  cycles predicted by `glenside.npu.model.cycle_model`; None without a prediction
    choices    the search space from which the program was selected; None without a selection
    host       the steps from the npu's outputs to the network's results; None if these are the same
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
        """Simulates the program and returns the network's results by name. Raises BadInput.

        Inputs that are not given keep their bytes in the DRAM image. Floats are quantized by the program's scales;
        integers are used unchanged.
        """
        from glenside.npu.model.execute import run
        from glenside.npu.program.results import results, with_inputs

        own = with_inputs(self, inputs or {})
        return results(own, run(own).dram)

    def queue(self, unit: str) -> tuple[Instruction, ...]:
        """Returns the instructions of a unit, in order."""
        return self.queues.get(unit, ())

    @cached_property
    def size(self) -> int:
        """Returns the total number of instructions."""
        return sum(len(self.queue(unit)) for unit in UNITS)

    def layer_of(self, unit: str, number: int) -> str:
        """Returns ", of LAYER" for messages; "" if the instruction is of no layer."""
        own = (s.name for s in self.stretches if s.begin.get(unit, 0) <= number < s.end.get(unit, 0))
        return next((f", of {name}" for name in own), "")

    def located(self, unit: str, number: int, own: Instruction, error: BadInput) -> BadInput:
        """Returns an error about an instruction with its unit, number, mnemonic and layer in the message."""
        name = f"{unit} instruction {number}"
        said = error.message if error.message.startswith(name) else f"{name}: {error.message}"
        return BadInput(f"{said} ({own.mnemonic()}{self.layer_of(unit, number)})")
