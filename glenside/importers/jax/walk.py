"""Imports a jaxpr: calls the meaning of each primitive, and checks dims and dtypes against JAX's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


def inlined(scope: Scope, body: Any, operands: Sequence[Term]) -> list[Term]:
    """Returns the results of the body of an equation: a jaxpr, closed or open, or a function of terms."""
    if callable(body):
        return list(body(operands))
    if not hasattr(body, "consts"):
        return evaluated(scope, body, [], operands)
    constants = [scope.constant("constant", np.asarray(value)) for value in body.consts]
    return evaluated(scope, body.jaxpr, constants, operands)


def _results(scope: Scope, equation: Any, operands: Sequence[Term]) -> list[Term]:
    name = equation.primitive.name
    with placed(f"the primitive {name}", lambda: _place(equation)):
        results = tuple(_type(variable.aval) for variable in equation.outvars)
        layer = str(equation.source_info.name_stack).replace("/", ".")
        return applied(Equation(name, results, equation.params, layer, scope), operands)


def applied(equation: Equation, operands: Sequence[Term]) -> list[Term]:
    """Returns the results of an equation, of the dims and dtypes that it states. Raises Refused."""
    equation.scope.equations += 1
    if equation.scope.equations > MOST_NODES:
        raise Refused(f"the function has more than {MOST_NODES} equations, those of unrolled loops included")
    meaning = meanings().get(equation.primitive)
    if meaning is None:
        raise Refused("has no meaning here; docs/jax.md lists those that have")
    found = meaning(equation, *operands)
    found = list(found) if isinstance(found, list | tuple) else [found]
    for (dims, dtype), term in zip(equation.results, found, strict=True):
        if (tuple(term.access.dims), term.access.dtype) != (dims, dtype):
            want = f"{spelled(dims)} {dtype}"
            raise Refused(f"requires a result of {want}, got {spelled(term.access.dims)} {term.access.dtype}")
    return found


@contextmanager
def placed(subject: str, place: Callable[[], str]) -> Iterator[None]:
    """Raises Refused, with the subject and its place in the source, for what is refused inside."""
    try:
        yield
    except (GlensideError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, GlensideError) and error.status != BadInput.status:
            raise
        line = place()
        if isinstance(error, _Placed):  # by an equation inside this one
            raise error if error.line or not line else _Placed(error.subject, line, error.words) from None
        words = error.message if isinstance(error, GlensideError) else f"{type(error).__name__}: {error}"
        cause = None if isinstance(error, GlensideError) else error
        raise _Placed(subject, line, words) from cause


class _Placed(Refused):
    """A refusal that names what is refused, and the user's source line if that is known."""

    def __init__(self, subject: str, line: str, words: str) -> None:
        super().__init__(f"{subject}{line}: {words}")
        self.subject, self.line, self.words = subject, line, words


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
