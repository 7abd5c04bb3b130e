"""Builds the JSON record of an e-graph, from which the page, the widget and the still picture are drawn.

Tables hold each text, type, cost and rule once; e-classes and e-nodes are columns of indices into these tables.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add
from typing import Any

from glenside.egraph.encode import MADE, WRITTEN
from glenside.egraph.snapshot import ENode, Snapshot
from glenside.ir.names import spelled_name
from glenside.ir.operator import OPERATORS, Kind
from glenside.passes.extraction import PricedGraph
from glenside.rewrites import RULES
from glenside.targets.base import NodeCosts, Prices
from glenside.targets.base.prices import names_of_parts

HOLE = "\ue000"
"""Placeholder of a child in the text of an e-node: a character that no name of a program contains."""
UNKNOWN = -1
Amount = tuple[int, ...]
_WORDS = {
    "unmapped": "multiplications off the machine",
    "cycles": "cycles",
    "bytes": "bytes moved",
    "copies": "bytes copied",
    "scalar": "elements computed off the machine",
    "moved": "elements put elsewhere",
    "nodes": "e-nodes",
}
PRICED = (
    "A cost is that of the cheapest term, what it shares counted each time; a bound is what no term takes less than, "
    "however much it shares."
)
UNPRICED = "This target prices whole variants of a layer, not e-nodes, so e-classes have no cost here."


class _Table:
    """Distinct values, numbered in order of first use."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.numbers)


def pattern(node: ENode) -> str:
    """Returns the text of an e-node with a hole for each child: `(access-slice HOLE 1 0 3)`."""
    operator, attributes, left = OPERATORS[node.operator], iter(node.attributes), len(node.children)
    words = [operator.name]
    for field in operator.fields:
        if field.kind is Kind.TERM:
            words.append(HOLE)
            left -= 1
        elif field.kind is Kind.TERMS:
            words += [HOLE] * left
        elif field.kind is Kind.ACCESS_SHAPE:
            words += [_vector(next(attributes)), _vector(next(attributes))]
        else:
            value = next(attributes)
            named = field.kind is Kind.TENSOR
            words.append(spelled_name(value) if named else _vector(value) if isinstance(value, tuple) else str(value))
    return f"({' '.join(words)})"


def _vector(values: Iterable[Any]) -> str:
    return f"({' '.join(map(str, values))})"


def egraph_record(
    snapshot: Snapshot,
    choice: Mapping[int, int] | None = None,
    *,
    costs: NodeCosts | None = None,
    roots: Mapping[str, int] | None = None,
    known: Mapping[str, str] | None = None,
    links: Mapping[int, int] | None = None,
    title: str = "",
) -> dict[str, Any]:
    """Returns the record of an e-graph.

    costs   what e-nodes cost, where a target prices them one by one
    roots   name of a layer, "" of the result -> its class
    known   name of a layer -> what is known of its cost as a whole, as a sentence
    links   class of what stands for a layer's result -> the class of the layer, where that is not read itself
    """
    patterns, types, amounts, rules = _Table(), _Table(), _Table(), _Table()
    own, members, best, bound = _costs(snapshot, costs)

    def number(amount: Amount | None) -> int:
        return UNKNOWN if amount is None else amounts(amount)

    places = roots or {}
    return {
        "classes": {
            "type": [types(str(t)) if t else UNKNOWN for t in snapshot.types],
            "cost": [number(best.get(c)) for c in range(snapshot.e_classes)],
            "bound": [number(bound.get(c)) for c in range(snapshot.e_classes)],
        },
        "nodes": {
            "class": list(snapshot.owner),
            "pattern": [patterns(pattern(node)) for node in snapshot.nodes],
            "arity": [len(node.children) for node in snapshot.nodes],
            "children": [child for node in snapshot.nodes for child in node.children],
            "own": [number(own.get(n)) for n in range(snapshot.e_nodes)],
            "cost": [number(members.get(n)) for n in range(snapshot.e_nodes)],
            "chosen": sorted(set((choice or {}).values())),
            "subsumed": [n for n, node in enumerate(snapshot.nodes) if node.subsumed],
        },
        **_provenance(snapshot, rules),
        "rules": [_rule(name) for name in rules],
        "patterns": [*patterns],
        "types": [*types],
        **_said([*amounts], costs),
        "title": title,
        "priced": UNPRICED if costs is None else " ".join(filter(None, (PRICED, costs.remark))),
        "roots": [[name, c, (known or {}).get(name, "")] for name, c in places.items()],
        "links": [list(link) for link in (links or {}).items()],
        "result": places.get("", next(iter(places.values()), snapshot.program[-1] if snapshot.program else 0)),
    }


