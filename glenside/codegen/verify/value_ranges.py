"""Verifies instructions that clamp or wrap to fewer bits: the ranges of their operands leave these steps no effect.

A range is an interval that follows from dtypes, constants, and the formulas that a program stores in its buffers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from glenside.codegen.loop_ir.affine_analysis import parts_in
from glenside.codegen.loop_ir.faults import Condition, Fault
from glenside.codegen.loop_ir.intrinsics import Instruction
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Choose,
    Convert,
    For,
    Formula,
    Let,
    Load,
    Local,
    Loops,
    Number,
    Role,
    Statement,
    Store,
    When,
)
from glenside.ir.dtypes import REALS, limits

Range = tuple[float, float]
"""The least and the largest value, which are infinite if unknown."""
_GIVEN = (Role.INPUT, Role.CONSTANT)
_MONOTONE = {"min": min, "max": max}


def narrow_faults(loops: Loops) -> Iterator[Fault]:
    """Yields a fault for each nest with an instruction that is not exact for the ranges of its operands."""
    ranges = _Ranges(loops)
    for nest in loops.nests:
        applied = {a: None for a in _applied(nest.body)}
        for formula in applied:
            operands = tuple((operand.dtype, ranges.of(operand)) for operand in formula.operands)
            if said := _inexact(formula.primitive, operands):
                yield Fault(Condition.NARROW, said, nest)


def _applied(body: Sequence[Statement]) -> Iterator[Apply]:
    """Yields the applications of instructions that have a narrow formula."""
    for statement in _values(body):
        for part in parts_in(statement.formula):
            if isinstance(part, Apply) and isinstance(part.primitive, Instruction) and part.primitive.narrow:
                yield part


def _values(body: Sequence[Statement]) -> Iterator[Store | Let]:
    """Yields the statements that compute a value."""
    for statement in body:
        if isinstance(statement, Store | Let):
            yield statement
        elif isinstance(statement, For | When):
            yield from _values(statement.body)


class _Ranges:
    """The ranges of formulas. Those of buffers contain each formula that a nest stores in them.

    values  the ranges of variables
    """

    def __init__(self, loops: Loops | None = None, values: Mapping[str, Range] | None = None) -> None:
        self.values, self.buffers = values or {}, dict[Buffer, Range]()
        self.stores: dict[Buffer, list[Formula]] = {}
        for nest in loops.nests if loops else ():
            for statement in _values(nest.body):
                if isinstance(statement, Store):
                    self.stores.setdefault(statement.buffer, []).append(statement.formula)

    def of(self, formula: Formula) -> Range:
        """Returns the range of a formula."""
        whole = _whole(formula.dtype)
        found = self._of(formula)
        return found if whole[0] <= found[0] and found[1] <= whole[1] else whole

    def _of(self, formula: Formula) -> Range:
        """Returns the range of a formula before it wraps."""
        if isinstance(formula, Number) and formula.value is not None:
            return float(formula.value), float(formula.value)
        if isinstance(formula, Load):
            return self._of_buffer(formula.buffer)
        if isinstance(formula, Local):
            return self.values.get(formula.name, _whole(formula.dtype))
        if isinstance(formula, Choose):
            return _hull([self.of(formula.then), self.of(formula.otherwise)])
        if isinstance(formula, Convert) and not formula.bits:
            low, high = self.of(formula.formula)
            real = formula.formula.dtype in REALS
            return (min(low, 0.0), max(high, 0.0)) if real else (low, high)  # towards 0; nan becomes 0
        if isinstance(formula, Apply) and not isinstance(formula.primitive, Instruction):
            return _applied_to(formula.primitive.name, [self.of(operand) for operand in formula.operands])
        return -math.inf, math.inf

    def _of_buffer(self, buffer: Buffer) -> Range:
        if buffer not in self.buffers:
            self.buffers[buffer] = _whole(buffer.dtype)  # of what is computed from itself
            if buffer.role not in _GIVEN and buffer.dtype not in REALS and buffer in self.stores:
                self.buffers[buffer] = _hull([self.of(formula) for formula in self.stores[buffer]])
        return self.buffers[buffer]


def _whole(dtype: str) -> Range:
    return (-math.inf, math.inf) if dtype in REALS else limits(dtype)


def _hull(ranges: Sequence[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _applied_to(name: str, ranges: Sequence[Range]) -> Range:
    """Returns the range of a primitive of operands with these ranges; infinite if unknown."""
    (a, b), *rest = ranges
    if name in _MONOTONE:
        ((c, d),) = rest
        return _MONOTONE[name](a, c), _MONOTONE[name](b, d)
    if not all(map(math.isfinite, (a, b, *(end for pair in rest for end in pair)))):
        return -math.inf, math.inf
    if name == "abs":
        return (0.0 if a <= 0 <= b else min(abs(a), abs(b))), max(abs(a), abs(b))
    if name == "sign":
        return float((a > 0) - (a < 0)), float((b > 0) - (b < 0))
    if name == "add":
        return a + rest[0][0], b + rest[0][1]
    if name == "multiply":
        ends = [x * y for x in (a, b) for y in rest[0]]
        return min(ends), max(ends)
    return -math.inf, math.inf


@cache
def _inexact(instruction: Instruction, operands: tuple[tuple[str, Range], ...]) -> str:
    """Returns a sentence about a step of a narrow formula that changes a value; "" if there is none."""
    assert instruction.narrow, "it has a narrow formula"
    named = [Local(f"x{n}", dtype) for n, (dtype, _) in enumerate(operands)]
    ranges = _Ranges(values={f"x{n}": own for n, (_, own) in enumerate(operands)})
    for part in parts_in(instruction.narrow(named)):
        steps: Sequence[Formula] = ()
        if isinstance(part, Convert):
            steps, (least, most) = [part.formula], _whole(part.dtype)
        elif isinstance(part, Apply) and part.primitive.name in _MONOTONE:
            limit = next(float(o.value) for o in part.operands if isinstance(o, Number) and o.value is not None)
            steps = [operand for operand in part.operands if not isinstance(operand, Number)]
            least, most = (limit, math.inf) if part.primitive.name == "max" else (-math.inf, limit)
        for low, high in map(ranges.of, steps):
            if low < least or high > most:
                return f"a step of {instruction.name} gives {low:.0f}..{high:.0f}, beyond {least:.0f}..{most:.0f}"
    return ""
