"""Imports a jaxpr: calls the meaning of each primitive, and checks dims and dtypes against JAX's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glenside.importers.jax.equation import Equation, Refused, meanings
from glenside.importers.scope import Declarations
from glenside.ir.bounds import MOST_NODES
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.operators.requirements import spelled
from glenside.ir.term import Term


@dataclass
class Scope(Declarations):
    """The declarations of an import, and the number of equations imported so far, with those of unrolled loops."""

    equations: int = 0


def evaluated(scope: Scope, jaxpr: Any, constants: Sequence[Term], operands: Sequence[Term]) -> list[Term]:
    """Returns the results of an open jaxpr for its constants and operands. Raises BadInput, with its place."""
    values: dict[Any, Term] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *operands), strict=True))

    def read(atom: Any) -> Term:
        if hasattr(atom, "val"):  # a literal
            return scope.filled((), np.asarray(atom.val).item(), str(atom.aval.dtype), "literal")
        return values[atom]

    for each in _needed(jaxpr):
        results = _results(scope, each, [read(atom) for atom in each.invars])
        values.update(zip(each.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _needed(jaxpr: Any) -> list[Any]:
    """Returns the equations on which the results depend: others may draw random numbers that nothing reads."""
    read = {atom for atom in jaxpr.outvars if not hasattr(atom, "val")}
    kept = []
    for each in reversed(jaxpr.eqns):
        if read.intersection(each.outvars):
            kept.append(each)
            read |= {atom for atom in each.invars if not hasattr(atom, "val")}
    return kept[::-1]


def inlined(scope: Scope, jaxpr: Any, operands: Sequence[Term]) -> list[Term]:
    """Returns the results of a jaxpr that is a parameter of an equation, closed or open."""
    if not hasattr(jaxpr, "consts"):
        return evaluated(scope, jaxpr, [], operands)
    constants = [scope.constant("constant", np.asarray(value)) for value in jaxpr.consts]
    return evaluated(scope, jaxpr.jaxpr, constants, operands)


def _results(scope: Scope, equation: Any, operands: Sequence[Term]) -> list[Term]:
    name = equation.primitive.name
    try:
        scope.equations += 1
        if scope.equations > MOST_NODES:
            raise Refused(f"the function has more than {MOST_NODES} equations, those of unrolled loops included")
        meaning = meanings().get(name)
        if meaning is None:
            raise Refused("has no meaning here; docs/jax.md lists those that have")
        results = tuple(_type(variable.aval) for variable in equation.outvars)
        layer = str(equation.source_info.name_stack).replace("/", ".")
        found = meaning(Equation(name, results, equation.params, layer, scope), *operands)
        found = list(found) if isinstance(found, list | tuple) else [found]
        for (dims, dtype), term in zip(results, found, strict=True):
            if (tuple(term.access.dims), term.access.dtype) != (dims, dtype):
                want = f"{spelled(dims)} {dtype}"
                raise Refused(f"requires a result of {want}, got {spelled(term.access.dims)} {term.access.dtype}")
        return found
    except (GlensideError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, GlensideError) and error.status != BadInput.status:
            raise
        place = _place(equation)
        if isinstance(error, _Placed):  # by an equation inside this one
            raise error if error.line or not place else _Placed(error.primitive, place, error.words) from None
        words = error.message if isinstance(error, GlensideError) else f"{type(error).__name__}: {error}"
        cause = None if isinstance(error, GlensideError) else error
        raise _Placed(name, place, words) from cause


class _Placed(Refused):
    """A refusal that names its primitive, and the user's source line if that is known."""

    def __init__(self, primitive: str, place: str, words: str) -> None:
        super().__init__(f"the primitive {primitive}{place}: {words}")
        self.primitive, self.line, self.words = primitive, place, words


def _type(aval: Any) -> tuple[tuple[int, ...], str]:
    """Returns the dims and dtype of a result. Raises Refused."""
    dtype = str(getattr(aval, "dtype", aval))
    if dtype.startswith("key<"):
        raise Refused("draws random numbers, which a program has only as inputs")
    if dtype not in RECORDS:
        raise Refused(f"has a result of dtype {dtype}, which is not supported")
    return tuple(aval.shape), dtype


def _place(equation: Any) -> str:
    """Returns the user's source line of an equation, as " (file:line)", or "" if it is not known."""
    frames = getattr(equation.source_info.traceback, "frames", ())
    for frame in frames:
        if not any(f"/{package}/" in frame.file_name for package in ("jax", "jaxlib", "flax", "glenside")):
            return f" ({frame.file_name}:{frame.line_num})"
    return ""
