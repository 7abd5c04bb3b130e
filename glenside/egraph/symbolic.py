"""What stands for an int while a Python function is written out as an egglog expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SymbolicInt:
    """An i64 of a rule: arithmetic on it writes the egglog expression. Division is that of sizes, which are >= 0."""

    text: str

    @staticmethod
    def combine(operation: str, a: Any, b: Any) -> SymbolicInt:
        return SymbolicInt(f"({operation} {a} {b})")

    def __add__(self, other: Any) -> SymbolicInt:
        return self.combine("+", self, other)

    def __radd__(self, other: Any) -> SymbolicInt:
        return self.combine("+", other, self)

    def __sub__(self, other: Any) -> SymbolicInt:
        return self.combine("-", self, other)

    def __rsub__(self, other: Any) -> SymbolicInt:
        return self.combine("-", other, self)

    def __mul__(self, other: Any) -> SymbolicInt:
        return self.combine("*", self, other)

    def __rmul__(self, other: Any) -> SymbolicInt:
        return self.combine("*", other, self)

    def __floordiv__(self, other: Any) -> SymbolicInt:
        return self.combine("/", self, other)

    def __str__(self) -> str:
        return self.text
