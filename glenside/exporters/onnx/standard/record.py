"""Defines the record of a standard operator: the terms that may match it, and its export."""

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
    of        names of operators and compute types of the terms that may match
    equation  its meaning, and the terms that it is matched from
    write     exports a term as the operator; returns None if it does not match
    """

    op: str
    of: tuple[str, ...]
    equation: str
    write: Callable[[Emitter, Term], Value | None]


STANDARD: dict[str, Standard] = {}
"""Operator of ONNX -> its record."""

_CANDIDATES: dict[str, list[Standard]] = {}


def standard(
    op: str, *of: str
) -> Callable[[Callable[[Emitter, Term], Value | None]], Callable[[Emitter, Term], Value | None]]:
    """Registers a function as the record of an operator; its docstring is the equation."""

    def enter(write: Callable[[Emitter, Term], Value | None]) -> Callable[[Emitter, Term], Value | None]:
        if op in STANDARD:
            raise ValueError(f"{op} has two records")
        record = STANDARD[op] = Standard(op, of, write.__doc__ or "", write)
        for name in of:
            _CANDIDATES.setdefault(name, []).append(record)
        return write

    return enter


def as_standard(emit: Emitter, term: Term) -> Value | None:
    """Exports a term as a standard operator; returns None if none matches."""
    name = term.operator.name
    if name == "compute":
        name = compute_of(term)[0].name
    for record in _CANDIDATES.get(name, ()):
        if (made := record.write(emit, term)) is not None:
            return made
    return None
