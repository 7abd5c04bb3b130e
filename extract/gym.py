"""E-graphs in the format of extraction-gym (https://github.com/egraphs-good/extraction-gym) and egraph-serialize.

A JSON object: `nodes`, id -> {"op", "children": ids of nodes, "eclass", "cost": 1 unless given, "subsumed"}, and
`root_eclasses`. A child stands for the class of that node.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from extract.problem import NoExtraction, Problem
from glenside.ir.errors import BadInput

_DIGITS = 30  # a cost with more is no measurement, and would make every sum of costs as long


@dataclass(frozen=True)
class SerializedEGraph:
    """A problem, with the names that its classes and nodes have in the file."""

    problem: Problem
    classes: tuple[str, ...]
    nodes: tuple[str, ...]
    unit: Fraction
    """What a cost of 1 in the problem is in the file: costs there are fractions, and sums of them stay exact."""

    def cost(self, cost: Sequence[int]) -> float:
        """A cost of the problem, as the file counts it."""
        return float(cost[0] * self.unit)

    def choice(self, choice: Mapping[int, int]) -> dict[str, str]:
        """class -> node, by their names."""
        return {self.classes[c]: self.nodes[n] for c, n in sorted(choice.items())}

    def named(self, error: NoExtraction) -> BadInput:
        """The error of an extraction, by the names of the file."""
        names = ", ".join(self.classes[c] for c in error.classes[:8]) + (", .." if len(error.classes) > 8 else "")
        return BadInput(f"no answer exists: every node of the classes {names} needs, in the end, its own class")


def read_egraph(text: str, source: str = "the e-graph") -> SerializedEGraph:
    """The e-graph of a JSON text. Raises BadInput, which names `source` and the place."""
    content = _parsed(text, source)
    nodes = _entry(content, "nodes", dict, source)
    roots = _entry(content, "root_eclasses", list, source)
    if not roots:
        raise BadInput(f"{source}: root_eclasses requires at least one class, got none")
    owner: dict[str, str] = {}
    for name, node in nodes.items():
        if not isinstance(node, dict):
            raise BadInput(f"{source}: the node {name} requires an object, got {_kind(node)}")
        eclass = node.get("eclass")
        if not isinstance(eclass, str):
            raise BadInput(f"{source}: the node {name} requires an eclass, a string, got {_kind(eclass)}")
        owner[name] = eclass
    number = {eclass: i for i, eclass in enumerate(dict.fromkeys(owner.values()))}
    costs = {name: _cost(node, name, source) for name, node in nodes.items()}
    kept = _usable(nodes, owner)
    members: list[list[int]] = [[] for _ in number]
    children: list[tuple[int, ...]] = []
    for i, name in enumerate(kept):
        members[number[owner[name]]].append(i)
        children.append(tuple(number[owner[child]] for child in _children(nodes, name, source)))
    for root in roots:
        if not isinstance(root, str) or root not in number:
            raise BadInput(f"{source}: root_eclasses requires classes that have a node, got {root!r}")
    unit = Fraction(1, math.lcm(*(cost.denominator for cost in costs.values())))
    weights = tuple((int(costs[name] / unit),) for name in kept)
    problem = Problem(tuple(map(tuple, members)), tuple(children), weights, tuple(number[root] for root in roots))
    return SerializedEGraph(problem, tuple(number), tuple(kept), unit)


def _parsed(text: str, source: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise BadInput(f"{source}: the key {name} stands twice in one object")
            found[name] = value
        return found

    def refused(word: str) -> Any:
        raise BadInput(f"{source}: {word} is no cost")

    try:
        content = json.loads(text, parse_float=Decimal, parse_constant=refused, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise BadInput(f"{source}:{error.lineno}:{error.colno}: it is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise BadInput(f"{source}: it is nested more deeply than an e-graph is") from error
    except ValueError as error:  # an integer of thousands of digits
        raise BadInput(f"{source}: it is not JSON that can be read: {error}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{source}: an e-graph is an object with nodes and root_eclasses, got {_kind(content)}")
    return content


def _entry(content: Mapping[str, Any], name: str, kind: type, source: str) -> Any:
    if name not in content:
        raise BadInput(f"{source}: an e-graph requires {name}")
    if not isinstance(content[name], kind):
        wanted = "an object" if kind is dict else "a list"
        raise BadInput(f"{source}: {name} requires {wanted}, got {_kind(content[name])}")
    return content[name]


def _children(nodes: Mapping[str, Any], name: str, source: str) -> list[str]:
    children = nodes[name].get("children", [])
    if not isinstance(children, list):
        raise BadInput(f"{source}: the children of the node {name} require a list, got {_kind(children)}")
    for child in children:
        if not isinstance(child, str) or child not in nodes:
            raise BadInput(f"{source}: the node {name} has a child {child!r}, and there is no node of that name")
    return children


def _cost(node: Mapping[str, Any], name: str, source: str) -> Fraction:
    cost = node.get("cost", 1)
    if isinstance(cost, bool) or not isinstance(cost, int | Decimal):
        raise BadInput(f"{source}: the cost of the node {name} requires a number, got {_kind(cost)}")
    if cost < 0:
        raise BadInput(f"{source}: the cost of the node {name} requires at least 0, got {cost}")
    try:
        if cost and not -_DIGITS <= Decimal(cost).adjusted() <= _DIGITS:
            raise BadInput(f"{source}: the cost of the node {name} is out of range, got {cost}")
        return Fraction(cost)
    except InvalidOperation as error:
        raise BadInput(f"{source}: the cost of the node {name} is out of range") from error


def _usable(nodes: Mapping[str, Any], owner: Mapping[str, str]) -> list[str]:
    """The nodes that are not subsumed, and those of classes that have no others."""
    alive = {owner[name] for name, node in nodes.items() if node.get("subsumed") is not True}
    return [name for name, node in nodes.items() if node.get("subsumed") is not True or owner[name] not in alive]


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value), "a number")
