"""What a program costs: a vector with units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from glenside.ir.errors import BadInput
from glenside.ir.types import AccessType

OBJECTIVES = ("cycles", "bytes", "copies")


class Cost(NamedTuple):
    """Each part is a sum over the e-nodes of the answer, each counted once; `ordered` says which part matters first.

    A product that stays off the machine is worse than any number of cycles, so what the hardware cannot do is possible
    but never preferred. Multiplications spelled out as elementwise-mul count as such too: a product cannot hide there.
    """

    unmapped: int = 0
    """Multiplications left outside the machine."""
    cycles: int = 0
    """Cycles of the machine's instructions."""
    bytes: int = 0
    """Bytes that the machine's instructions move to and from its on-chip memory."""
    copies: int = 0
    """Bytes that are only put elsewhere, each read once and written once, where a machine counts them."""
    scalar: int = 0
    """Elements computed outside the machine: activations, sums of partial results."""
    moved: int = 0
    """Elements copied: concatenations, pads, reshapes and transposes of what is not constant."""
    nodes: int = 0
    """E-nodes: among equals the smaller program wins."""

    def plus(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def ordered(self, objectives: Sequence[str]) -> tuple[int, ...]:
        """The parts in the order in which they are compared."""
        return tuple(getattr(self, name) for name in order(objectives))

    @classmethod
    def of_ordered(cls, parts: Sequence[int], objectives: Sequence[str]) -> Cost:
        """The inverse of `ordered`."""
        return cls(**dict(zip(order(objectives), parts, strict=True)))


def order(objectives: Sequence[str]) -> tuple[str, ...]:
    """The names of the parts: unmapped first, then the objectives, then the rest in the order of the record."""
    return "unmapped", *objectives, *(name for name in Cost._fields[1:] if name not in objectives)


def parse_objectives(text: str) -> tuple[str, ...]:
    """`cycles,bytes` -> least cycles first, and the least bytes among those. Raises BadInput."""
    names = tuple(part.strip() for part in text.split(","))
    unknown = next((name for name in names if name not in OBJECTIVES), None)
    if unknown is not None:
        raise BadInput(f"an objective is one of {', '.join(OBJECTIVES)}, got {unknown!r}")
    if len(set(names)) < len(names):
        raise BadInput(f"objectives are compared in the order given, so each can stand there once, got {text!r}")
    return names


class InstructionCost(NamedTuple):
    """What one instruction node takes: cycles, tiles (single instructions) and bytes moved."""

    cycles: int
    tiles: int
    bytes: int = 0


# (attributes, types of the children, own type) -> what one e-node of an instruction takes
Price = Callable[[Sequence[Any], Sequence[AccessType], AccessType], InstructionCost]
