"""What stands for an int while a Python function is written out as an egglog expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glenside.egraph.arithmetic import Arithmetic


@dataclass(frozen=True)
class SymbolicInt(Arithmetic["SymbolicInt"]):
    """An i64 of a rule, as its text."""

    text: str

    def combine(self, operation: str, a: Any, b: Any) -> SymbolicInt:
        return SymbolicInt(f"({operation} {a} {b})")

    def __str__(self) -> str:
        return self.text
