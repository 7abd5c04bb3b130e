"""The prices of operators and compute types: one function for each, as registered in `prices.py`.

For terms and e-nodes alike: `secrecy` and `node_traffic` see an operator, its attributes and operands, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from glenside.ir.operator import OPERATORS
from glenside.ir.types import AccessType, Tensor, Type
from glenside.targets.mpc.semi2k import Traffic


@dataclass(frozen=True, slots=True)
class Operand:
    """What is known of a child: its type, whether it is secret, and what stands side by side in its items.

    parts   the two operands of an access-product; of a concatenation along the first item axis what is put together
    shared  the axes that the two operands of an access-product share; None for anything else
    known   whether it is made of numbers in the program alone, with which SPU's compiler computes
    number  what it holds everywhere, where that is known: nothing is sent to multiply by 1 or to divide by it
    repeats axes along which it repeats itself: SPU's compiler treats each element once, however often it stands there
    """

    type: Type
    secret: bool
    parts: tuple[Operand, ...] = ()
    shared: int | None = None
    known: bool = False
    number: Fraction | None = None
    repeats: frozenset[int] = frozenset()

    @property
    def access(self) -> AccessType:
        assert isinstance(self.type, AccessType), "an operator checks its operands when it is built"
        return self.type

    def along(self) -> tuple[Operand, ...]:
        """What stands along the first item axis."""
        return self.parts or (Operand(self.type, self.secret),) * self.access.item[0]


Price = Callable[..., Traffic | None]

# (protocol, operands, type of the result, *attributes), and (protocol, operand, type of the result, *parameters)
OPERATOR_PRICES: dict[str, Price] = {}
COMPUTE_PRICES: dict[str, Price] = {}


def sends(*names: str) -> Callable[[Price], Price]:
    """Register what operators send of secrets: (protocol, operands, type of the result, *attributes)."""
    return _into(OPERATOR_PRICES, names)


def sends_compute(*names: str) -> Callable[[Price], Price]:
    """Register what compute types send of secrets: (protocol, operand, type of the result, *parameters)."""
    return _into(COMPUTE_PRICES, names)


def _into(table: dict[str, Price], names: Sequence[str]) -> Callable[[Price], Price]:
    def register(price: Price) -> Price:
        for name in names:
            if name in table:
                raise ValueError(f"{name} has two prices")
            table[name] = price
        return price

    return register


def secrecy(operator: str, attributes: Sequence[Any], operands: Sequence[bool], public: frozenset[str]) -> bool:
    """Whether the result is secret: when any operand is, and a tensor unless its name is among the public ones."""
    names = [a.name if isinstance(a, Tensor) else a for a in attributes[:1]]
    return not OPERATORS[operator].is_constant((not secret for secret in operands), any(n in public for n in names))