def _provenance(snapshot: Snapshot, rules: _Table) -> dict[str, Any]:
    """Returns the rule and iteration that made each e-node; `made` is None without a trace."""
    number = {
        (c, node.operator, node.attributes, *node.children): n
        for n, (c, node) in enumerate(zip(snapshot.owner, snapshot.nodes, strict=True))
    }
    written = sorted({number[row] for row in snapshot.facts.get(WRITTEN, ()) if row in number})
    if MADE not in snapshot.facts:
        return {"made": None, "written": written, "iterations": 0}
    made: dict[str, list[int]] = {"node": [], "rule": [], "iteration": [], "source": []}
    for eclass, operator, rule, iteration, source, *node in snapshot.facts[MADE]:
        if (n := number.get((eclass, operator, *node))) is not None:
            for column, value in zip(made.values(), (n, rules(rule), iteration, source), strict=True):
                column.append(value)
    return {"made": made, "written": written, "iterations": max(made["iteration"], default=0)}


def _rule(name: str) -> dict[str, str]:
    """Returns the equation and reason of a rule; only the name of a rule that is not registered."""
    rule = RULES.get(name)
    if rule is None:
        return {"name": name, "family": "", "equation": "", "reason": ""}
    return {"name": name, "family": rule.family, "equation": rule.equation, "reason": rule.reason}


_Least = Mapping[int, Amount]


def priced(snapshot: Snapshot, prices: Prices) -> NodeCosts:
    """Returns the costs of e-nodes under prices that are summed."""
    graph = PricedGraph(snapshot, prices)
    names = [(name, _WORDS[name]) for name in names_of_parts(prices.objectives)]
    return NodeCosts(names, lambda n: graph.cost(n).ordered(prices.objectives))


def _costs(snapshot: Snapshot, costs: NodeCosts | None) -> tuple[_Least, _Least, _Least, _Least]:
    """Returns costs of e-nodes alone and with the cheapest e-node of each child, and for each class the least cost and
    a lower bound. An instruction that the machine does not have has no cost.
    """
    if costs is None:
        return {}, {}, {}, {}
    own = {n: cost for n in range(snapshot.e_nodes) if (cost := costs.cost(n)) is not None}
    nothing = tuple(0 for _ in costs.names)

    def together(parts: Sequence[Amount]) -> Amount:
        return tuple(map(sum, zip(*parts, strict=True)))

    best = _least(snapshot, own, lambda parts: together(parts) if parts else nothing)
    bound = _least(snapshot, own, lambda parts: max(parts, default=nothing))
    members = {
        n: together([own[n], *(best[c] for c in node.children)])
        for n, node in enumerate(snapshot.nodes)
        if n in own and all(c in best for c in node.children)
    }
    return own, members, best, bound


def _least(
    snapshot: Snapshot, own: Mapping[int, Amount], joined: Callable[[Sequence[Amount]], Amount]
) -> dict[int, Amount]:
    """Returns the least cost of each class; an e-node's cost is its own plus the joined costs of its children.

    Knuth's extension of Dijkstra's algorithm: no e-node costs less than a child. With sums the result is the cost of
    trees; with maxima it is a lower bound for any program, since a program that contains an e-node contains each of its
    children completely.
    """
    waiting = {n: len(set(node.children)) for n, node in enumerate(snapshot.nodes)}
    readers: dict[int, list[int]] = {}
    usable = {n for _, members in snapshot.usable() for n in members if n in own}
    for n in usable:
        for child in set(snapshot.nodes[n].children):
            readers.setdefault(child, []).append(n)
    queue = [(own[n], n) for n in usable if not waiting[n]]
    heapq.heapify(queue)
    least: dict[int, Amount] = {}
    while queue:
        amount, n = heapq.heappop(queue)
        if snapshot.owner[n] in least:
            continue
        least[snapshot.owner[n]] = amount
        for reader in readers.get(snapshot.owner[n], ()):
            waiting[reader] -= 1
            if not waiting[reader] and snapshot.owner[reader] not in least:
                below = joined([least[c] for c in snapshot.nodes[reader].children])
                heapq.heappush(queue, (tuple(map(add, own[reader], below)), reader))
    return least


def _said(amounts: Sequence[Amount], costs: NodeCosts | None) -> dict[str, list[str]]:
    """Formats costs, and the first component of each. A cost that only counts e-nodes has no brief form."""
    names = () if costs is None else costs.names
    said, briefs = [], []
    for amount in amounts:
        parts = [(*name, _short(value)) for name, value in zip(names, amount, strict=True) if value]
        words = [f"{value} {what}" for _, what, value in parts]
        said.append(", ".join(words).replace(" 1 e-nodes", " 1 e-node").removeprefix("1 e-nodes") or "1 e-node")
        briefs.append(f"{parts[0][2]} {parts[0][0]}" if parts and parts[0][0] != "nodes" else "")
    return {"costs": said, "briefs": briefs}


def _short(value: int) -> str:
    """Formats an integer with separators; a long one as a power of ten."""
    return f"{value:,}" if value < 10**15 else f"{float(value) if value < 10**300 else float('inf'):.3g}"
