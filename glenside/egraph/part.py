"""Extracts the part of an e-graph for one layer, and joins the e-graphs of parts of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from glenside.egraph.encode import MADE, WRITTEN
from glenside.egraph.snapshot import ENode, Fact, Snapshot, closed
from glenside.ir.term import Term

_CLASSES: Mapping[str, tuple[tuple[int, ...], int]] = {MADE: ((0, 4), 6), WRITTEN: ((0,), 3)}
"""relation -> (columns that are classes, column from which on all are); for reported relations only column 0 is."""


MANY = 12
"""Minimum number of parts without shared nodes, such as layers, for which another search process pays."""


@dataclass(frozen=True)
class Part:
    """A part of a snapshot, with old -> new numbers of its classes and e-nodes."""

    snapshot: Snapshot
    classes: Mapping[int, int]
    nodes: Mapping[int, int]

    def choice(self, choice: Mapping[int, int]) -> dict[int, int]:
        """Returns the choice, class -> e-node, restricted to the part and renumbered."""
        return {self.classes[c]: self.nodes[n] for c, n in choice.items() if c in self.classes}


def part(snapshot: Snapshot, root: int) -> Part:
    """Returns the part that a class may need, with the classes that the rules of its trace matched."""
    sources: dict[int, set[int]] = {}
    for eclass, _, _, _, source, *_ in snapshot.facts.get(MADE, ()):
        sources.setdefault(eclass, set()).add(source)
    classes = {c: i for i, c in enumerate(sorted(snapshot.reachable(root, sources)))}
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


def unshared(nodes: Sequence[Term], count: int) -> list[list[int]]:
    """Splits the nodes of a program (indices, children first) into disjoint parts of similar size, in order. A small
    program is one part.
    """
    whole = [[*range(len(nodes))]]
    if count < 2:
        return whole
    part_of: dict[Term, int] = {}
    members: dict[int, list[int]] = {}
    for place, term in enumerate(nodes):
        below = sorted({part_of[c] for c in term.children}, key=lambda part: len(members[part])) or [place]
        own = members.setdefault(below[-1], [])
        for other in below[:-1]:
            moved = members.pop(other)
            part_of.update((nodes[i], below[-1]) for i in moved)
            own += moved
        part_of[term] = below[-1]
        own.append(place)
    if len(members) < MANY:
        return whole
    found: list[list[int]] = [[] for _ in range(count)]
    turns = [*range(count), *reversed(range(count))]  # back and forth, so that similar members are spread evenly
    alike = sorted(members.values(), key=lambda own: [nodes[i].operator.name for i in sorted(own)])
    for own, turn in zip(alike, cycle(turns), strict=False):
        found[turn] += own
    return [sorted(own) for own in found]


def joined(parts: Sequence[tuple[Snapshot, Sequence[int]]]) -> Snapshot:
    """Joins the e-graphs of a program's parts, each with the indices of its nodes in the program.

    E-nodes that several parts have, such as numbers, become one.
    """
    if len(parts) == 1:
        return parts[0][0]
    rows: list[tuple[ENode, int]] = []
    types: list[Any] = []
    program: dict[int, int] = {}
    facts: dict[str, list[Fact]] = {}
    leaves, apart = set[tuple[Any, ...]](), True
    for snapshot, places in parts:
        first = len(types)
        classes = {c: first + c for c in range(snapshot.e_classes)}
        rows += zip(_moved(snapshot.nodes, first), map(classes.__getitem__, snapshot.owner), strict=True)
        types += snapshot.types
        program |= zip(places, map(classes.__getitem__, snapshot.program), strict=True)
        for name, known in snapshot.facts.items():
            facts.setdefault(name, []).extend(new for row in known if (new := _renumbered(name, row, classes)))
        own = {(node.operator, node.attributes) for node in snapshot.nodes if not node.children}
        apart &= leaves.isdisjoint(own)  # equal e-nodes have equal leaves below them
        leaves |= own
    at = [program[place] for place in range(len(program))]
    if apart:
        nodes, owner = zip(*rows, strict=True) if rows else ((), ())
        named = {name: tuple(own) for name, own in facts.items()}
        return Snapshot(nodes, owner, tuple(types), tuple(at), {}, named)
    lots = [(name, (_columns(name, row), [row])) for name, own in facts.items() for row in own]
    typed = {eclass: type_ for eclass, type_ in enumerate(types) if type_ is not None}
    return closed(rows, len(types), typed, at, {}, lots)


def _moved(nodes: Sequence[ENode], by: int) -> Sequence[ENode]:
    """Returns the e-nodes with `by` added to their classes."""
    if not by:
        return nodes
    return [ENode(n.operator, n.attributes, tuple([c + by for c in n.children]), n.subsumed) for n in nodes]


def _columns(relation: str, row: Fact) -> tuple[int, ...]:
    """Returns the columns of a fact that are classes."""
    columns, rest = _CLASSES.get(relation, ((0,), len(row)))
    return (*columns, *range(rest, len(row)))


def _renumbered(relation: str, row: Fact, classes: Mapping[int, int]) -> Fact | None:
    """Returns a fact with its classes renumbered; None if one is not in the part."""
    new: list[Any] = [*row]
    for i in _columns(relation, row):
        if row[i] not in classes:
            return None
        new[i] = classes[row[i]]
    return tuple(new)
