"""What came as one node and was not changed goes out as that node, where it would take several: LSTM, GRU, attention.

The program knows the node that a term was imported from, as a black box of the same operands. A term that is spelled
like that one, over other operands, is the same node of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import OPSET
from glenside.exporters.onnx.model import since
from glenside.exporters.onnx.standard.record import STANDARD
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder

_FEWEST = 3
"""What takes fewer computations than these is written as them: runtimes know how to put them together."""

_OTHERWISE_ROUNDED = ("QuantizeLinear", "DequantizeLinear")
"""Between these, runtimes round what stands there in other places than the nodes say."""


@dataclass
class Origins:
    """The nodes that terms of a program came from.

    shapes  (operator, attributes) -> terms of that kind, each with its black box
    """

    program: Program
    _fits: dict[Term, bool] = field(default_factory=dict)

    @cached_property
    def shapes(self) -> Mapping[object, list[tuple[Term, Term]]]:
        found: dict[object, list[tuple[Term, Term]]] = {}
        for term, box in self.program.origins.items():
            if _is_one_node(box) and _computations(term, box) >= _FEWEST:
                found.setdefault((term.operator.name, term.attributes), []).append((term, box))
        return found

    def box(self, emit: Emitter, term: Term) -> Term | None:
        """The black box that a term is, over operands that are written."""
        if not self.program.origins:
            return None
        for pattern, box in self.shapes.get((term.operator.name, term.attributes), ()):
            operands = _operands(emit, pattern, term, box)
            if operands is not None:
                key, _, _, dtype = box.attributes
                return build("opaque", key, ((), term.access.dims), dtype, *operands)
        return None


def _is_one_node(box: Term) -> bool:
    """Whether ONNX has no shorter way for it here, and its node means the same beside the others."""
    name = str(box.attributes[0]).split("#", 1)[0]
    domain, op, version = name.split("/")
    own = domain == "ai.onnx" and op not in STANDARD and op not in _OTHERWISE_ROUNDED
    return own and since(op, int(version)) == since(op, OPSET)


def _computations(term: Term, box: Term) -> int:
    """How many terms compute something between a node's operands and its result."""
    without = {*box.children}
    return sum(not node.operator.moves for node in postorder(term, without=without) if node.children)


def _operands(emit: Emitter, pattern: Term, term: Term, box: Term) -> list[Term] | None:
    """What stands in a term for the operands of a box, where the term is otherwise what the pattern is."""
    bound: dict[Term, Term] = {}
    stack, variables = [(pattern, term)], {*box.children}
    while stack:
        mine, theirs = stack.pop()
        if mine in bound:
            if bound[mine] is not theirs:
                return None
            continue
        bound[mine] = theirs
        if mine.type != theirs.type:
            return None
        if mine in variables:
            if emit.is_constant.get(theirs, False) and mine is not theirs:
                return None  # what is known of a constant may be in the pattern
            continue
        if mine.operator is not theirs.operator or mine.attributes != theirs.attributes:
            return None
        stack += zip(mine.children, theirs.children, strict=True)
    found = [bound.get(x, x) for x in box.children]
    return found if all(x in emit.held for x in found) else None
