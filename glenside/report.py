"""What an optimization did, for people and for programs: one row for each layer, totals, the search, the seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from glenside.egraph.saturation import RuleRun
from glenside.egraph.snapshot import Snapshot
from glenside.ir.program import is_product
from glenside.ir.term import Term
from glenside.ir.types import AccessType
from glenside.target import Target


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

    @property
    def totals(self) -> dict[str, int]:
        return {
            "layers": len(self.layers),
            "mapped": sum(row.mapped for row in self.layers),
            "tiles": sum(row.tiles for row in self.layers),
            "cycles": sum(row.cycles for row in self.layers),
            "macs": sum(row.macs for row in self.layers),
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
            "search": {
                "e_nodes": self.e_nodes,
                "e_classes": self.e_classes,
                "iterations": self.iterations,
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
        names = ", ".join(row.name for row in left[:8])
        more = f" and {len(left) - 8} more" if len(left) > 8 else ""
        why = f"{left[0].name}: {left[0].nearest_miss}"
        return f"{len(left)} of {len(self.layers)} products stayed off the array: {names}{more}; {why}."


@dataclass(frozen=True)
class ProductSizes:
    """groups x M x K x N of a product, from the types of its operands."""

    groups: int
    m: int
    k: int
    n: int

    @property
    def macs(self) -> int:
        return self.groups * self.m * self.k * self.n


def product_sizes(product: Term) -> ProductSizes:
    """The sizes of `(compute dot-product p)`: of p's operands when p is an access-product, else of its items."""
    pairs = product.children[0]
    if pairs.operator.name != "access-product":
        item = pairs.access.item
        return ProductSizes(1, pairs.access.shape.product(), item.drop(1).product(), 1)
    (shared,) = (v for v in pairs.attributes if isinstance(v, int))
    a, b = (child.access for child in pairs.children)
    return ProductSizes(
        a.dims.take(shared).product(), a.shape.drop(shared).product(), a.item.product(), b.shape.drop(shared).product()
    )


@dataclass(frozen=True)
class Cone:
    """What the answer chose for one layer, down to other layers and tensors, each e-node counted for one layer only."""

    instructions: Sequence[tuple[int, int]]
    """(cycles, tiles) of each instruction."""
    products: Sequence[int]
    """The e-nodes that are products, still."""


def cones(
    snapshot: Snapshot, choice: Mapping[int, int], roots: Sequence[int], constant: Sequence[bool], target: Target
) -> list[Cone]:
    """One cone for each layer root, in order."""
    layers, seen = set(roots), set[int]()
    result: list[Cone] = []
    for root in roots:
        instructions: list[tuple[int, int]] = []
        products: list[int] = []
        for eclass in _below(snapshot, choice, root, layers, seen):
            node = snapshot.nodes[choice[eclass]]
            instruction = target.instruction(node.operator, node.attributes)
            if constant[eclass]:
                continue
            if instruction is not None:
                own, children = snapshot.types[eclass], [snapshot.types[c] for c in node.children]
                assert own is not None
                instructions.append(instruction.price(node.attributes, [t for t in children if t is not None], own))
            elif node.operator == "compute" and node.attributes[0] == "dot-product":
                products.append(choice[eclass])
        result.append(Cone(instructions, products))
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
    name: str, label: str, product: Term, cone: Cone, constant: bool, target: Target, snapshot: Snapshot, stopped: str
) -> LayerRow:
    """The row of one layer, not yet checked."""
    sizes = product_sizes(product)
    cycles = sum(c for c, _ in cone.instructions)
    tiles = sum(t for _, t in cone.instructions)
    mapped = not cone.products
    miss = "" if mapped else nearest_miss(cone, snapshot, target, stopped)
    return LayerRow(
        name=name,
        operator=label or _label(product, sizes),
        groups=sizes.groups,
        m=sizes.m,
        k=sizes.k,
        n=sizes.n,
        macs=sizes.macs,
        tiles=tiles,
        cycles=cycles,
        utilization=sizes.macs / (cycles * target.peak) if cycles else 0.0,
        mapped=mapped,
        mapping=_mapping(sizes, cone, constant, target) if mapped else "not mapped",
        checked="not checked",
        nearest_miss=miss,
    )


def _label(product: Term, sizes: ProductSizes) -> str:
    """What a product without a label is, from its form."""
    assert is_product(product)
    below = {child.operator.name for pair in product.children for child in pair.children}
    if "access-windows" in below:
        return "windows product"
    return "matmul" if sizes.groups == 1 else "grouped matmul"


def _mapping(sizes: ProductSizes, cone: Cone, constant: bool, target: Target) -> str:
    if constant:
        return "constant: computed beforehand"
    if not cone.instructions:
        return "empty: nothing to compute" if sizes.macs == 0 else "shared with another layer"
    rows, columns = target.parameters["rows"], target.parameters["columns"]
    count = len(cone.instructions)
    calls = f"{count} instruction{'s' if count > 1 else ''} for {sizes.groups} groups" if sizes.groups > 1 else ""
    parts = (calls, _axis("K", sizes.k, rows), _axis("N", sizes.n, columns))
    return ", ".join(part for part in parts if part) or "one whole tile"


def _axis(what: str, size: int, tile: int) -> str:
    """`K 1000->1024 in 16`: padded to 1024 and cut into 16; empty when the axis is one whole tile."""
    cuts = math.ceil(size / tile)
    padded = f"->{cuts * tile}" if size % tile else ""
    cut = f" in {cuts}" if cuts > 1 else ""
    return f"{what} {size}{padded}{cut}" if padded or cut else ""


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
