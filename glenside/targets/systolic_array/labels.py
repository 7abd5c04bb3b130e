"""The words for what a mapping made of a product, and for why a product stays off the array."""

from __future__ import annotations

from glenside.analysis.layers import cut_words, product_sizes
from glenside.egraph.search import SearchResult
from glenside.ir.term import Term
from glenside.ir.types import AccessType
from glenside.passes.extraction import Cone
from glenside.targets.base import Instruction
from glenside.targets.systolic_array.array import Array
from glenside.targets.systolic_array.plan import Plan


def mapping_label(product: Term, cone: Cone, plan: Plan | None, array: Array) -> str:
    """The mapping of a product, such as "operands swapped, K 512 in 8"."""
    sizes = product_sizes(product)
    if sizes.macs == 0:
        return "empty: nothing to compute"
    if cone.constant:
        return "constant: computed beforehand"
    if cone.products:
        return "on the vector unit"
    if not cone.instructions:
        return "shared with another layer"
    if plan is None:
        count = len(cone.instructions)
        calls = f"{count} instruction{'s' if count > 1 else ''} for {sizes.groups} groups" if sizes.groups > 1 else ""
        parts = [calls, *cut_words(sizes, array.tile)]
    else:
        channels = sizes.groups > 1 and product.children[0].children[1].access.item.take(1) == (1,)
        parts = [*plan.words(product, channels), *cut_words(plan.sizes, array.tile)]
    return ", ".join(part for part in parts if part) or "one whole tile"


def nearest_miss(cone: Cone, searched: SearchResult, instruction: Instruction) -> str:
    """Which product stayed, and what the instruction would have needed of which operand."""
    snapshot = searched.snapshot
    node = snapshot.nodes[cone.products[0]]
    stopped = searched.stopped
    because = "" if stopped == "saturated" else f"; the search stopped at its {stopped} before that"
    pairs = next(
        (n for n in snapshot.classes[node.children[0]] if snapshot.nodes[n].operator == "access-product"), None
    )
    if pairs is None:
        return f"its pairs are not a product of two operands{because}"
    a, b = (snapshot.types[c] for c in snapshot.nodes[pairs].children)
    return f"operands {_spelled(a)} and {_spelled(b)}, the array takes {instruction.accepts}{because}"


def _spelled(type_: AccessType | None) -> str:
    return "?" if type_ is None else f"({' '.join(map(str, type_.shape))})({' '.join(map(str, type_.item))})"
