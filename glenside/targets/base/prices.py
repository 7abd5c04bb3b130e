"""The cost model: the cost of a program is a vector with units, a sum over its e-nodes.

Instructions have prices of their own; the cost of any other e-node follows from its operator's record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple

from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.operator import OPERATORS, Category, OperatorKind
from glenside.ir.operators.compute import parse_compute
from glenside.ir.term import weave
from glenside.ir.types import AccessType

OBJECTIVES = ("cycles", "bytes", "copies")


class Cost(NamedTuple):
    """A cost vector: each part is a sum over distinct e-nodes of an answer; `ordered` gives the order of comparison.

    A product outside the machine costs more than any number of cycles, so that it is possible but never preferred.
    Multiplications written as elementwise-mul count as unmapped too, so that no product can hide there.
    """

    unmapped: int = 0
    """Multiplications left outside the machine."""
    cycles: int = 0
    """Cycles of the machine's instructions."""
    bytes: int = 0
    """Bytes that the machine's instructions move to and from its on-chip memory."""
    copies: int = 0
    """Bytes of pure copies, each read once and written once, if the machine counts them."""
    scalar: int = 0
    """Elements computed outside the machine, such as activations and sums of partial results."""
    moved: int = 0
    """Elements copied by concatenations, pads, reshapes and transposes of tensors that are not constant."""
    nodes: int = 0
    """E-nodes: the tie-break, in favour of the smaller program."""

    def plus(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def ordered(self, objectives: Sequence[str]) -> tuple[int, ...]:
        """Returns the parts in the order of comparison."""
        return tuple([self[place] for place in _places(tuple(objectives))])

    @classmethod
    def of_ordered(cls, parts: Sequence[int], objectives: Sequence[str]) -> Cost:
        """Returns the cost of such ordered parts: the inverse of `ordered`."""
        return cls(**dict(zip(names_of_parts(objectives), parts, strict=True)))


@cache
def _places(objectives: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the field indices of the parts, in the order of comparison."""
    return tuple(map(Cost._fields.index, names_of_parts(objectives)))


def names_of_parts(objectives: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the parts: unmapped first, then the objectives, then the rest in the order of the record."""
    return "unmapped", *objectives, *(name for name in Cost._fields[1:] if name not in objectives)


def parse_objectives(text: str, known: Sequence[str] = OBJECTIVES) -> tuple[str, ...]:
    """Returns the objectives of a text: `cycles,bytes` minimizes cycles, then bytes. Raises BadInput."""
    names = tuple(part.strip() for part in text.split(","))
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise BadInput(f"an objective is one of {', '.join(known)}, got {unknown!r}{suggestion(unknown, known)}")
    if len(set(names)) < len(names):
        raise BadInput(f"objectives are compared in the order given, so each may be given once, got {text!r}")
    return names


class InstructionCost(NamedTuple):
    """The cost of one instruction e-node: cycles, tiles (single instructions) and bytes moved."""

    cycles: int
    tiles: int
    bytes: int = 0


# (attributes, types of the children, own type) -> cost of one e-node of an instruction
Price = Callable[[Sequence[Any], Sequence[AccessType], AccessType], InstructionCost]
Fallback = Callable[[Any, Any, Any, Any], InstructionCost]
"""(groups, m, k, n) -> cost of a product that is not an instruction of the machine."""
Copied = Callable[[str, Sequence[Any], Sequence[AccessType], AccessType], int]
"""(operator, attributes, types of the children, own type) -> bytes that an e-node copies."""


def free(*_: Any) -> InstructionCost:
    """A fallback with which products cost nothing, for searches that do not map them."""
    return InstructionCost(0, 0)


@dataclass(frozen=True)
class Instruction:
    """An instruction: an operator of the language, whose record defines its semantics, and its price."""

    operator: str
    price: Price
    accepts: str
    """The accepted operands as text, for reports and `glenside targets`."""
    attributes: tuple[Any, ...] = ()
    """The leading attributes that an e-node of this instruction must have, such as the size of the array."""

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ValueError(f"the instruction {self.operator} is not an operator")


@dataclass(frozen=True)
class Prices:
    """The price of every e-node, as a `Cost`, and the order in which its parts are compared.

    `objectives` are fields of `Cost`. Without a `fallback` the multiplications of a product that is not an instruction
    count as unmapped; those of an `elementwise-mul` always do.
    """

    instructions: tuple[Instruction, ...] = ()
    objectives: tuple[str, ...] = ("cycles",)
    fallback: Fallback | None = None
    copied: Copied | None = None
    """Bytes that an e-node copies; None if copies are not counted."""
    recursive: bool = False
    """True if the cost of a term is a function of the costs of its operands, `of_term`, instead of a sum."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.objectives if name not in Cost._fields]
        if unknown:
            raise ValueError(f"prices are compared by {', '.join(Cost._fields)}, got {unknown[0]!r}")

    def instruction(self, operator: str, attributes: Sequence[Any]) -> Instruction | None:
        """Returns the instruction of an e-node, or None."""
        for known in self.instructions:
            if known.operator == operator and tuple(attributes[: len(known.attributes)]) == known.attributes:
                return known
        return None

    def cost(
        self, operator: str, attributes: Sequence[Any], children: Sequence[AccessType], own: AccessType, constant: bool
    ) -> Cost:
        """Returns the cost of one e-node without its children.

        An e-node over constants alone is folded before run time: it only counts as a node.
        """
        if constant:
            return Cost(nodes=1)
        instruction = self.instruction(operator, attributes)
        if instruction is not None:
            taken = instruction.price(attributes, children, own)
            return Cost(cycles=taken.cycles, bytes=taken.bytes, nodes=1)
        if operator == "compute":
            return self._compute_cost(attributes[0], children[0], own)
        record = OPERATORS[operator]
        if record.matrices is not None:  # an instruction of another machine
            products = prod(record.matrices(*weave(record, children, attributes)))
            return Cost(unmapped=products, scalar=own.size, nodes=1)
        if record.opaque:  # a black box computes its elements
            return Cost(scalar=own.size, nodes=1)
        if operator == "linear-map":
            return Cost(scalar=own.size * children[0].dims[attributes[0]], nodes=1)
        copied = 0 if self.copied is None else self.copied(operator, attributes, children, own)
        still = record.kind in (OperatorKind.LEAF, OperatorKind.VIEW) or (
            operator == "access-rearrange" and list(attributes[1]) == sorted(attributes[1])
        )
        return Cost(copies=copied, moved=0 if still else own.size, nodes=1)

    def of_term(self, *node: Any, costs: Sequence[int]) -> int | None:
        """Returns the cost of a term over the costs of its operands; None if there is none.

        `node`: the arguments of `cost`.
        """
        raise NotImplementedError

    def _compute_cost(self, kind: str, operand: AccessType, own: AccessType) -> Cost:
        compute, _ = parse_compute(kind)
        if compute.category is Category.CONTRACTION:
            depth = operand.item.drop(1).product() * max(1, operand.item.get(0) - 1)
            if self.fallback is not None:
                taken = self.fallback(1, own.size, depth, 1)
                return Cost(cycles=taken.cycles, bytes=taken.bytes, nodes=1)
            return Cost(unmapped=own.size * depth, scalar=own.size, nodes=1)
        if compute.category is Category.FOLD:
            operations = own.size * (operand.item.get(0) - 1)
            return Cost(unmapped=operations if kind == "elementwise-mul" else 0, scalar=operations, nodes=1)
        return Cost(scalar=operand.size, nodes=1)
