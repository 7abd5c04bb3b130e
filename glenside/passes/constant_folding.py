"""Folding: what is computed from constants alone becomes a constant, in a step of its own that one can see."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program, constant_terms
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import AccessType, Tensor
from glenside.semantics.interpreter import evaluate


def fold(program: Program, without: Container[Term] = ()) -> Program:
    """The program with each largest term over constants alone replaced by a constant that holds its value.

    Weights that a mapping has rearranged are such terms. Terms in `without` stay as they are, unless others that are
    replaced need them. Raises BadInput for a constant whose value is not known.
    """
    constant = {term: known and term not in without for term, known in constant_terms(program).items()}
    roots = (program.term, *program.layers.values())
    inside = {child for term in postorder(*roots) if constant[term] for child in term.children}
    outside = {child for term in postorder(*roots) if not constant[term] for child in term.children} | set(roots)
    largest = [t for t in postorder(*roots) if constant[t] and (t not in inside or t in outside) and not _plain(t)]
    largest = [t for t in largest if isinstance(t.type, AccessType)]
    _require_values(program, largest)
    taken = set(program.tensors)
    names: dict[Term, str] = {}
    values: dict[str, Array] = {}
    for number, term in enumerate(largest, 1):
        name = f"folded.{number}"
        while name in taken:
            name += "'"
        names[term] = name
        (value,) = evaluate([term], program.constants)
        values[name] = np.array(value, order="C", copy=None)

    def folded(term: Term, _: tuple[Term, ...]) -> Term | None:
        if term not in names:
            return None
        leaf = build("access-tensor", Tensor(names[term], term.access.dims, term.access.dtype, constant=True))
        return build("access", leaf, term.access.split) if term.access.split else leaf

    result, *layers = rebuild_all(roots, folded)
    declared = Program(result).constants_declared
    kept = {name: program.constants[name] for name in declared if name in program.constants}
    named = dict(zip(program.layers, layers, strict=True))
    return replace(program, term=result, layers=named, constants={**kept, **values}, names={})


def _plain(term: Term) -> bool:
    """A tensor, or a number that takes no memory, under any split: nothing to fold."""
    while term.operator.name == "access":
        term = term.children[0]
    return not term.children


def _require_values(program: Program, terms: list[Term]) -> None:
    for term in postorder(*terms):
        if term.operator.name == "access-tensor" and isinstance(tensor := term.attributes[0], Tensor):
            if tensor.name not in program.constants:
                raise BadInput(f"folding requires the value of the constant {tensor.name}; give it with --weights")
