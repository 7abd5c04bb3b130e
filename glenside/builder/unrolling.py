"""Writes loops step by step."""

from __future__ import annotations

from glenside.builder.layout import concatenate, reshape
from glenside.ir.operators.scan import steps
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder, rebuild_all, shared


def without_loops(program: Program) -> Program:
    """Returns a program whose loops are written step by step."""
    roots = [*program.roots, *program.names.values()]
    if not any(term.operator.name == "scan" for term in postorder(*roots)):
        return program

    def unrolled(term: Term, children: tuple[Term, ...]) -> Term | None:
        if term.operator.name != "scan":
            return None
        states = steps(shared(term.operator, children, term.attributes))
        return concatenate([reshape(state, (1, *state.access.dims)) for state in states], 0)

    return program.with_roots(rebuild_all(roots, unrolled))
