"""Finds the rules that made the e-nodes of a term, from the trace of a search."""

from __future__ import annotations

from typing import Any

from glenside.egraph.encode import MADE, WRITTEN
from glenside.egraph.snapshot import Snapshot
from glenside.ir.term import Term, postorder
from glenside.ir.types import Tensor


class Origins:
    """The trace of an e-graph, indexed by e-node; empty if the e-graph was searched without a trace."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._class = {
            (node.operator, node.attributes, *node.children): owner
            for node, owner in zip(snapshot.nodes, snapshot.owner, strict=True)
        }
        self._written = {*snapshot.facts.get(WRITTEN, ())}
        self._first: dict[tuple[Any, ...], tuple[int, str]] = {}
        for eclass, operator, rule, iteration, _, *node in snapshot.facts.get(MADE, ()):
            key, made = (eclass, operator, *node), (iteration, rule)
            self._first[key] = min(self._first.get(key, made), made)

    def of(self, term: Term) -> tuple[str, ...]:
        """Returns the sorted names of the rules that first made the term's e-nodes, without e-nodes of the program."""
        places: dict[Term, int | None] = {}
        rules: dict[str, None] = {}
        for own in postorder(term):
            below = [places[child] for child in own.children]
            attributes = tuple(a.name if isinstance(a, Tensor) else a for a in own.attributes)
            node = (own.operator.name, attributes, *below)
            places[own] = self._class.get(node)
            key = (places[own], *node)
            if key not in self._written and key in self._first:
                rules[self._first[key][1]] = None
        return tuple(sorted(rules))
