"""Rewrites divisions of tensors as products with the inverse, which is a function of the divisor's bytes."""

from __future__ import annotations

from glenside.builder.pointwise import divide, filled, multiply
from glenside.ir.program import Program
from glenside.ir.term import Term, make, postorder, rebuild_all, weave
from glenside.passes.element_functions import pair_of
from glenside.quantization.byte_functions import regions
from glenside.quantization.normalizing import inside, standardisation


def with_inverses(program: Program) -> Program:
    """Returns the program without divisions by changing tensors, except in normalizations and functions of one
    tensor.
    """
    constant, order = program.info.constant, [*postorder(*program.roots)]
    standard = {t: own for t in order if (own := standardisation(t, constant)) is not None}
    kept = {part for t, own in standard.items() for part in inside(t, own)} | standard.keys()
    kept |= regions([t for t in order if t not in kept], constant).keys()

    def divided(term: Term) -> bool:
        pair = pair_of(term) if term.attributes[:1] == ("elementwise-div",) and term not in kept else None
        return pair is not None and not any(constant[c] for c in pair.children)

    divisions = {t for t in order if divided(t)}
    if not divisions:
        return program

    def changed(term: Term, children: tuple[Term, ...]) -> Term | None:
        if term not in divisions:
            return None
        a, b = children[0].children
        return multiply(a, _inverse(b))

    return program.with_roots(rebuild_all(program.roots, changed, {}))


def _inverse(x: Term) -> Term:
    """Returns 1 / x, computed before broadcasts of x."""
    if x.operator.name in ("access-broadcast", "access-reshape") and x.access.split == x.children[0].access.split == 0:
        return make(x.operator, weave(x.operator, [_inverse(x.children[0])], x.attributes))
    return divide(filled(x, 1), x)
