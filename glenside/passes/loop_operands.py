"""Builds the body of a loop from a step, and the operands that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glenside.builder.layout import concatenate, flip, reshape, slice_axis, split_at, transpose
from glenside.ir.operators.scan import STATE, operand_name
from glenside.ir.term import Term, build, constants_under, rebuild_all, shared
from glenside.ir.types import Dims, Tensor
from glenside.passes.recurrence_steps import Step


class Operands:
    """The operands of a loop: tensors of which each step reads an element, then others.

    starts  the element of each of the first operands that the first step reads
    """

    def __init__(self, step: Step, back: int) -> None:
        self.step, self.starts, self.operands = step, list[int](), list[Term]()
        self.numbers: dict[tuple[Term, int | None], int] = {}
        self.inner: dict[Term, Term] = {}
        for term, element in step.elements.items():
            size = element.tensor.access.dims[element.axis]
            first = element.start - back * element.by
            order = [element.axis, *(i for i in range(element.tensor.access.rank) if i != element.axis)]
            whole = transpose(element.tensor, order)
            whole, first = (whole, first) if element.by > 0 else (flip(whole, 0), size - 1 - first)
            leaf = self._leaf(whole, first)
            self.inner[term] = reshape(leaf, term.access.dims)
        self.constant = constants_under(*step.fixed)
        for term in step.fixed:
            self.inner[term] = self._inside(term)

    def _leaf(self, operand: Term, start: int | None) -> Term:
        """Returns the tensor of the body that stands for an operand, or for its element at each step."""
        key = operand, start
        if key not in self.numbers:
            self.numbers[key] = len(self.operands)
            self.operands.append(operand)
            self.starts += [] if start is None else [start]
        i = self.numbers[key]
        dims = operand.access.dims.drop(start is not None)
        leaf = build("access-tensor", Tensor(operand_name(i), dims, operand.access.dtype))
        return split_at(leaf, operand.access.split if start is None else 0)

    def _inside(self, term: Term) -> Term:
        """Returns a fixed term of the body: moved elements are moved inside, unless they are constants."""
        if not term.children and term.operator.name != "access-tensor":
            return term
        grows = term.access.size > sum(child.access.size for child in term.children)
        if term.children and term.operator.moves and term.index_map and (grows or not self.constant[term]):
            return shared(term.operator, tuple(map(self._inside, term.children)), term.attributes)
        return self._leaf(term, None)

    def body(self, carried: Sequence[Term], read: Mapping[Term, Term], offsets: Sequence[int]) -> Term | None:
        """Returns the next state; None if an operand is read in more than one way, which loops do not support."""
        if len(set(self.operands)) < len(self.operands):
            return None
        state = build("access-tensor", Tensor(STATE, Dims((offsets[-1],)), carried[0].access.dtype))
        done = dict(self.inner)
        for number, term in enumerate(carried):
            if term in read:
                own = reshape(slice_axis(state, 0, offsets[number], offsets[number + 1]), term.access.dims)
                done[read[term]] = split_at(own, term.access.split)
        found = rebuild_all(carried, lambda *_: None, done)
        return concatenate([reshape(term, (term.access.size,)) for term in found], 0)
