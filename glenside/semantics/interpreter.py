"""Evaluates programs by the operators' `evaluate`: each shared term once; an array is freed after its last read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from glenside.ir.blockwise import BUFFER
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, Operand, Value, as_array, in_memory
from glenside.ir.operator import Operator
from glenside.ir.operators.requirements import spelled
from glenside.ir.term import Term, weave
from glenside.ir.types import AccessType, Tensor
from glenside.semantics import Arithmetic, Native
from glenside.semantics.placement import Placement, gathers, parts_of, placement


def evaluate(
    roots: Sequence[Term],
    values: Mapping[str, Array],
    arithmetic: Arithmetic | None = None,
    *,
    given: Mapping[Term, Array] | None = None,
    watch: Callable[[Term, Any], None] | None = None,
    begin: Callable[[Term], None] = lambda term: None,
    together: bool = False,
) -> list[Any]:
    """Returns the arrays of the roots (tuples for tuples), from the arrays of tensors by name.

    `given` holds values of inner terms: their operands are evaluated only if another term needs them. With `watch`,
    each root is passed to `watch` as soon as it is computed, none is kept, and the result is []; `begin` is called
    before it. With `together`, roots that share terms are evaluated side by side, each term as late as possible, so
    that what one of them has read is not held until the others are evaluated.

    Raises BadInput if a tensor has no value, or a value of another shape or dtype.
    """
    if not isinstance(roots, Sequence):
        raise BadInput(f"evaluate takes a list of terms, such as [program.term], got {type(roots).__name__}")
    run = Run(roots, values, arithmetic or Native(), given or {}, keep_roots=watch is None, together=together)
    wanted = set(roots) if watch is not None else set()
    with np.errstate(all="ignore"):  # 1/0 is inf and sqrt(-1) is nan here, not a warning
        np.setbufsize(BUFFER)  # as the error state, until the end of this block
        for term in run.order:
            if term not in wanted:
                run.step(term)
                continue
            begin(term)
            value = run.step(term)
            if watch is not None:
                watch(term, in_memory(value))
            del value  # the last consumer frees it, not the end of the next step
    return [in_memory(run.held[root]) for root in roots] if watch is None else []


def needed(roots: Sequence[Term], given: Container[Term]) -> Iterator[Term]:
    """Yields the terms to evaluate, operands first; operands of a given term only if another term needs them."""
    done: set[Term] = set()
    for root in roots:
        stack: list[tuple[Term, bool]] = [(root, False)]
        while stack:
            term, ready = stack.pop()
            if term in done:
                continue
            if ready or term in given:
                done.add(term)
                yield term
            else:
                stack.append((term, True))
                stack += [(child, False) for child in reversed(term.children) if child not in done]


def _side_by_side(order: Sequence[Term]) -> list[Term]:
    """Returns terms, operands first, in the order of their distance from the roots, the farthest first."""
    distance = dict.fromkeys(order, 0)
    for term in reversed(order):
        for child in term.children:
            if child in distance:
                distance[child] = max(distance[child], distance[term] + 1)
    return sorted(order, key=lambda term: -distance[term])


class _Step(NamedTuple):
    """The evaluation of a term: its arguments with gaps for operands; (position, operand, is last read) for each
    operand.
    """

    arguments: Sequence[Any]
    reads: Sequence[tuple[int, Term, bool]]
    read: bool
    """True if a term reads this one."""
    placed: bool
    """True if it is computed into a part of another result, or if operands are computed into parts of its result."""


class _Plan(NamedTuple):
    order: Sequence[Term]
    steps: Mapping[Term, _Step]
    placement: Placement


@lru_cache(maxsize=8)
def _plan(roots: Sequence[Term], given: Container[Term], keep_roots: bool, together: bool) -> _Plan:
    """Returns the evaluation order, the step of each term and the placement; memoized, since a check runs it many
    times.
    """
    order = list(needed(roots, given))
    if together:
        order = _side_by_side(order)
    reads = Counter(roots if keep_roots else ())
    for term in order:
        for child in term.children if term not in given else ():
            reads[child] += 1
    placed = placement(order, reads, given)
    places = {*placed, *(above for above, _ in placed.values())}
    steps: dict[Term, _Step] = {}
    left = reads.copy()
    for term in order:
        if term in given:
            steps[term] = _Step((), (), term in reads, False)
            continue
        operands: list[tuple[int, Term, bool]] = []
        for place, child in zip(_places(term.operator, len(term.children)), term.children, strict=True):
            left[child] -= 1
            operands.append((place, child, not left[child]))
        steps[term] = _Step(term.arguments(), operands, term in reads, term in places)
    return _Plan(order, steps, placed)


@lru_cache(maxsize=1 << 10)
def _places(operator: Operator, operands: int) -> Sequence[int]:
    """Returns the positions of the operands among the arguments."""
    woven = weave(operator, [None] * operands, [0] * (2 * len(operator.fields)))
    return [place for place, argument in enumerate(woven) if argument is None]


class Run:
    """One evaluation: holds each value until its last read."""

    def __init__(
        self,
        roots: Sequence[Term],
        values: Mapping[str, Array],
        arithmetic: Arithmetic,
        given: Mapping[Term, Array],
        keep_roots: bool,
        together: bool = False,
    ) -> None:
        self.values, self.arithmetic, self.given = values, arithmetic, given
        self.held: dict[Term, Value] = {}
        self.order, self._steps, self.placement = _plan(tuple(roots), frozenset(given), keep_roots, together)
        self.results: dict[Term, Array] = {}
        """Results that are only partly computed."""

    def step(self, term: Term) -> Value:
        """Evaluates one term whose operands are held, and frees operands after their last read."""
        step = self._steps[term]
        value = self.known(term) if term in self.given else self._evaluate(term, step)
        if step.read:
            self.held[term] = value
        return value

    def _evaluate(self, term: Term, step: _Step) -> Value:
        arguments, held, typed = [*step.arguments], self.held, term.operator.typed
        for place, child, last in step.reads:
            value = held.pop(child) if last else held[child]
            arguments[place] = Operand(child.type, value) if typed else in_memory(value)
            del value
        if not step.reads:
            arguments = [self.tensor(a) if isinstance(a, Tensor) else a for a in arguments]
        return self.apply(term, arguments, self._destination(term) if step.placed else None)

    def apply(self, term: Term, arguments: Sequence[Any], out: Array | None) -> Value:
        """Evaluates one term from its arguments in field order, with operands in place of its children; into `out` if
        given.
        """
        evaluate = term.operator.evaluate
        value: Value
        if out is None:
            value = evaluate(self.arithmetic, *arguments)
        else:
            value = evaluate(self.arithmetic, *arguments, out=out)
        return np.asarray(value) if isinstance(value, np.generic) else value

    def _destination(self, term: Term) -> Array | None:
        """Returns the array into which a term is computed; None if it makes an array of its own, or a view."""
        if term in self.results:
            return self.results.pop(term)
        stores = type(self.arithmetic) is Native and term.operator.stores is not None  # others make arrays of their own
        if term not in self.placement or not (gathers(term) or stores):
            return None
        return self._part(term)

    def _part(self, term: Term) -> Array:
        """Returns a term's part of the enclosing result, which is allocated when its first part is computed."""
        above, i = self.placement[term]
        if above in self.placement:
            whole = self._part(above)
            if gathers(above):
                self.results[above] = whole
        elif above in self.results:
            whole = self.results[above]
        else:
            whole = self.results[above] = self.allocate(above)
        part = parts_of(above, whole)[i]
        assert part is not None, "only operands with a place are placed"
        return part

    def allocate(self, term: Term) -> Array:
        """Allocates the array of a result."""
        return np.empty(tuple(term.access.dims), self.arithmetic.kept(term.access.dtype))

    def tensor(self, tensor: Tensor) -> Array:
        """Returns the value of an input or a constant, as the arithmetic stores it. Raises BadInput."""
        if tensor.name not in self.values:
            raise BadInput(f"tensor {tensor.name} requires a value of shape {spelled(tensor.dims)}, got none")
        array = as_array(f"tensor {tensor.name}", self.values[tensor.name])
        if array.shape != tensor.dims:
            need, have = spelled(tensor.dims), spelled(array.shape)
            raise BadInput(f"tensor {tensor.name} requires shape {need}, got {have}")
        return self.arithmetic.encode(tensor.name, array, tensor.dtype)

    def known(self, term: Term) -> Array:
        """Returns the value given for a term. Raises BadInput if its shape differs."""
        array = self.given[term]
        if isinstance(term.type, AccessType) and array.shape != term.type.dims:
            need, have = spelled(term.type.dims), spelled(array.shape)
            raise BadInput(f"the value given for {term.operator.name} requires shape {need}, got {have}")
        return array
