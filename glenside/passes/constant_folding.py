"""Constant folding, as an explicit pass."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial

import numpy as np

from glenside.builder.builder import LazyArrays, Value, chosen
from glenside.ir.errors import BadInput
from glenside.ir.names import primed
from glenside.ir.operand import Array
from glenside.ir.program import Program, as_program
from glenside.ir.term import Term, build, nearest, postorder, rebuild_all
from glenside.ir.types import AccessType, Tensor
from glenside.semantics.interpreter import evaluate


def fold(program: Program, without: Container[Term] = (), *, lazily: bool = False) -> Program:
    """Replaces each maximal term over constants alone by a constant with its value.

    Weights that a mapping rearranges are such terms. Terms in `without` are only folded as part of a larger folded
    term. With `lazily`, known values are computed on first use. Raises BadInput for a constant without a value. A layer
    that is no longer part of the program keeps its terms without a value.
    """
    constant = {t: known and t not in without for t, known in as_program(program, "folded").info.constant.items()}
    roots = program.roots
    inside = {child for term in postorder(*roots) if constant[term] for child in term.children}
    outside = {child for term in postorder(*roots) if not constant[term] for child in term.children} | set(roots)
    largest = [t for t in postorder(*roots) if constant[t] and (t not in inside or t in outside) and not _plain(t)]
    own = set(program.info.order)
    largest = [t for t in largest if isinstance(t.type, AccessType) and (t in own or not _without_values(program, [t]))]
    found = set(largest)
    first = nearest(roots[0], stops=found.__contains__)  # names are by what the result reads, so that of programs of
    largest = list(dict.fromkeys((*first, *largest)))  # other sizes, with other layers, they are the same
    if not lazily:
        _require_values(program, largest)
    taken = {t.name for term in postorder(*roots) for t in term.attributes if isinstance(t, Tensor)}
    names: dict[Term, str] = {}
    values: dict[str, Value] = {}
    for number, term in enumerate(largest, 1):
        name = names[term] = primed(f"folded.{number}", taken)
        if not lazily:
            values[name] = _value(term, program.constants)
        elif not _without_values(program, [term]):
            values[name] = partial(_value, term, program.constants)

    def folded(term: Term, _: tuple[Term, ...]) -> Term | None:
        if term not in names:
            return None
        leaf = build("access-tensor", Tensor(names[term], term.access.dims, term.access.dtype, constant=True))
        return build("access", leaf, term.access.split) if term.access.split else leaf

    rebuilt = rebuild_all(roots, folded)
    declared = Program(rebuilt[0]).constants_declared
    if lazily:
        known = [name for name in declared if name in program.constants]
        kept: dict[str, Value] = {name: partial(program.constants.__getitem__, name) for name in known}
        return program.with_roots(rebuilt, constants=LazyArrays({**kept, **values}, lambda _, array: array))
    return program.with_roots(rebuilt, constants=chosen(program.constants, declared, values))


def _value(term: Term, constants: Mapping[str, Array]) -> Array:
    (value,) = evaluate([term], constants)
    return np.array(value, order="C", copy=None)


def _plain(term: Term) -> bool:
    """True if the term is a tensor or a number under any split: there is nothing to fold."""
    while term.operator.name == "access":
        term = term.children[0]
    return not term.children


def _require_values(program: Program, terms: list[Term]) -> None:
    for name in _without_values(program, terms):
        raise BadInput(f"folding requires the value of the constant {name}; give it with --weights")


def _without_values(program: Program, terms: list[Term]) -> list[str]:
    """Returns the tensors of the terms that have no value."""
    found = [term.attributes[0] for term in postorder(*terms) if term.operator.name == "access-tensor"]
    return [t.name for t in found if isinstance(t, Tensor) and t.name not in program.constants]
