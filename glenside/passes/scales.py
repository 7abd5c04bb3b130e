"""Merges the constant scales and shifts of a product into one scale and one shift.

A product with a bias, a batch norm and another scale becomes a product with one scale and one shift. The scale is then
folded into the weights, the shift into the next operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glenside.builder.layout import broadcast
from glenside.builder.pointwise import add, combine, multiply
from glenside.ir.dtypes import FLOATS
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.passes.element_functions import narrowed, pair_of

_SCALES = ("elementwise-mul", "elementwise-div")
_FOLDED = ("elementwise-add", "subtract", *_SCALES)
_OF_EITHER = ("elementwise-add", "elementwise-mul")
"""Compute types that scale or shift a product by a constant; and those with operands in either order."""


@dataclass(frozen=True)
class Step:
    """A scale or a shift of x by a constant."""

    kind: str
    x: Term
    constant: Term

    @property
    def scales(self) -> bool:
        return self.kind in _SCALES


def chains(order: Sequence[Term], constant: Mapping[Term, bool]) -> dict[Term, list[Step]]:
    """Returns term -> the chain of scales and shifts from a product to it; each step has the next as its only reader.

    `order`: the terms, children first.
    """
    readers = Counter(child for term in order for child in term.children)
    found: dict[Term, list[Step]] = {}
    for term in order:
        pair = pair_of(term)
        if pair is None or str(term.attributes[0]) not in _FOLDED:
            continue
        kind, (first, second) = str(term.attributes[0]), (constant[c] for c in pair.children)
        if first == second or (first and kind not in _OF_EITHER):
            continue
        x, by = pair.children[:: -1 if first else 1]
        if readers[x] == 1 and (x in found or _is_of_product(x)):
            found[term] = [*found.get(x, ()), Step(kind, x, by)]
    return found


def _is_of_product(term: Term) -> bool:
    """True if the term is a product up to movement."""
    while term.operator.moves and len(term.children) == 1:
        term = term.children[0]
    return is_product(term)


def with_scales_first(program: Program) -> list[Term]:
    """Merges each chain with a scale after its first step into one scale, then one shift; returns the new roots.

    For floats only: equal in real arithmetic, up to rounding.
    """
    constant = program.info.constant
    found = chains([term for term in postorder(*program.roots) if not constant[term]], constant)
    inner = {steps[-1].x for steps in found.values()}
    done: dict[Term, Term] = {}

    def joined(term: Term, _: tuple[Term, ...]) -> Term | None:
        steps = found.get(term, [])
        late = any(step.scales for step in steps[1:]) and term not in inner and term.access.dtype in FLOATS
        return _affine(done[steps[0].x], steps) if late else None

    return rebuild_all(program.roots, joined, done)


def _affine(x: Term, steps: Sequence[Step]) -> Term:
    """Returns x with the steps merged into one scale and one shift."""
    scale: Term | None = None
    shift: Term | None = None
    for step in steps:
        by = narrowed(step.constant)
        if step.scales:
            one = build("full", by.access.dims, "1", by.access.dtype)
            scale = combine(step.kind, one if scale is None else scale, by) if scale or step.kind != _SCALES[0] else by
            shift = None if shift is None else combine(step.kind, shift, by)
        elif step.kind == "subtract":
            shift = build("compute", "negative", by) if shift is None else combine(step.kind, shift, by)
        else:
            shift = by if shift is None else add(shift, by)
    x = x if scale is None else multiply(x, broadcast(scale, x.access.dims))
    return x if shift is None else add(x, broadcast(shift, x.access.dims))
