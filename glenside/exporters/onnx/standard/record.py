"""What a record of a standard operator is: which terms it looks at, and what it makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.writer import Value
from glenside.ir.operators.compute import compute_of
from glenside.ir.term import Term


@dataclass(frozen=True)
class Standard:
    """One operator of ONNX.

    op        its name
    of        names of operators and compute types of the terms that may be one
    equation  what it computes, and of what it is found
    write     writes a term as one; None where the term is none
    """

    op: str
    of: tuple[str, ...]
    equation: str
    write: Callable[[Emitter, Term], Value | None]


STANDARD: dict[str, Standard] = {}
"""Operator of ONNX -> its record."""

_LOOKED_AT: dict[str, list[Standard]] = {}


def standard(
    op: str, *of: str
) -> Callable[[Callable[[Emitter, Term], Value | None]], Callable[[Emitter, Term], Value | None]]:
    """Enter a function as the record of an operator; its docstring is the equation."""

    def enter(write: Callable[[Emitter, Term], Value | None]) -> Callable[[Emitter, Term], Value | None]:
        if op in STANDARD:
            raise ValueError(f"{op} has two records")
        record = STANDARD[op] = Standard(op, of, write.__doc__ or "", write)
        for name in of:
            _LOOKED_AT.setdefault(name, []).append(record)
        return write

    return enter


def as_standard(emit: Emitter, term: Term) -> Value | None:
    """A term as the standard operator that it is; None where it is none."""
    name = term.operator.name
    if name == "compute":
        name = compute_of(term)[0].name
    for record in _LOOKED_AT.get(name, ()):
        if (made := record.write(emit, term)) is not None:
            return made
    return None
