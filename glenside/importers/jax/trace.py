"""Traces a function of JAX, and declares its arguments and results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.importers.jax.walk import Scope, evaluated
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.names import numbered
from glenside.ir.operand import Array
from glenside.ir.packages import import_jax
from glenside.ir.program import Program, Signature
from glenside.ir.term import Term, build


def from_jax(
    function: Callable[..., Any], *examples: Any, constants: int | str | Sequence[int | str] = (), **named: Any
) -> Program:
    """Returns the program of a function of JAX, for arguments like the examples.

      function   a function of arrays, or of tuples, lists and dicts of them; it may be jitted
      examples   arrays of JAX or numpy, numbers, or `jax.ShapeDtypeStruct`
      constants  positions or names of arguments whose arrays are constants of the program, such as parameters
      named      further examples by name

    Inputs are named after the arguments and the keys that lead to them: `x`, `params.Dense_0.kernel`. What the
    function closes over is constant. Several results are a tuple; `program.signature` has their names. Raises BadInput,
    which names the primitive and its source line.
    """
    jax = import_jax()
    if not callable(function):
        raise BadInput(f"from_jax takes a function, got {type(function).__name__}")
    try:
        jaxpr, result = jax.make_jaxpr(function, return_shape=True)(*examples, **named)
    except Exception as error:
        words = " ".join(str(error).split("\n\n")[0].split())[:300]
        raise BadInput(f"jax does not trace the function: {type(error).__name__}: {words}") from error
    scope = Scope(Builder(getattr(function, "__name__", type(function).__name__)))
    operands = _arguments(jax, scope, jaxpr, _leaves(jax, function, examples, named), _positions(constants))
    captured = [scope.constant(f"constant_{place}", _array(value)) for place, value in enumerate(jaxpr.consts)]
    weights = set(scope.builder.values)
    values = evaluated(scope, jaxpr.jaxpr, captured, operands)
    results: dict[str, Term] = {}
    for (path, _), value in zip(jax.tree_util.tree_flatten_with_path(result)[0], values, strict=True):
        results[numbered(_joined(path) or "output", results)] = value
    if not results:
        raise BadInput("the function returns no array; a program requires one")
    term, *others = results.values()
    program = scope.builder.finish(build("construct-tuple", term, *others) if others else term)
    fixed = frozenset(set(program.constants_declared) - weights)
    return replace(program, signature=Signature(tuple(program.inputs.values()), tuple(results), fixed=fixed))


def _positions(constants: int | str | Sequence[int | str]) -> set[int | str]:
    return {constants} if isinstance(constants, int | str) else set(constants)


def _leaves(
    jax: Any, function: Callable[..., Any], examples: Sequence[Any], named: Mapping[str, Any]
) -> list[tuple[int | str, str, Any]]:
    """Returns (position or name of the argument, name of the array, array) of each example, in JAX's order."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    found: list[tuple[int | str, str, Any]] = []
    for path, leaf in jax.tree_util.tree_flatten_with_path((tuple(examples), dict(named)))[0]:
        own, rest = path[1], _joined(path[2:])
        place = getattr(own, "idx", getattr(own, "key", 0))
        name = place if isinstance(place, str) else names[place] if place < len(names) else f"input_{place}"
        found.append((place, ".".join(filter(None, (name, rest))), leaf))
    return found


def _arguments(
    jax: Any, scope: Scope, jaxpr: Any, leaves: Sequence[tuple[int | str, str, Any]], constants: Collection[int | str]
) -> list[Term]:
    """Declares the arguments; returns their terms. Raises BadInput."""
    unknown = set(constants) - {place for place, _, _ in leaves} - {name.partition(".")[0] for _, name, _ in leaves}
    if unknown:
        raise BadInput(f"constants: there is no argument {sorted(map(str, unknown))[0]} with arrays")
    terms = []
    for variable, (place, name, leaf) in zip(jaxpr.jaxpr.invars, leaves, strict=True):
        dims, dtype = tuple(variable.aval.shape), str(variable.aval.dtype)
        if dtype not in RECORDS:
            raise BadInput(f"the argument {name} has dtype {dtype}, which is not supported")
        if not {place, name.partition(".")[0]} & set(constants):
            terms.append(scope.builder.input(numbered(name, scope.builder.tensors), dims, dtype))
        elif isinstance(leaf, jax.ShapeDtypeStruct):
            raise BadInput(f"the argument {name} is constant, so its example must have values")
        else:
            terms.append(scope.constant(name, _array(leaf).astype(RECORDS[dtype].numpy)))
    return terms


def _array(value: Any) -> Array:
    """Returns an array of JAX as one of numpy, which shares its memory where that is possible. Raises BadInput."""
    try:
        return np.asarray(value)
    except TypeError as error:
        raise BadInput(
            f"a constant of dtype {getattr(value, 'dtype', type(value).__name__)} has no meaning here"
        ) from error


def _joined(path: Sequence[Any]) -> str:
    """Returns the keys that lead to an array."""
    return ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path)
