"""Attributes the time and memory of loop nests to layers: a nest counts for the layer whose terms it computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from glenside.analysis.liveness import operations
from glenside.codegen.loop_ir.ir import Loops
from glenside.codegen.memory.buffer_arena import needed
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder


@dataclass(frozen=True)
class InLoops:
    """A program lowered to loops, with the nanoseconds of each nest."""

    program: Program
    loops: Loops
    nanoseconds: Sequence[float] | Array

    @cached_property
    def owners(self) -> list[str | None]:
        """The layer of each nest: that of its term with the most operations; None without one."""
        owner = _owners(self.program)
        return [
            next((owner[term] for term in sorted(nest.terms, key=operations, reverse=True) if term in owner), None)
            for nest in self.loops.nests
        ]

    def time(self) -> dict[str, float]:
        """Returns the nanoseconds of each layer."""
        found = dict.fromkeys(self.program.layers, 0.0)
        for name, own in zip(self.owners, self.nanoseconds, strict=True):
            if name is not None:
                found[name] += own
        return found

    def peak(self) -> dict[str, int]:
        """Returns the maximum bytes of live temporaries while each layer is computed."""
        found = dict.fromkeys(self.program.layers, 0)
        for name, own in zip(self.owners, needed(self.loops), strict=True):
            if name is not None:
                found[name] = max(found[name], own)
        return found


def _owners(program: Program) -> dict[Term, str]:
    """Returns term -> the first layer that needs it: producers count for the layer that reads them."""
    owner: dict[Term, str] = {}
    names = {_unsplit(root): name for name, root in program.layers.items()}
    for root in (term for term in postorder(program.term, *names) if term in names):
        stack = [root]
        while stack:
            term = stack.pop()
            if term not in owner:
                owner[term] = names[root]
                stack += term.children
    return owner


def _unsplit(term: Term) -> Term:
    """Returns the term below any `access`: readers may change its split."""
    return _unsplit(term.children[0]) if term.operator.name == "access" else term
