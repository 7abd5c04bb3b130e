"""Cones: what an answer chose for each layer, down to other layers and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.egraph.snapshot import Snapshot
from glenside.targets.base import InstructionCost, Prices


@dataclass(frozen=True)
class Cone:
    """The part of an answer that computes one layer; each e-node counts for one layer only.

    products   the e-nodes that are products still: no instruction took them
    mapping    the fact that a rule left of the first instruction, in the relation `mapping`
    rules      a trace: the rules that built what was chosen
    """

    instructions: Sequence[InstructionCost] = ()
    products: Sequence[int] = ()
    mapping: tuple[Any, ...] | None = None
    rules: tuple[str, ...] = ()
    constant: bool = False


def cones(
    snapshot: Snapshot, choice: Mapping[int, int], roots: Sequence[int], constant: Sequence[bool], prices: Prices
) -> list[Cone]:
    """One cone for each layer root, in order."""
    layers, seen = set(roots), set[int]()
    mappings = {fact[0]: fact[1:] for fact in reversed(snapshot.facts.get("mapping", ()))}
    made: dict[tuple[int, str], list[str]] = {}
    for eclass, operator, rule, *_ in snapshot.facts.get("made", ()):
        made.setdefault((eclass, operator), []).append(rule)
    result: list[Cone] = []
    for root in roots:
        instructions: list[InstructionCost] = []
        products: list[int] = []
        mapping: tuple[Any, ...] | None = None
        rules: dict[str, None] = {}
        for eclass in _below(snapshot, choice, root, layers, seen):
            node = snapshot.nodes[choice[eclass]]
            rules.update(dict.fromkeys(made.get((eclass, node.operator), ())))
            instruction = prices.instruction(node.operator, node.attributes)
            if constant[eclass]:
                continue
            if instruction is not None:
                own, children = snapshot.types[eclass], [snapshot.types[c] for c in node.children]
                assert own is not None
                instructions.append(instruction.price(node.attributes, [t for t in children if t is not None], own))
                mapping = mapping or mappings.get(eclass)
            elif node.operator == "compute" and node.attributes[0] == "dot-product":
                products.append(choice[eclass])
        result.append(Cone(instructions, products, mapping, tuple(sorted(rules)), constant[root]))
    return result


def _below(snapshot: Snapshot, choice: Mapping[int, int], root: int, layers: set[int], seen: set[int]) -> Iterator[int]:
    stack = [root]
    while stack:
        eclass = stack.pop()
        if eclass in seen or (eclass in layers and eclass != root):
            continue
        seen.add(eclass)
        yield eclass
        stack += snapshot.nodes[choice[eclass]].children
