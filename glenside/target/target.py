"""A target: instructions, the rule families that reach them, and the price of every e-node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.ir.operator import OPERATORS, Category
from glenside.ir.operators.compute import parse_compute
from glenside.ir.types import AccessType
from glenside.target.cost import Cost, Price

# Movement that a compiler does by addressing: no element is copied.
VIEWS = frozenset(
    "access access-slice access-squeeze access-insert-axis access-broadcast access-flatten access-shift-right "
    "access-windows access-tensor access-product access-literal".split()
)
CONTRACTIONS = frozenset({"systolic-array", "systolic-array-with-blocking"})


@dataclass(frozen=True)
class Instruction:
    """One instruction: an operator of the language, whose record is its meaning, and its price."""

    operator: str
    price: Price
    accepts: str
    """What it takes, in words, for reports and `glenside targets`."""
    attributes: tuple[Any, ...] = ()
    """The first attributes of the e-nodes that are this instruction: a 32x32 call is none of a 64x64 array."""

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ValueError(f"the instruction {self.operator} is not an operator")


@dataclass(frozen=True)
class Target:
    """A machine. `parameters` are what `$name` in a rule stands for; `peak` is multiply-accumulates per cycle."""

    name: str
    doc: str
    instructions: tuple[Instruction, ...]
    families: tuple[str, ...]
    parameters: Mapping[str, int]
    peak: int

    def instruction(self, operator: str, attributes: Sequence[Any]) -> Instruction | None:
        """The instruction that an e-node is, or None."""
        for known in self.instructions:
            if known.operator == operator and tuple(attributes[: len(known.attributes)]) == known.attributes:
                return known
        return None

    def cost(
        self, operator: str, attributes: Sequence[Any], children: Sequence[AccessType], own: AccessType, constant: bool
    ) -> Cost:
        """What one e-node costs by itself.

        What is computed from constants alone is computed beforehand: only its nodes.
        """
        if constant:
            return Cost(nodes=1)
        instruction = self.instruction(operator, attributes)
        if instruction is not None:
            return Cost(cycles=instruction.price(attributes, children, own)[0], nodes=1)
        if operator == "compute":
            return _compute_cost(attributes[0], children[0], own)
        if operator in CONTRACTIONS:  # an instruction of another machine
            depth = children[0].item.product()
            return Cost(unmapped=own.size * depth, scalar=own.size, nodes=1)
        return Cost(moved=0 if operator in VIEWS else own.size, nodes=1)


def _compute_cost(kind: str, operand: AccessType, own: AccessType) -> Cost:
    compute, _ = parse_compute(kind)
    if compute.category is Category.CONTRACTION:
        multiplications = own.size * operand.item.drop(1).product() * max(1, operand.item.get(0) - 1)
        return Cost(unmapped=multiplications, scalar=own.size, nodes=1)
    if compute.category is Category.FOLD:
        operations = own.size * (operand.item.get(0) - 1)
        return Cost(unmapped=operations if kind == "elementwise-mul" else 0, scalar=operations, nodes=1)
    return Cost(scalar=operand.size, nodes=1)
