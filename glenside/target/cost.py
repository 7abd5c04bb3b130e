"""What a program costs: a lexicographic vector with units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from glenside.ir.types import AccessType


class Cost(NamedTuple):
    """Compared from left to right; each part is a sum over the e-nodes of the answer, each counted once.

    A product that stays off the machine is worse than any number of cycles, so what the hardware cannot do is possible
    but never preferred. Multiplications spelled out as elementwise-mul count as such too: a product cannot hide there.
    """

    unmapped: int = 0
    """Multiplications left outside the machine."""
    cycles: int = 0
    """Cycles of the machine's instructions."""
    scalar: int = 0
    """Elements computed outside the machine: activations, sums of partial results."""
    moved: int = 0
    """Elements copied: concatenations, pads, reshapes and transposes of what is not constant."""
    nodes: int = 0
    """E-nodes: among equals the smaller program wins."""

    def plus(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


# (attributes, types of the children, own type) -> cycles, tiles of one e-node of an instruction
Price = Callable[[Sequence[Any], Sequence[AccessType], AccessType], tuple[int, int]]
