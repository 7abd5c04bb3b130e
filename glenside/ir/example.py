"""Examples: small programs that show a record at work, for its reference and for the tests that hold it to account."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glenside.ir.program import Program

SIZES = (2, 3, 4, 5, 7)


@dataclass(frozen=True, eq=False)
class Example:
    """A program text with sizes as `$letters`, and the dims of its tensors: `Example("(access (access-tensor x) 1)",
    {"x": "m 3 n"})`.
    """

    text: str
    shapes: Mapping[str, str] = field(default_factory=dict)

    def program(self, seed: int = 0) -> Program:
        """The program at sizes drawn by the seed; different letters get different sizes: a square hides errors."""
        from glenside.ir.text import parse

        words = [*re.findall(r"\$(\w+)", self.text), *(w for dims in self.shapes.values() for w in dims.split())]
        letters = sorted({word for word in words if not word.isdigit()})
        sizes = dict(zip(letters, random.Random(seed).sample(SIZES, len(letters)), strict=True))
        dims = {
            name: tuple(int(word) if word.isdigit() else sizes[word] for word in said.split())
            for name, said in self.shapes.items()
        }
        return parse(Template(self.text).substitute(sizes), shapes=dims)


def example(text: str, **shapes: str) -> tuple[Example]:
    """The examples of a record that needs one."""
    return (Example(text, shapes),)


def of_compute(kind: str, dims: str = "m k n", dtype: str = "float32") -> tuple[Example]:
    """A compute type over the items of a tensor, which are all axes but the first."""
    operand = "(access-tensor x)" if dtype == "float32" else f"(cast (access-tensor x) {dtype})"
    return example(f"(compute {kind} (access {operand} 1))", x=dims)
