"""Generates programs of single applications: each operator with each dtype in turn.

Every application is a result of its own, so that no later operator hides what it computes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import product

from glenside.builder.layout import split_at
from glenside.fuzzing.generate import Generator
from glenside.fuzzing.leaves import Settings
from glenside.ir.dtypes import COMPUTED
from glenside.ir.errors import GlensideError
from glenside.ir.operator import Compute, Operator
from glenside.ir.operators.compute import compute, compute_text
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import AccessType

Application = tuple[Operator | Compute, str, str]
"""A record, the text of a compute type, and a dtype of its operands."""
TOGETHER = 6
"""Applications of one program."""
_TRIES = 6


@cache
def applications() -> tuple[Application, ...]:
    """Returns every record, with each choice of its parameters, and with each dtype that it accepts."""
    found: list[Application] = []
    for record in Generator(random.Random(0)).records:
        texts = [""]
        if isinstance(record, Compute):
            choices = [field.choices or ("-1", "1/2", "3") for field in record.parameters]
            texts = [compute_text(record.name, *chosen) for chosen in product(*choices)]
        found += [(record, text, dtype) for text in texts for dtype in COMPUTED if _accepts(record, text, dtype)]
    return tuple(found)


def _accepts(record: Operator | Compute, text: str, dtype: str) -> bool:
    """True if the compute type takes items of the dtype; operators are tried when they are drawn."""
    if not isinstance(record, Compute) or record.name == "select":
        return True
    try:
        build("compute", text, build("access", build("full", (3, 2, 2), "1", dtype), 1))
    except GlensideError:
        return False
    return True


class Applications(Generator):
    """Draws one program of several applications, each on operands of its own.

    moves  operators that move elements: the operand of an operator is the result of up to two others
    """

    def __init__(self, pick: random.Random) -> None:
        super().__init__(pick, Settings(wide=0.3))
        self.moves = [record for record in self.records if isinstance(record, Operator) and record.moves]

    def program_of(self, chosen: Sequence[Application]) -> Program:
        """Draws a program of these applications, as far as the draws are legal."""
        found = []
        for record, text, dtype in chosen:
            for _ in range(_TRIES):
                new = self.application(record, text, dtype)
                if new is not None:
                    found.append(new)
                    break
        if not found:
            return super().program()
        return Program(found[0] if len(found) == 1 else build("construct-tuple", *found))

    def application(self, record: Operator | Compute, text: str, dtype: str) -> Term | None:
        """Returns one application, or None if the draw is not legal."""
        self.pool, self.only = [], dtype
        if isinstance(record, Operator):
            self.pool = [self.operand_of(self.dims(self.pick.randint(1, 4)), dtype)]
            for _ in range(self.pick.choice((0, 0, 1, 2))):
                moved = self.applied(self.pick.choice(self.moves))
                self.pool = [self.pool[0] if moved is None else moved]
            return self.applied(record)
        try:
            new = self.legal(compute, [text, self.items_of(record, dtype)])
        except GlensideError:
            return None
        return new if new is not None and isinstance(new.type, AccessType) else None

    def items_of(self, record: Compute, dtype: str) -> Term:
        """Returns the operand of a compute type."""
        pick, dims = self.pick, self.dims(self.pick.randint(1, 3))
        category = record.category.value
        if category == "pointwise":
            return self.operand_of(dims, dtype)
        if category == "contraction":
            dims = (pick.choice((1, 2, 2, 2, 3)), *dims)
            return split_at(self.operand_of(dims, dtype), 0)
        if category != "fold":
            return split_at(self.operand_of(dims, dtype), pick.randint(0, len(dims)))
        count = 3 if record.name == "select" else pick.choice((2, 2, 2, 3))
        parts = [self.operand_of(dims, dtype) for _ in range(count)]
        if record.name == "select":
            parts[0] = build("cast", build("cast", parts[0], "bool"), dtype) if dtype != "bool" else parts[0]
        split = pick.randint(0, parts[0].access.rank)
        joined = build("access-insert-axis", split_at(parts[0], split), split)
        for part in parts[1:]:
            row = build("access-insert-axis", split_at(part, split), split)
            joined = build("access-concatenate", split_at(joined, split), split_at(row, split), split)
        return split_at(joined, split)

    def operand_of(self, dims: Sequence[int], dtype: str) -> Term:
        """Returns an input, a constant, or an operand that is computed."""
        way = self.pick.random()
        found = self.input(dims, dtype, constant=way > 0.9)
        return build("compute", "logical-not" if dtype == "bool" else "abs", found) if way < 0.3 else found
