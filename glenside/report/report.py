"""What an optimization did, for people and for programs: one row for each layer, totals, the search, the seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from glenside.egraph.saturation import RuleRun
from glenside.egraph.snapshot import Snapshot
from glenside.ir.names import one_line
from glenside.ir.program import is_product
from glenside.ir.sizes import ceil_div
from glenside.ir.term import Term
from glenside.ir.types import AccessType
from glenside.report.mapping import Plan, ProductSizes, cut_words, product_sizes
from glenside.targets.base import Cost, Spent, Target


@dataclass(frozen=True)
class LayerRow:
    """One product of the program. groups, m, k, n are its own sizes, before any padding."""

    name: str
    operator: str
    groups: int
    m: int
    k: int
    n: int
    macs: int
    tiles: int
    cycles: int
    utilization: float
    mapped: bool
    mapping: str
    checked: str
    nearest_miss: str = ""
    usual_cycles: int = 0
    """Of the product cut into tiles as it stands."""
    lower_bound: int = 0
    """The least of the first objective that is proven for any mapping that the rules reach."""
    gap: int = 0
    """How far above that the answer is."""
    bytes: int = 0
    """Moved to and from on-chip memory."""
    weight_bytes: int = 0
    mapped_weight_bytes: int = 0
    """As the mapping rearranges the right operand, beforehand where it is constant."""
    rules: tuple[str, ...] = ()
    """A trace: the rules that made what was chosen."""
    plan: dict[str, Any] | None = None
    """What the mapping did, see `Plan.as_dict`; None where nothing was mapped as loops of tiles."""


_SUMS = ("usual_cycles", "lower_bound", "gap", "bytes", "weight_bytes", "mapped_weight_bytes")


@dataclass
class Report:
    """`as_dict` is the content of report.json; keys are added over time, never renamed."""

    program: str
    target: str
    layers: list[LayerRow]
    e_nodes: int
    e_classes: int
    iterations: int
    stopped: str
    rules: Mapping[str, RuleRun]
    seconds: dict[str, float]
    checked: str = "not checked"
    how_checked: str = ""
    cost: dict[str, int] = field(default_factory=dict)
    objectives: tuple[str, ...] = ("cycles",)
    distinct: int = 0
    """Distinct layers, each searched once."""
    cached: bool = False

    @property
    def totals(self) -> dict[str, int]:
        return {
            "layers": len(self.layers),
            "mapped": sum(row.mapped for row in self.layers),
            "tiles": sum(row.tiles for row in self.layers),
            "cycles": sum(row.cycles for row in self.layers),
            "macs": sum(row.macs for row in self.layers),
            **{name: sum(getattr(row, name) for row in self.layers) for name in _SUMS},
        }

    @property
    def ok(self) -> bool:
        """Everything is mapped and checked exact."""
        return all(row.mapped and row.checked == "exact" for row in self.layers) and self.checked == "exact"

    def as_dict(self) -> dict[str, Any]:
        return {
            "program": self.program,
            "target": self.target,
            "layers": [asdict(row) for row in self.layers],
            "totals": self.totals,
            "objectives": list(self.objectives),
            "search": {
                "e_nodes": self.e_nodes,
                "e_classes": self.e_classes,
                "iterations": self.iterations,
                "distinct_layers": self.distinct,
                "cached": self.cached,
                "stopped": self.stopped,
                "rules": {
                    name: {"matches": run.matches, "seconds": round(run.seconds, 6)}
                    for name, run in sorted(self.rules.items())
                },
            },
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "cost": self.cost,
            "checked": self.checked,
            "how_checked": self.how_checked,
        }

    def unmapped_sentence(self) -> str:
        """One honest sentence on what stayed off the machine."""
        left = [row for row in self.layers if not row.mapped]
        if not self.layers:
            return "The program contains no product, so there is nothing to map."
        if not left:
            return "Every product is mapped onto the array."
        names = ", ".join(one_line(row.name) for row in left[:8])
        more = f" and {len(left) - 8} more" if len(left) > 8 else ""
        why = f"{one_line(left[0].name)}: {left[0].nearest_miss}"
        return f"{len(left)} of {len(self.layers)} products stayed off the array: {names}{more}; {why}."


@dataclass(frozen=True)
class Cone:
    """What the answer chose for one layer, down to other layers and tensors, each e-node counted for one layer only."""

    instructions: Sequence[Spent]
    products: Sequence[int]
    """The e-nodes that are products, still."""
    plan: Plan | None = None
    rules: tuple[str, ...] = ()
    """A trace: the rules that made what was chosen."""


def cones(
    snapshot: Snapshot, choice: Mapping[int, int], roots: Sequence[int], constant: Sequence[bool], target: Target
) -> list[Cone]:
    """One cone for each layer root, in order."""
    layers, seen = set(roots), set[int]()
    plans = {fact[0]: Plan.of(fact[1], fact[2]) for fact in reversed(snapshot.facts.get("mapping", ()))}
    made: dict[tuple[int, str], list[str]] = {}
    for eclass, operator, rule, *_ in snapshot.facts.get("made", ()):
        made.setdefault((eclass, operator), []).append(rule)
    result: list[Cone] = []
    for root in roots:
        instructions: list[Spent] = []
        products: list[int] = []
        plan: Plan | None = None
        rules: dict[str, None] = {}
        for eclass in _below(snapshot, choice, root, layers, seen):
            node = snapshot.nodes[choice[eclass]]
            rules.update(dict.fromkeys(made.get((eclass, node.operator), ())))
            instruction = target.instruction(node.operator, node.attributes)
            if constant[eclass]:
                continue
            if instruction is not None:
                own, children = snapshot.types[eclass], [snapshot.types[c] for c in node.children]
                assert own is not None
                instructions.append(instruction.price(node.attributes, [t for t in children if t is not None], own))
                plan = plan or plans.get(eclass)
            elif node.operator == "compute" and node.attributes[0] == "dot-product":
                products.append(choice[eclass])
        result.append(Cone(instructions, products, plan, tuple(sorted(rules))))
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


def layer_row(
    name: str,
    label: str,
    product: Term,
    cone: Cone,
    constant: bool,
    bound: Cost | None,
    target: Target,
    snapshot: Snapshot,
    stopped: str,
) -> LayerRow:
    """The row of one layer, not yet checked. `bound` is what any answer for this layer costs at least, if known."""
    sizes = product_sizes(product)
    macs = sizes.macs
    spent = [*cone.instructions]
    if target.beside is not None and not constant:
        spent += [target.beside(sizes.groups, sizes.m, sizes.k, sizes.n) for _ in cone.products]
    cycles, tiles, moved = (sum(getattr(s, part) for s in spent) for part in ("cycles", "tiles", "bytes"))
    mapped = not cone.products or target.beside is not None or macs == 0
    objective = {"cycles": cycles, "bytes": moved}[target.objectives[0]]
    proven = bound is not None and stopped == "saturated" and mapped
    least = getattr(bound, target.objectives[0]) if proven else min(objective, _ideal(macs, target))
    word = np.dtype(product.children[0].access.dtype).itemsize
    return LayerRow(
        name=name,
        operator=label or _label(product, sizes),
        groups=sizes.groups,
        m=sizes.m,
        k=sizes.k,
        n=sizes.n,
        macs=macs,
        tiles=tiles,
        cycles=cycles,
        utilization=macs / (cycles * target.peak) if cycles else 0.0,
        mapped=mapped,
        mapping=_mapping(product, sizes, cone, constant, target) if mapped else "not mapped",
        checked="not checked",
        nearest_miss="" if mapped else nearest_miss(cone, snapshot, target, stopped),
        usual_cycles=target.price(sizes.groups, sizes.m, sizes.k, sizes.n).cycles if macs and not constant else 0,
        lower_bound=least,
        gap=objective - least,
        bytes=moved,
        weight_bytes=sizes.weights * word,
        mapped_weight_bytes=(sizes.weights if cone.plan is None else cone.plan.weights) * word,
        rules=cone.rules,
        plan=None if cone.plan is None else cone.plan.as_dict(),
    )


def _ideal(macs: int, target: Target) -> int:
    """Cycles at least, when nothing better is proven: every multiplier busy in every cycle."""
    if target.objectives[0] != "cycles":
        return 0
    return int(ceil_div(macs, target.peak))


def _label(product: Term, sizes: ProductSizes) -> str:
    """What a product without a label is, from its form."""
    assert is_product(product)
    below = {child.operator.name for pair in product.children for child in pair.children}
    if "access-windows" in below:
        return "windows product"
    return "matmul" if sizes.groups == 1 else "grouped matmul"


def _mapping(product: Term, sizes: ProductSizes, cone: Cone, constant: bool, target: Target) -> str:
    if sizes.macs == 0:
        return "empty: nothing to compute"
    if constant:
        return "constant: computed beforehand"
    if cone.products:
        return "on the unit beside the array"
    if not cone.instructions:
        return "shared with another layer"
    plan = cone.plan
    if plan is None:
        count = len(cone.instructions)
        calls = f"{count} instruction{'s' if count > 1 else ''} for {sizes.groups} groups" if sizes.groups > 1 else ""
        parts = [calls, *cut_words(sizes, target)]
    else:
        channels = sizes.groups > 1 and product.children[0].children[1].access.item.take(1) == (1,)
        parts = [*plan.words(product, channels), *cut_words(plan.sizes, target)]
    return ", ".join(part for part in parts if part) or "one whole tile"


def nearest_miss(cone: Cone, snapshot: Snapshot, target: Target, stopped: str) -> str:
    """Which product stayed, and what the instruction would have needed of which operand."""
    node = snapshot.nodes[cone.products[0]]
    because = "" if stopped == "saturated" else f"; the search stopped at its {stopped} before that"
    pairs = next(
        (n for n in snapshot.classes[node.children[0]] if snapshot.nodes[n].operator == "access-product"), None
    )
    if pairs is None:
        return f"its pairs are not a product of two operands{because}"
    a, b = (snapshot.types[c] for c in snapshot.nodes[pairs].children)
    accepts = target.instructions[0].accepts
    return f"operands {_spelled(a)} and {_spelled(b)}, the array takes {accepts}{because}"


def _spelled(type_: AccessType | None) -> str:
    return "?" if type_ is None else f"({' '.join(map(str, type_.shape))})({' '.join(map(str, type_.item))})"
