"""Computes elementwise functions of the bytes of one tensor as tables of 256 bytes, exactly.

Any elementwise computation between two tensors of bytes, such as a hard swish with its intermediate roundings, is a
function of one byte, and so has 256 values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from glenside.builder.layout import broadcast
from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operators.compute import compute_of
from glenside.ir.term import Term, build, make, weave
from glenside.ir.types import Dims, Tensor
from glenside.passes.element_functions import is_one_number, number_of, operands_of, pair_of
from glenside.quantization.values import BYTES
from glenside.semantics.interpreter import evaluate

BYTE = 256
_LINEAR = ("relu", "clip", "round", "negative", "elementwise-add", "subtract", "elementwise-div", "maximum", "minimum")
"""Operators that are linear if one operand changes, as are products with constants."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A term that is a function of each byte of another; `why` is the reason for refusing it elsewhere."""

    base: Term
    why: str


def base_of(term: Term, constant: Mapping[Term, bool]) -> Term | None:
    """Returns the tensor of bytes of which a term is an elementwise function; None if there is none, or several.

    Of several candidates, returns the nearest one that alone determines the term.
    """
    found, stack, seen = set[Term](), [term], set[Term]()
    while stack:
        part = unviewed(stack.pop())
        if part in seen or constant[part]:
            continue
        seen.add(part)
        if part.access.dtype in BYTES:
            found.add(part)
            continue
        below = operands_of(part)
        if below is None:
            return None
        stack += below
    chains = [_below(part, constant) for part in found]
    return next((part for part in chains[0] if all(part in chain for chain in chains)), None) if chains else None


def _below(part: Term, constant: Mapping[Term, bool]) -> list[Term]:
    """Returns a tensor of bytes, the tensor that it is computed from, and so on."""
    base = base_of(part.children[0], constant) if part.operator.name == "cast" else None
    return [part, *([] if base is None else _below(base, constant))]


def regions(order: list[Term], constant: Mapping[Term, bool]) -> dict[Term, Term]:
    """Returns nonlinear elementwise functions of one tensor, mapped to that tensor."""
    found: dict[Term, Term] = {}
    scaled: dict[Term, Term] = {}  # by one number
    for term in order:
        below = None if constant[term] else operands_of(term)
        if term.operator.name != "compute" or not below:
            continue
        changing = [unviewed(x) for x in below if not constant[x]]
        bases = {found.get(x, scaled.get(x, x)) for x in changing}
        within = any(x in found for x in changing)
        if len(bases) != 1 or (within and not all(is_one_number(x) for x in below if constant[x])):
            continue
        if within or len(changing) > 1 or not _is_linear(term, below, constant):
            found[term] = bases.pop()
        elif all(is_one_number(x) for x in below if constant[x]):
            scaled[term] = bases.pop()
    return found


def _is_linear(term: Term, below: Sequence[Term], constant: Mapping[Term, bool]) -> bool:
    kind = compute_of(term)[0].name
    if kind == "elementwise-div":
        return constant[below[1]]
    return kind in _LINEAR or kind == "elementwise-mul"


def table_of(term: Term, base: Term, constants: Mapping[str, Array], constant: Mapping[Term, bool]) -> Array:
    """Returns the byte that a term computes for each byte of another, (256): as stored, in ascending order.

    Raises BadInput if it depends on the index.
    """
    elements = build("access-tensor", Tensor("elements", Dims((BYTE,)), base.access.dtype))
    least, most = limits(base.access.dtype)
    numbers = np.arange(least, most + 1).astype(base.access.dtype)
    (found,) = evaluate([_applied(elements, base, term, constant, {})], constants, given={elements: numbers})
    made: Array = np.asarray(found, np.int64).reshape(BYTE)
    return made


def _applied(elements: Term, base: Term, term: Term, constant: Mapping[Term, bool], done: dict[Term, Term]) -> Term:
    """Returns a term applied to some elements, ()(n), of another one."""
    term = unviewed(term)
    if term is unviewed(base):
        return elements
    if term not in done:
        if constant[term] and not is_one_number(term):
            raise BadInput("a function of bytes must be the same for all elements, but this one differs along an axis")
        if constant[term]:
            done[term] = broadcast(number_of(term), elements.access.dims)
        else:
            below = [_applied(elements, base, x, constant, done) for x in operands_of(term) or ()]
            pair = pair_of(term)
            children = below if pair is None else [build("access-product", *below, 0)]
            done[term] = make(term.operator, weave(term.operator, children, term.attributes))
    return done[term]


def unviewed(term: Term) -> Term:
    """Returns the term with the same elements in the same order, below views."""
    while term.operator.name in ("access", "access-reshape"):
        term = term.children[0]
    return term
