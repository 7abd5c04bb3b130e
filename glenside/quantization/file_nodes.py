"""Finds the file's node of a term, also after quantization has replaced terms of the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from glenside.ir.operators.compute import name_of
from glenside.ir.program import Program
from glenside.ir.term import Term, constants_under, postorder
from glenside.ir.types import AccessType

_MOST_PAIRS = 1 << 18
"""The maximum pairs of terms that are compared."""


def node_names(original: Program, program: Program) -> Callable[[Term], str]:
    """Returns a function from terms of a program to the original file's node, such as "node /act/Mul (Mul)".

    It returns "" for unknown nodes. Nothing is computed before its first call.
    """

    @cache
    def known() -> tuple[Mapping[Term, str], Mapping[Term, list[Term]]]:
        users = defaultdict[Term, list[Term]](list)
        for term in postorder(program.term, *program.layers.values()):
            for child in term.children:
                users[child].append(term)
        return _carried(original, program), users

    def node_of(term: Term) -> str:
        if not original.nodes:
            return ""
        named, users = known()
        level, seen = [term], {term}
        while level:  # a term within a node belongs to the node that computes the next result
            for own in level:
                if own in named:
                    return named[own]
            level = [user for own in level for user in users[own] if user not in seen]
            seen.update(level)
        return ""

    return node_of


def _carried(original: Program, program: Program) -> Mapping[Term, str]:
    """Returns the nodes of a program's terms, from those of the original.

    Both are traversed together from the results and the layers: terms of one operator with equal dims correspond, and
    where operators differ, a term with one changing operand is skipped, on either side: it is a step of quantization,
    or a folded scale.
    """
    old_roots, new_roots = _roots(original), _roots(program)
    constant = {**constants_under(*old_roots.values()), **constants_under(*new_roots.values())}
    found: dict[Term, str] = {}
    pairs = [(old_roots[key], new_roots[key]) for key in old_roots if key in new_roots]
    seen = set[tuple[Term, Term]]()
    while pairs and len(seen) < _MOST_PAIRS:
        pair = old, new = pairs.pop()
        if pair in seen or constant[old] or constant[new]:
            continue
        seen.add(pair)
        below, others = _changing(old, constant), _changing(new, constant)
        if old is new or _kind(old) == _kind(new):
            if old in original.nodes:
                found.setdefault(new, original.nodes[old])
            if len(below) == len(others):
                pairs += zip(below, others, strict=True)
                continue
        pairs += [(old, others[0])] if len(others) == 1 else []
        pairs += [(below[0], new)] if len(below) == 1 else []
    return found


def _roots(program: Program) -> Mapping[str | None, Term]:
    return {None: program.term, **dict(program.layers.items())}


def _changing(term: Term, constant: Mapping[Term, bool]) -> Sequence[Term]:
    """Returns the operands of a term that are not constants."""
    return [operand for operand in read_by(term) if not constant[operand]]


def read_by(term: Term) -> tuple[Term, ...]:
    """Returns the operands of a term, through pairs."""
    return tuple(x for c in term.children for x in (c.children if c.operator.name == "access-product" else (c,)))


def _kind(term: Term) -> tuple[object, ...]:
    dims = tuple(term.access.dims) if isinstance(term.type, AccessType) else None
    return term.operator.name, name_of(term), dims
