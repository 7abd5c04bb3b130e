"""Snapshots of e-graphs: plain, picklable values without egglog, for extractors, viewers and reports."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from glenside.ir.operator import OPERATORS, Kind
from glenside.ir.term import Term, make, weave
from glenside.ir.types import AccessType, Tensor

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, slots=True)
class ENode:
    """An operator over e-classes. A tensor's attribute is its name."""

    operator: str
    attributes: tuple[Any, ...]
    children: tuple[int, ...]
    subsumed: bool = False


Fact = tuple[Any, ...]
"""A row of a relation: classes as numbers, strings, ints and vectors of ints."""
Rows = tuple[tuple[int, ...], Sequence[Fact]]
"""The columns of a relation that are classes, and its rows."""


@dataclass(frozen=True)
class Snapshot:
    """An e-graph: `nodes[i]` is in class `owner[i]`; `types[c]` is the type of class c; `program[i]` is the class of
    program node i.

    Closed under congruence: equal operators over equal classes are one node.
    """

    nodes: tuple[ENode, ...]
    owner: tuple[int, ...]
    types: tuple[AccessType | None, ...]
    program: tuple[int, ...]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict)
    """Rows about classes, by relation, for the relations that the search reports."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the e-graph as columns: one object per e-node would take longer to send than to find."""
        kinds: dict[tuple[Any, ...], int] = {}
        columns = array("i"), array("i"), array("i")
        for node in self.nodes:
            kind = kinds.setdefault((node.operator, node.attributes, node.subsumed), len(kinds))
            columns[0].append(kind)
            columns[1].append(len(node.children))
            columns[2].extend(node.children)
        types = {t: i for i, t in enumerate(dict.fromkeys(self.types))}
        typed = array("i", (types[t] for t in self.types))
        rest = (array("i", self.owner), array("i", self.program), dict(self.tensors), dict(self.facts))
        return _from_columns, (list(kinds), *columns, list(types), typed, *rest)

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The e-nodes of each class."""
        members: list[list[int]] = [[] for _ in self.types]
        for i, eclass in enumerate(self.owner):
            members[eclass].append(i)
        return tuple(map(tuple, members))

    @property
    def e_nodes(self) -> int:
        return len(self.nodes)

    @property
    def e_classes(self) -> int:
        return len(self.types)

    def term_of(self, node: ENode, children: Sequence[Term]) -> Term:
        """Returns the term of an e-node over terms of its children."""
        operator = OPERATORS[node.operator]
        attributes = node.attributes
        if operator.fields and operator.fields[0].kind is Kind.TENSOR:
            attributes = (self.tensors[attributes[0]],)
        return make(operator, weave(operator, children, attributes))

    def terms(self, choice: Mapping[int, int], roots: Sequence[int]) -> dict[int, Term]:
        """Returns class -> term for every class that the roots need; class c is `nodes[choice[c]]`."""
        done: dict[int, Term] = {}
        stack = [(root, False) for root in reversed(roots)]
        while stack:
            eclass, ready = stack.pop()
            if eclass in done:
                continue
            node = self.nodes[choice[eclass]]
            if ready:
                done[eclass] = self.term_of(node, [done[c] for c in node.children])
            else:
                stack.append((eclass, True))
                stack += [(c, False) for c in reversed(node.children) if c not in done]
        return done

    def reachable(self, root: int, sources: Mapping[int, Collection[int]] | None = None) -> set[int]:
        """The classes that some term of a class may need; with `sources`, those of any of these classes too."""
        found, stack = {root}, [root]
        while stack:
            eclass = stack.pop()
            below = {c for n in self.classes[eclass] for c in self.nodes[n].children}
            below |= {*(sources or {}).get(eclass, ())}
            stack += below - found
            found |= below
        return found

    def usable(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yields (class, its e-nodes without the subsumed ones, or all if all are subsumed)."""
        yield from enumerate(self._usable)

    def usable_of(self, eclass: int) -> tuple[int, ...]:
        """Returns the usable e-nodes of one class."""
        return self._usable[eclass]

    @cached_property
    def _usable(self) -> tuple[tuple[int, ...], ...]:
        """The usable e-nodes of each class."""
        subsumed = [node.subsumed for node in self.nodes]
        return tuple(tuple(n for n in members if not subsumed[n]) or members for members in self.classes)

    def graph(self) -> networkx.MultiDiGraph[Any]:
        """Returns a graph of nodes ("class", c) and ("node", i), with edges from class to node and node to class."""
        import networkx

        result: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph()
        for c, type_ in enumerate(self.types):
            result.add_node(("class", c), type=str(type_) if type_ else "")
        for i, node in enumerate(self.nodes):
            result.add_node(("node", i), operator=node.operator, attributes=node.attributes, subsumed=node.subsumed)
            result.add_edge(("class", self.owner[i]), ("node", i))
            for position, child in enumerate(node.children):
                result.add_edge(("node", i), ("class", child), position=position)
        return result


