"""Costs of single sums and products, from which the algebra of a program is chosen before its layers are searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol


class ProductPrices(Protocol):
    """The costs of single steps in the unit of a target."""

    @property
    def times_elements(self) -> bool:
        """True if elementwise functions take time; False: their cost only decides between equal products."""

    def count(self, size: int) -> int:
        """Returns a size as it is priced: of one that is open, its value at the sizes for which these prices are."""

    def product(self, groups: int, rows: int, depth: int, columns: int, read: int) -> float:
        """Returns the cost of `groups` products of (rows depth) and (depth columns).

        read  elements that the operands are stored in; overlapping windows read some more than once
        """

    def elementwise(self, read: int, written: int) -> float:
        """Returns the cost of an elementwise function, or a sum, by the number of elements read and written."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Costs that are a constant for each step, a rate of multiply-adds and a rate of elements.

    step          cost of each step
    multiply_add  cost of a multiply-add
    element       cost of an element that is read or written
    """

    times_elements: ClassVar[bool] = True
    step: float
    multiply_add: float
    element: float

    def count(self, size: int) -> int:
        """Returns the size."""
        return size

    def product(self, groups: int, rows: int, depth: int, columns: int, read: int) -> float:
        """Returns the cost of products; each operand is read, and the result written, once."""
        elements = read + groups * rows * columns
        return self.step + self.multiply_add * groups * rows * depth * columns + self.element * elements

    def elementwise(self, read: int, written: int) -> float:
        """Returns the cost of an elementwise function or a sum."""
        return self.step + self.element * (read + written)
