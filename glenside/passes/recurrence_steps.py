"""Finds the step of a recurrence: what a term and an earlier term of the same form compute between them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from glenside.ir.term import Term, build, postorder, shared
from glenside.ir.types import AccessType

_MAX_STEP_TERMS = 2000
"""Maximum terms of a step."""


@dataclass(frozen=True)
class Element:
    """An element of a tensor that a step reads: `start` along an axis, and one more (or less) at each step."""

    tensor: Term
    axis: int
    start: int
    by: int

    def back(self, steps: int) -> Term | None:
        """Returns the slice that the step `steps` before reads; None if the tensor has no such element."""
        at = self.start - steps * self.by
        fits = 0 <= at < self.tensor.access.dims[self.axis]
        return build("access-slice", self.tensor, self.axis, at, at + 1) if fits else None


@dataclass(frozen=True)
class Step:
    """A step.

    states    what it reads of the step before -> the term of this step that is its next value
    elements  slices of tensors, each one further than that of the step before
    fixed     terms that it reads and that are the same in the step before
    terms     the terms that it computes, operands first
    """

    states: Mapping[Term, Term]
    elements: Mapping[Term, Element]
    fixed: Collection[Term]
    terms: list[Term]

    @classmethod
    def of(
        cls,
        roots: Iterable[Term],
        states: Mapping[Term, Term],
        elements: Mapping[Term, Element],
        fixed: Collection[Term],
    ) -> Step:
        """Returns the step that computes roots and the next states."""
        terms = list(postorder(*roots, *states.values(), without={*states, *elements, *fixed}))
        read = {child for term in terms for child in term.children}
        own = {term: element for term, element in elements.items() if term in read}
        return cls(states, own, [term for term in fixed if term in read], terms)

    @property
    def size(self) -> int:
        """The elements of the state."""
        return sum(term.access.size for term in self.states if isinstance(term.type, AccessType))


def step_of(term: Term, earlier: Term, number: Mapping[Term, int]) -> Step | None:
    """Returns the step that computes a term, if the step before computes the earlier one."""
    states, elements, fixed = dict[Term, Term](), dict[Term, Element](), dict[Term, None]()
    after: dict[Term, Term] = {}
    waiting, pairs = [-number[term]], {term: earlier}
    terms = {-number[term]: term}
    while waiting:
        later = terms[heapq.heappop(waiting)]
        before = pairs[later]
        if later in after:
            states[later] = after[later]
        elif later is before:
            fixed[later] = None
        elif (element := _element(later, before)) is not None:
            elements[later] = element
        elif not is_alike(later, before) or before in after or len(after) == _MAX_STEP_TERMS:
            return None
        else:
            after[before] = later
            for child, other in zip(later.children, before.children, strict=True):
                if child not in pairs:
                    pairs[child], terms[-number[child]] = other, child
                    heapq.heappush(waiting, -number[child])
                elif pairs[child] is not other:
                    return None
    if not states:
        return None
    step = Step.of([term], states, elements, fixed)
    return min(step, _later_cut(step, term), key=lambda step: step.size)


def _later_cut(step: Step, root: Term) -> Step:
    """Returns the same step, cut later: its states are terms that were computed of more elements of states alone."""
    early: dict[Term, frozenset[Term]] = {
        **{t: frozenset({t}) for t in step.states},
        **dict.fromkeys(step.fixed, frozenset()),
    }
    for term in step.terms:
        if all(child in early for child in term.children):
            read = frozenset[Term]().union(*(early[child] for child in term.children))
            if term.operator.moves or term.access.size < sum(state.access.size for state in read):
                early[term] = read
    own = {*step.terms}
    waiting = [c for t in own if t not in early for c in t.children] + [t for t in step.states.values() if t in early]
    cut = dict[Term, None]()
    for term in waiting:
        if term in own and term.operator.moves:  # a view is not worth a part of the state
            waiting += term.children
        elif term in early and term not in step.fixed:
            cut[term] = None
    moved = dict(step.states)
    for term in early:
        if term in own:
            moved[term] = shared(term.operator, tuple(moved.get(c, c) for c in term.children), term.attributes)
    return Step.of([moved.get(root, root)], {term: moved[term] for term in cut}, step.elements, step.fixed)


def is_alike(a: Term, b: Term) -> bool:
    """True if terms are equal but for their operands, and have some."""
    own, other = ((t.operator, t.attributes, t.type, len(t.children)) for t in (a, b))
    return own == other and bool(a.children)


def _element(later: Term, before: Term) -> Element | None:
    """Returns the element of a tensor that a slice is, and from which the slice before differs by one."""
    if later.operator.name != "access-slice" or before.operator.name != "access-slice":
        return None
    (a, axis, start, stop), (b, other, first, _) = later.arguments(), before.arguments()
    if a is not b or axis != other or later.type != before.type or stop != start + 1 or abs(start - first) != 1:
        return None
    return Element(a, axis, start, start - first)
