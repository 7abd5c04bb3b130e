"""Legalizes loops whose strides do not fit the fields of instructions, such as those over columns of wide machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from glenside.npu.isa.base import Instruction, Spread, Stream
from glenside.npu.isa.fields import LOOPS, Address, Counts

_ONCE: Counts = (1, 1, 1)


def unrolled(instruction: Instruction, lanes: int) -> Iterator[Instruction]:
    """Yields equivalent instructions in order. If a stride does not fit its field, the outermost loop is unrolled.
    Rotations count modulo the banks, and carry into the address.
    """
    counts: Counts = getattr(instruction, "counts", _ONCE)
    if counts == _ONCE:
        yield instruction
        return
    outermost = max(loop for loop in range(LOOPS) if counts[loop] > 1)
    if all(
        least <= stride <= most
        for name, (least, most) in instruction.strides().items()
        for stride in getattr(instruction, name).strides
    ):
        yield instruction
        return
    for at in range(counts[outermost]):
        yield from unrolled(_one(instruction, outermost, at, lanes), lanes)


def _one(instruction: Instruction, loop: int, at: int, lanes: int) -> Instruction:
    """Returns one iteration of that loop."""
    counts = instruction.counts  # type: ignore[attr-defined]
    changed: dict[str, object] = {"counts": tuple(1 if each == loop else n for each, n in enumerate(counts))}
    for name in instruction.strides():
        own: Address = getattr(instruction, name)
        base = own.base + at * own.strides[loop]
        strides = tuple(0 if each == loop else stride for each, stride in enumerate(own.strides))
        changed[name] = Address(base % lanes if instruction.kinds()[name].cyclic else base, strides)  # type: ignore[arg-type]
    if isinstance(instruction, Stream) or getattr(instruction, "carry", False):
        turn, row = instruction.turn, changed["lanes"]  # type: ignore[attr-defined]
        assert isinstance(row, Address), "only scratchpad addresses rotate"
        changed["lanes"] = replace(row, base=row.base + (turn.base + at * turn.strides[loop]) // lanes)
    if isinstance(instruction, Spread) and instruction.increment and not loop:
        changed["table"] = instruction.table + at
    if isinstance(instruction, Stream) and at:
        changed["fresh"] = False
    return replace(instruction, **changed)  # type: ignore[type-var]
