"""The part of an e-graph that some class may need, as an e-graph of its own: of one layer among many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from glenside.egraph.encode import MADE, WRITTEN
from glenside.egraph.snapshot import Fact, Snapshot

_CLASSES: Mapping[str, tuple[tuple[int, ...], int]] = {MADE: ((0, 4), 6), WRITTEN: ((0,), 3)}
"""Columns of a relation that are classes, and from which on all are; of what rules report it is the first alone."""


@dataclass(frozen=True)
class Part:
    """A snapshot, and the new numbers of the classes and e-nodes that are in it."""

    snapshot: Snapshot
    classes: Mapping[int, int]
    nodes: Mapping[int, int]

    def choice(self, choice: Mapping[int, int]) -> dict[int, int]:
        """class -> e-node, of those that are in it."""
        return {self.classes[c]: self.nodes[n] for c, n in choice.items() if c in self.classes}


def part(snapshot: Snapshot, root: int) -> Part:
    """What a class may need, and what the rules that made that were applied to."""
    sources: dict[int, set[int]] = {}
    for eclass, _, _, _, source, *_ in snapshot.facts.get(MADE, ()):
        sources.setdefault(eclass, set()).add(source)
    found, stack = {root}, [root]
    while stack:
        eclass = stack.pop()
        below = {c for n in snapshot.classes[eclass] for c in snapshot.nodes[n].children} | sources.get(eclass, set())
        stack += below - found
        found |= below
    classes = {c: i for i, c in enumerate(sorted(found))}
    nodes = {n: i for i, n in enumerate(n for n, c in enumerate(snapshot.owner) if c in classes)}
    made = Snapshot(
        tuple(
            replace(snapshot.nodes[n], children=tuple(classes[c] for c in snapshot.nodes[n].children)) for n in nodes
        ),
        tuple(classes[snapshot.owner[n]] for n in nodes),
        tuple(snapshot.types[c] for c in classes),
        (classes[root],),
        snapshot.tensors,
        {
            name: tuple(new for row in rows if (new := _renumbered(name, row, classes)) is not None)
            for name, rows in snapshot.facts.items()
        },
    )
    return Part(made, classes, nodes)


def _renumbered(relation: str, row: Fact, classes: Mapping[int, int]) -> Fact | None:
    """A fact of classes that are in the part; None where one is not."""
    columns, rest = _CLASSES.get(relation, ((0,), len(row)))
    new: list[Any] = [*row]
    for i in (*columns, *range(rest, len(row))):
        if row[i] not in classes:
            return None
        new[i] = classes[row[i]]
    return tuple(new)
