"""Matches a program with its gradient: gradients with tensors, and cotangents with results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from glenside.check.expected import arrays_of
from glenside.check.input_generators import declared
from glenside.gradients.programs import results_of
from glenside.ir.dtypes import REALS
from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name, suggestion
from glenside.ir.operand import Array
from glenside.ir.operators.requirements import spelled
from glenside.ir.program import Program
from glenside.ir.rational import exact
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import AccessType, Tensor
from glenside.semantics.dual_field import TWO_OVER_ROOT_PI

_NEAR = 1e-6


class Pair(NamedTuple):
    """The terms of a program and its gradient, and the roles of tensors and results.

    gradients   tensor -> the term of its gradient
    values      the terms of the program's results that the gradient program returns too
    cotangents  the names of the cotangents, for each float result of the original; none where u is 1
    given       values of tensors that are not drawn
    two_over_root_pi  the number that the gradient has for 2 / sqrt(pi)
    """

    original: Term
    gradient: Term
    tensors: Mapping[str, Tensor]
    gradients: Mapping[str, Term]
    values: Sequence[Term]
    cotangents: Sequence[str]
    given: Mapping[str, Array]
    two_over_root_pi: Fraction

    @property
    def roots(self) -> tuple[Term, Term]:
        return self.original, self.gradient


def pair_of(
    program: Program,
    gradient: Program,
    wrt: Sequence[str],
    of: str | Sequence[str] | None,
    cotangents: Sequence[str],
    given: Mapping[str, Array],
) -> Pair:
    """Matches a program with its gradient. Raises BadInput where they do not fit together."""
    moved = _tensors(program, wrt)
    results = results_of(program, of)
    original = program.term if of is None else build("construct-tuple", *results.values())
    found = arrays_of(gradient.term)
    if len(found) not in (len(wrt), len(wrt) + len(results)):
        wanted = f"{len(wrt)} results, or {len(wrt) + len(results)} with the program's own before them"
        raise BadInput(f"a gradient with respect to {' '.join(wrt)} requires {wanted}, got {len(found)}")
    values = found[: len(found) - len(wrt)]
    gradients = dict(zip(wrt, found[len(values) :], strict=True))
    for name, term in gradients.items():
        _require_alike(f"the gradient with respect to {spelled_name(name)}", term.access, moved[name])
    for (name, result), term in zip(results.items(), values, strict=False):
        _require_alike(f"the result {spelled_name(name)} beside gradients", term.access, result.access)
    tensors = {**moved, **declared(original, gradient.term)}
    known = {*program.tensors}
    own = {name: gradient.constants[name] for name in gradient.constants if name not in known}
    fixed = {name: array for name, array in {**own, **given}.items() if name in tensors}
    others = [name for name in gradient.tensors if name not in {*known, *fixed}]
    of_floats = {name: term.access for name, term in results.items() if term.access.dtype in REALS}
    named = [*cotangents] or _matched(others, [*of_floats])
    _check_cotangents(named, others, of_floats, tensors)
    return Pair(original, gradient.term, tensors, gradients, values, named, fixed, _constant(gradient.term))


def _tensors(program: Program, wrt: Sequence[str]) -> dict[str, Tensor]:
    """Returns the tensors to differentiate by; the results need not depend on them. Raises BadInput."""
    if not wrt or len({*wrt}) != len(wrt):
        raise BadInput(f"a check of gradients requires tensors, each once, got {' '.join(wrt) or 'none'}")
    known = program.tensors
    for name in wrt:
        if name not in known:
            hint = suggestion(name, known)
            raise BadInput(f"a gradient requires a tensor of the program, which has no {spelled_name(name)}{hint}")
        if known[name].dtype not in REALS:
            raise BadInput(f"a gradient with respect to {spelled_name(name)} requires floats, got {known[name].dtype}")
    return {name: known[name] for name in wrt}


def _require_alike(what: str, found: AccessType, wanted: AccessType | Tensor) -> None:
    if (found.dims, found.dtype) != (wanted.dims, wanted.dtype):
        raise BadInput(f"{what} requires {wanted.dtype} of {spelled(wanted.dims)}, got {found}")


def _matched(others: Sequence[str], results: Sequence[str]) -> list[str]:
    """Returns the cotangents among tensors that the program does not have: the only one, or the NAME.RESULT."""
    if len(results) == 1:
        return [*others]
    found = [[name for name in others if name.endswith(f".{result}")] for result in results]
    return [name for names in found for name in names[:1]]


def _constant(gradient: Term) -> Fraction:
    """Returns the number nearest to 2 / sqrt(pi), which is irrational, in the gradient; if none is near, a default."""
    words = {
        word
        for term in postorder(gradient)
        for attribute in term.attributes
        if isinstance(attribute, str)
        for word in attribute.strip("()").split()
    }
    near = [n for n in map(exact, words) if n is not None and abs(n / TWO_OVER_ROOT_PI - 1) < _NEAR]
    return min(near, key=lambda n: abs(n - TWO_OVER_ROOT_PI), default=TWO_OVER_ROOT_PI)


def _check_cotangents(
    named: Sequence[str], others: Sequence[str], results: Mapping[str, AccessType], tensors: Mapping[str, Tensor]
) -> None:
    if not named:
        if [kind.size for kind in results.values()] != [1]:
            got = ", ".join(f"{spelled_name(name)}, {kind}" for name, kind in results.items()) or "none of floats"
            raise BadInput(f"a gradient without cotangents requires a result of one number, got {got}")
    elif len(named) != len(results):
        count = f"{len(results)} cotangents, one for each result"
        raise BadInput(f"a gradient of {' '.join(results) or 'no floats'} requires {count}, got {' '.join(named)}")
    for name, kind in zip(named, results.values(), strict=False):
        if name in tensors:
            _require_alike(
                f"the cotangent {spelled_name(name)}", AccessType(tensors[name].dims, 0, tensors[name].dtype), kind
            )
    unknown = [name for name in others if name not in named]
    if unknown:
        raise BadInput(f"a gradient requires the program's tensors and cotangents alone, got {' '.join(unknown)}")


def types(term: Term) -> list[AccessType]:
    """Returns the types of a term's results."""
    return [item.access for item in arrays_of(term)]