def _from_columns(
    kinds: Sequence[tuple[str, tuple[Any, ...], bool]],
    kind: Sequence[int],
    counts: Sequence[int],
    children: Sequence[int],
    types: Sequence[AccessType | None],
    typed: Sequence[int],
    owner: Sequence[int],
    program: Sequence[int],
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, tuple[Fact, ...]],
) -> Snapshot:
    """Rebuilds a snapshot: the inverse of `Snapshot.__reduce__`."""
    nodes: list[ENode] = []
    start = 0
    for k, count in zip(kind, counts, strict=True):
        operator, attributes, subsumed = kinds[k]
        nodes.append(ENode(operator, attributes, tuple(children[start : start + count]), subsumed))
        start += count
    return Snapshot(tuple(nodes), tuple(owner), tuple(types[t] for t in typed), tuple(program), tensors, facts)


def closed(
    rows: Sequence[tuple[ENode, int]],
    count: int,
    types: Mapping[int, AccessType],
    program: Sequence[int],
    tensors: Mapping[str, Tensor],
    facts: Iterable[tuple[str, Rows]] = (),
) -> Snapshot:
    """Builds the snapshot of rows (e-node, class) and facts, closed under congruence, numbered in the order of rows.

    After saturation under back-off egglog can keep congruent duplicates; they are merged here, so that counts do not
    depend on the search order. The facts of a relation may come in several batches.
    """
    root = [*map(_merged(rows, count), range(count))]
    number: dict[int, int] = {}

    def rename(eclass: int) -> int:
        return number.setdefault(root[eclass], len(number))

    kept: dict[tuple[Any, ...], int] = {}
    nodes: list[ENode] = []
    owner: list[int] = []
    for node, eclass in rows:
        own = rename(eclass)
        children = tuple(map(rename, node.children))
        key = (node.operator, node.attributes, children)
        known = kept.get(key)
        if known is None:
            kept[key] = len(nodes)
            nodes.append(ENode(node.operator, node.attributes, children, node.subsumed))
            owner.append(own)
        elif nodes[known].subsumed and not node.subsumed:
            nodes[known] = ENode(node.operator, node.attributes, children, False)
    renamed = tuple(map(rename, program))
    renumbered = {eclass: number[own] for eclass, own in enumerate(root) if own in number}
    typed = {renumbered[eclass]: type_ for eclass, type_ in types.items() if eclass in renumbered}
    said: dict[str, dict[Fact, None]] = {}
    for name, some in facts:
        said.setdefault(name, {}).update(dict.fromkeys(_renamed(renumbered, *some)))
    all_types = tuple(map(typed.get, range(len(number))))
    named = {name: tuple(facts) for name, facts in said.items()}
    return Snapshot(tuple(nodes), tuple(owner), all_types, renamed, dict(tensors), named)


def _renamed(number: Mapping[int, int], columns: Sequence[int], rows: Sequence[Fact]) -> Iterator[Fact]:
    """Yields the rows with renumbered classes, without rows of classes that have no e-node."""
    for row in rows:
        if all(row[column] in number for column in columns):
            yield tuple(number[value] if i in columns else value for i, value in enumerate(row))


def _merged(rows: Sequence[tuple[ENode, int]], count: int) -> Callable[[int], int]:
    """Returns the find function of a union-find closed under congruence of the rows."""
    parent = list(range(count))

    def find(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    changed = True
    while changed:
        changed = False
        seen: dict[tuple[Any, ...], int] = {}
        for node, eclass in rows:
            key = (node.operator, node.attributes, tuple(map(find, node.children)))
            own, known = find(eclass), seen.setdefault(key, eclass)
            if find(known) != own:
                parent[max(own, find(known))] = min(own, find(known))
                changed = True
    return find
