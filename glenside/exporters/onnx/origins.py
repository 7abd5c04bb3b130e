"""Exports terms that were imported from one node and not changed as that node: LSTM, attention, quantized operators.

The program records the node of a term as a black box of the same operands. A term of the same structure over other
operands is exported as the same node of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from glenside.exporters.onnx.versions import at_opset, is_valid
from glenside.importers.onnx.opaque import numbers_of, read_key, spelled_key
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder, tensors
from glenside.ir.types import Dims, Tensor

_READ_THROUGH = ("Concat", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that are always exported by their meaning, since other nodes are matched through them."""


@dataclass
class Origins:
    """The nodes from which terms of a program were imported."""

    program: Program
    _spelled: dict[Term, Term | None] = field(default_factory=dict)

    @cached_property
    def patterns(self) -> Mapping[object, list[tuple[Term, Term]]]:
        """(operator, attributes) -> terms of that kind that take several steps, each with its black box."""
        found: dict[object, list[tuple[Term, Term]]] = {}
        for term, box in self.program.origins.items():
            if _operator(box) not in _READ_THROUGH and (outputs_of(box) > 1 or not is_one_step(term, box)):
                found.setdefault((term.operator.name, term.attributes), []).append((term, box))
        return found

    def box(self, term: Term) -> Term | None:
        """Returns the black box of a term, over terms that can be exported, or None."""
        if not self.program.origins or not term.children:
            return None
        known = self.patterns.get((term.operator.name, term.attributes), ())
        own = self.program.origins.get(term)
        if own is not None and _operator(own) not in _READ_THROUGH:
            known = ((term, own), *known)
        for pattern, box in known:
            operands = self._operands(pattern, term, box)
            spelled = None if operands is None else _rebased(box, operands)
            if spelled is not None:
                return spelled
        return None

    def _operands(self, pattern: Term, term: Term, box: Term) -> list[Term] | None:
        """Returns the operands of a box in a term that otherwise equals the pattern, or None."""
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
                if self.program.info.constant.get(theirs, False) and mine is not theirs:
                    return None  # the pattern may depend on a constant's value
                continue
            if mine.operator is not theirs.operator or mine.attributes != theirs.attributes:
                return None
            stack += zip(mine.children, theirs.children, strict=True)
        found = [bound.get(x, x) for x in box.children]
        return found if all(x in bound or self._is_available(x) for x in box.children) else None

    def _is_available(self, operand: Term) -> bool:
        """True if an operand on which the term no longer depends can be exported: the program has its tensors."""
        leaves = (leaf.attributes[0] for leaf in tensors(operand))
        return all(isinstance(t, Tensor) and self.program.tensors.get(t.name) == t for t in leaves)


def _operator(box: Term) -> str:
    """Returns the operator in the key of a black box."""
    return str(box.attributes[0]).split("/", 2)[1]


def is_one_step(term: Term, box: Term) -> bool:
    """True if a term is a single step on the operands of its node."""
    below = {*box.children}
    inner = [node for node in postorder(term, without=below) if node.children]
    return all(node is term or node.operator.name in ("access", "access-product", "access-broadcast") for node in inner)


def _rebased(box: Term, operands: list[Term]) -> Term | None:
    """Returns a black box of other operands at OPSET; None if its node has another meaning there."""
    key, _, dims, dtype = box.attributes[0], box.attributes[1], box.access.dims, box.access.dtype
    found = at_opset(str(key), tuple(x if x.operator.name == "numbers" else x.access for x in operands))
    if found is None:
        return None
    node, arrays = found
    added = [numbers_of(array) for array in arrays]
    if any(x is None for x in added):
        return None
    made = build("opaque", spelled_key(node), ((), Dims(dims)), dtype, *operands, *filter(None, added))
    standard = node.node.domain in ("", "ai.onnx")
    valid = not standard or is_valid(str(made.attributes[0]), tuple(x.access for x in made.children), made.access)
    return made if valid else None


def outputs_of(box: Term) -> int:
    """Returns the number of results of a black box's node."""
    return sum(map(bool, read_key(str(box.attributes[0])).node.output))
