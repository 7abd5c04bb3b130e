"""A target: instructions, the rule families that reach them, and the price of every e-node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from glenside.ir.operator import OPERATORS, Category, OperatorKind
from glenside.ir.operators.compute import parse_compute
from glenside.ir.sizes import if_fits
from glenside.ir.term import weave
from glenside.ir.types import AccessType
from glenside.targets.base.cost import Cost, Price, Spent


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
    """A machine. Sizes and formulas are in the arithmetic of `glenside.ir.sizes`, so that rules can use them."""

    name: str
    doc: str
    instructions: tuple[Instruction, ...]
    families: Mapping[str, tuple[str, ...]]
    """blocking, such as "loops" -> the families of rules that it takes"""
    parameters: Mapping[str, int]
    """What `$name` in a rule stands for."""
    tile: Mapping[str, int]
    """The axes that an instruction has of a fixed size, such as {"K": 64, "N": 64}."""
    peak: int
    """Multiply-accumulates per cycle."""
    price: Callable[[Any, Any, Any, Any], Spent]
    """(groups, m, k, n) -> what a product of such matrices takes when it is cut into loops of tiles as it stands"""
    bound: Callable[[Any, Any, Any, Any], Spent]
    """(work, depth, results, weights) -> what any mapping takes at least that makes none of them less: multiplications,
    depth over all groups, results and elements of weights"""
    objectives: tuple[str, ...] = ("cycles",)
    description: str = ""
    """Every number that price and bound depend on, as text."""
    beside: Callable[[Any, Any, Any, Any], Spent] | None = None
    """(groups, m, k, n) -> what a product takes on a unit beside the array that takes any product, or None."""
    copied: Callable[[str, Sequence[Any], Sequence[AccessType], AccessType], int] | None = None
    """(operator, attributes, types of the children, own type) -> bytes that an e-node copies, where they are counted"""
    max_weight_growth: float | None = None
    """How many times as large a mapping may make the weights, or None."""

    def aim(self, spent: Spent, place: int = 0) -> Any:
        """The objective that is compared first, or at another place; 0 where there is none."""
        return getattr(spent, self.objectives[place]) if place < len(self.objectives) else 0 * spent.cycles

    def rule_parameters(self) -> dict[str, Any]:
        """What rules read of the target: its parameters, and its price and bound in its objectives."""
        growth = None if self.max_weight_growth is None else int(self.max_weight_growth * 1000)

        def heavier(weights: Any, original: Any) -> Any:
            return 0 * weights if growth is None else if_fits(weights * 1000, original * growth, 0, 1)

        formulas = {
            "price": lambda *sizes: self.aim(self.price(*sizes)),
            "second-price": lambda *sizes: self.aim(self.price(*sizes), 1),
            "elsewhere": lambda *sizes: self.aim((self.beside or self.price)(*sizes)),
            "bound": lambda *sizes: self.aim(self.bound(*sizes)),
            "heavier": heavier,
        }
        return {**self.parameters, **formulas}

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
            spent = instruction.price(attributes, children, own)
            return Cost(cycles=spent.cycles, bytes=spent.bytes, nodes=1)
        if operator == "compute":
            return self._compute_cost(attributes[0], children[0], own)
        record = OPERATORS[operator]
        if record.matrices is not None:  # an instruction of another machine
            products = prod(record.matrices(*weave(record, children, attributes)))
            return Cost(unmapped=products, scalar=own.size, nodes=1)
        if operator == "linear-map":
            return Cost(scalar=own.size * children[0].dims[attributes[0]], nodes=1)
        copied = 0 if self.copied is None else self.copied(operator, attributes, children, own)
        still = record.kind in (OperatorKind.LEAF, OperatorKind.VIEW) or (
            operator == "access-rearrange" and list(attributes[1]) == sorted(attributes[1])
        )
        return Cost(bytes=copied, moved=0 if still else own.size, nodes=1)

    def _compute_cost(self, kind: str, operand: AccessType, own: AccessType) -> Cost:
        compute, _ = parse_compute(kind)
        if compute.category is Category.CONTRACTION:
            depth = operand.item.drop(1).product() * max(1, operand.item.get(0) - 1)
            if self.beside is not None:
                spent = self.beside(1, own.size, depth, 1)
                return Cost(cycles=spent.cycles, bytes=spent.bytes, nodes=1)
            return Cost(unmapped=own.size * depth, scalar=own.size, nodes=1)
        if compute.category is Category.FOLD:
            operations = own.size * (operand.item.get(0) - 1)
            return Cost(unmapped=operations if kind == "elementwise-mul" else 0, scalar=operations, nodes=1)
        return Cost(scalar=operand.size, nodes=1)
