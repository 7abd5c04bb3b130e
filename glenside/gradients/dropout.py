"""Removes dropout for inference: products with a mask that depends on the seed."""

from __future__ import annotations

from dataclasses import replace

from glenside.builder.dropout import SEED
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder, rebuild_all
from glenside.ir.types import Tensor


def at_inference(program: Program) -> Program:
    """Returns the program without dropout: without products by an operand that depends on the seed and no other
    input.
    """
    if program.inputs.get(SEED.name) != SEED:
        return program
    masks = _masks(program.term)

    def changed(term: Term, children: tuple[Term, ...]) -> Term | None:
        if term.operator.name != "compute" or term.attributes[0] != "elementwise-mul" or term in masks:
            return None
        pair = term.children[0]
        sides = [i for i, operand in enumerate(pair.children) if operand in masks]
        return children[0].children[1 - sides[0]] if pair.operator.name == "access-product" and sides else None

    roots = rebuild_all([*program.roots, *program.names.values()], changed)
    inputs = tuple(tensor for tensor in program.signature.inputs if tensor != SEED)
    signature = replace(program.signature, inputs=inputs)
    return program.with_roots(roots, signature=signature)


def _masks(root: Term) -> set[Term]:
    """Returns the terms that depend on the seed, and on nothing else that changes from run to run."""
    seeds: set[Term] = set()
    others: set[Term] = set()
    for term in postorder(root):
        leaf = next((a for a in term.attributes if isinstance(a, Tensor) and not a.constant), None)
        if (leaf is not None and leaf != SEED) or not others.isdisjoint(term.children):
            others.add(term)
        elif leaf is not None or not seeds.isdisjoint(term.children):
            seeds.add(term)
    return seeds
