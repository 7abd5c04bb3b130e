"""Runs the examples of rules: finds the term that a rule adds to the program of an example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from glenside.egraph.encode import MADE, PROGRAM_NODE, program_nodes
from glenside.egraph.rule import Example, Rule
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.snapshot import Snapshot
from glenside.ir.term import Term
from glenside.ir.types import Tensor


def named_wants(wants: str, nodes: Sequence[Term]) -> str:
    """Returns the wants of an example as actions, with its nodes for `$name`."""
    places = named_places(nodes)
    return re.sub(r"\$(\w+)", lambda name: f"({PROGRAM_NODE} {places[name[1]]})", wants)


def named_places(nodes: Sequence[Term]) -> dict[str, int]:
    """Returns name -> index of a program node: `root` is the result, `x` the tensor x, `x2` the access of x with split
    2.
    """
    places = {"root": len(nodes) - 1}
    for i, node in enumerate(nodes):
        words = (*(node.children[0].attributes if node.operator.name == "access" else ()), *node.attributes)
        if node.operator.name in ("access", "access-tensor") and isinstance(words[0], Tensor):
            places.setdefault(f"{words[0].name}{''.join(map(str, words[1:]))}", i)
    return places


class Shown(NamedTuple):
    """A part of an example's program, and a term that a rule made equal to it (`equal`) or added elsewhere."""

    before: Term
    after: Term
    equal: bool = True


def shown(rule: Rule, example: Example, analyses: Iterable[Rule]) -> Shown | None:
    """Returns the smallest term that the rule alone adds to an example's program; None if it only adds facts.

    The term is equal to the last node of the program that gets one, the result first; otherwise to no node. Parameters
    that the example leaves out are 0, and analyses that need other parameters do not run.
    """
    program = example.program()
    nodes = program_nodes(program.term)
    parameters = {**dict.fromkeys(rule.parameters, 0), **example.parameters}
    rules = dict.fromkeys((rule, *(a for a in analyses if a.parameters <= parameters.keys())))
    wants = named_wants(example.demands, nodes)
    search = Saturation(Request.of(nodes, rules, parameters, Limits(iterations=10), wants, trace=True))
    search.run()
    snapshot = search.snapshot(program.tensors)
    built = {(owner, operator) for owner, operator, maker, *_ in snapshot.facts[MADE] if maker == rule.name}
    smallest, added = smallest_terms(snapshot), dict[int, set[Term]]()
    for owner, node in zip(snapshot.owner, snapshot.nodes, strict=True):
        term = snapshot.term_of(node, [smallest[c] for c in node.children])
        if (owner, node.operator) in built and term not in nodes:
            added.setdefault(owner, set()).add(term)
    for before, place in reversed(list(zip(nodes, snapshot.program, strict=True))):
        if place in added:
            return Shown(before, min(added[place], key=_length))
    return Shown(nodes[-1], min(set().union(*added.values()), key=_length), equal=False) if added else None


def _length(term: Term) -> tuple[int, str]:
    return len(program_nodes(term)), str(term)


def smallest_terms(snapshot: Snapshot) -> list[Term]:
    """Returns for each class a term of minimum depth, by a fixed point from the leaves."""
    terms: dict[int, Term] = {}
    count = -1
    while count < len(terms):
        count, known = len(terms), dict(terms)
        for owner, node in zip(snapshot.owner, snapshot.nodes, strict=True):
            if owner not in terms and all(c in known for c in node.children):
                terms[owner] = snapshot.term_of(node, [known[c] for c in node.children])
    return [terms[c] for c in range(len(snapshot.classes))]
