"""A unit for convolutions and matrix products that requires its operands in one layout.

The cost is not the time of a product but the data movement for it: bytes of copies that only change the layout, each
read once and written once. Products are compared first, one cycle each, so that none is recomputed to save a copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from glenside.analysis.copies import Copy, placed_copies, total
from glenside.egraph.rule import Parameters
from glenside.egraph.search import SearchResult
from glenside.ir.errors import BadInput
from glenside.ir.index_map import IndexMap, Multiple
from glenside.ir.operator import OPERATORS, OperatorKind
from glenside.ir.program import Program
from glenside.ir.rearrangement import Rearrangement
from glenside.ir.term import Term, weave
from glenside.ir.types import AccessType
from glenside.rewrites.layout import addressing
from glenside.targets.base import (
    Amounts,
    Cone,
    Instruction,
    InstructionCost,
    Measure,
    MovesLayouts,
    Prices,
    Scope,
    Target,
    Variant,
    Way,
)

ADDRESSES = {"none": addressing.NONE, "runs": addressing.RUNS, "all": addressing.ALL}
"""Axis orders of an operand or a result that cost nothing: none but the memory order, those that keep runs of elements
contiguous, all affine ones."""
_LAYOUTS = {"any": addressing.ANY, "nhwc": addressing.CHANNELS_LAST, "nchw": addressing.CHANNELS_FIRST}
AS_WRITTEN = "as written"
PLACES = ("input", "inside", "output")
LAYOUT_FAMILIES = ("constant-analyses", "rearranging", "folding", "layout", "product-unit-analyses", "product-unit")


def layout_code(layout: str) -> int:
    """Returns the code of a layout for rules: nhwc, nchw, any, or blocks such as nchw16c. Raises BadInput."""
    block = re.fullmatch(r"nchw(\d{1,4})c", layout)
    if block and int(block[1]) >= 4:
        return int(block[1])
    if layout not in _LAYOUTS:
        raise BadInput(f"a layout is nhwc, nchw, any, or blocks of at least 4 channels as nchw16c, got {layout!r}")
    return _LAYOUTS[layout]


class LayoutUnit(Target, MovesLayouts):
    """The cost model of a unit that requires its operands in one layout: bytes of copies."""

    measures = (
        Measure("copies", "bytes", "that are only put elsewhere, each read once and written once"),
        Measure("copies inside", "bytes", "of them between the layers, its own inputs and outputs aside"),
        Measure("copies made", "copies", "single copies"),
    )
    unknown: Amounts = dict.fromkeys(m.name for m in measures)  # of one layer
    objectives = ("copies",)
    leaves_layouts_to_runtimes = True  # convolutions of a file take channels first, whatever the layout of the unit

    def __init__(self, layout: str = "nhwc", *, loads: str = "all", stores: str = "all") -> None:
        for what, got in (("loads", loads), ("stores", stores)):
            if got not in ADDRESSES:
                raise BadInput(f"{what} are {', '.join(ADDRESSES)}, got {got!r}")
        self.name = f"convolution-unit:{layout}"
        self.doc = type(self).__doc__ or ""
        self.description = f"{layout} loads {loads} stores {stores}"
        self.layout = layout
        self._parameters = {"layout": layout_code(layout), "loads": ADDRESSES[loads], "stores": ADDRESSES[stores]}
        # Products are compared first, one cycle each, so that none is recomputed in another layout to save a copy.
        unit = Instruction("product-unit", lambda *_: InstructionCost(1, 1), f"operands in {layout}")
        self.prices = Prices((unit,), ("cycles", "copies"), copied=copied_bytes)

    def scope(self, way: Way) -> Scope:
        return Scope.NETWORK

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        return LAYOUT_FAMILIES

    def rule_parameters(self) -> Parameters:
        return self._parameters

    def variant(self, product: Term, cone: Cone, term: Term, searched: SearchResult) -> Variant:
        label = f"on the unit, in {self.layout}" if term.operator.name == "product-unit" else "as written"
        return Variant(label, term, self.unknown)

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        return {AS_WRITTEN: Variant(AS_WRITTEN, product, self.unknown)}

    def whole(self, program: Program) -> Amounts:
        copies = self._copies(program)
        amounts = (total(copies), total(copies, "inside"), len(copies))
        return dict(zip((m.name for m in self.measures), amounts, strict=True))

    def _copies(self, program: Program) -> Sequence[Copy]:
        return [copy for _, copy in self.copies(program)]

    def copies(self, program: Program) -> Sequence[tuple[Term, Copy]]:
        return _copies_of(program.term, self._parameters["layout"])

    def report(self, before: Program, after: Program) -> Mapping[str, Any]:
        """Returns every copy before and after, and their bytes by place."""
        both = {AS_WRITTEN: self._copies(before), "chosen": self._copies(after)}
        by_place = {when: {place: total(found, place) for place in PLACES} for when, found in both.items()}
        content = {when: [copy.as_dict() for copy in found] for when, found in both.items()}
        return {"copies": {**content, "bytes": by_place, "kept": after is before}}


@lru_cache(maxsize=4)  # a report asks several times for the copies of a program and of its answer
def _copies_of(term: Term, layout: int) -> Sequence[tuple[Term, Copy]]:
    return placed_copies(term, copied_bytes, layout)


def copied_bytes(operator: str, attributes: Sequence[Any], operands: Sequence[AccessType], own: AccessType) -> int:
    """Returns the bytes that an e-node copies, each read once and written once.

    Reshapes, splits, slices, windows, broadcasts and pads are done by addressing; several operands, spread-out elements
    and reversed axes are copies.
    """
    record = OPERATORS[operator]
    if record.kind is not OperatorKind.MOVEMENT or record.index_map is None:
        return 0
    if operator == "access-transpose":
        copies = _moves(operands[0].dims, attributes[0])
    elif operator == "access-rearrange":
        copies = _moves(attributes[0], attributes[1])
    else:
        copies = not _is_addressed(record.index_map(*weave(record, operands, attributes)))
    return 2 * own.size * np.dtype(own.dtype).itemsize if copies else 0


def _is_addressed(found: IndexMap) -> bool:
    """True if the map reads one operand in increasing order, with no guard but bounds."""
    if len(found.pieces) != 1:
        return False
    (piece,) = found.pieces
    forwards = all(factor > 0 for index in piece.indices for _, factor in index.terms)
    return forwards and not any(isinstance(guard, Multiple) for guard in piece.guards)


def _moves(parts: Sequence[int], order: Sequence[int]) -> bool:
    return not Rearrangement(tuple(parts), tuple(order)).is_identity
