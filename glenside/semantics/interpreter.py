"""The meaning of programs: every operator's `evaluate`, each shared term once, arrays freed when nothing reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from glenside.ir.blockwise import BUFFER
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, Operand, Value, in_memory
from glenside.ir.operator import Kind
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
) -> list[Any]:
    """The arrays of the roots (tuples for tuples), from the arrays of tensors by name.

    `given` holds values of inner terms: what stands below them is evaluated only if something else needs it.
    With `watch`, each root is handed over as soon as it is computed, none is kept, and the result is [].
    Raises BadInput when a tensor has no value, or one of another shape or dtype.
    """
    run = Run(roots, values, arithmetic or Native(), given or {}, keep_roots=watch is None)
    wanted = set(roots)
    with np.errstate(all="ignore"):  # 1/0 is inf and sqrt(-1) is nan here, not a warning
        np.setbufsize(BUFFER)  # as the error state, until the end of this block
        for term in run.order:
            value = run.step(term)
            if watch is not None and term in wanted:
                watch(term, in_memory(value))
            del value  # the last consumer frees it, not the end of the next step
    return [in_memory(run.held[root]) for root in roots] if watch is None else []


def needed(roots: Sequence[Term], given: Container[Term]) -> Iterator[Term]:
    """The terms to evaluate, operands first; nothing below a given term unless it is needed elsewhere."""
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


class _Plan(NamedTuple):
    order: Sequence[Term]
    reads: Counter[Term]
    placement: Placement


@lru_cache(maxsize=8)
def _plan(roots: Sequence[Term], given: Container[Term], keep_roots: bool) -> _Plan:
    """In which order terms are evaluated, how many reads each has, and where it lies: a check does so many times."""
    order = list(needed(roots, given))
    reads = Counter(roots if keep_roots else ())
    for term in order:
        if term not in given:
            reads.update(term.children)
    return _Plan(order, reads, placement(order, reads, given))


class Run:
    """One evaluation: the values held, and how many reads of each are to come."""

    def __init__(
        self,
        roots: Sequence[Term],
        values: Mapping[str, Array],
        arithmetic: Arithmetic,
        given: Mapping[Term, Array],
        keep_roots: bool,
    ) -> None:
        self.values, self.arithmetic, self.given = values, arithmetic, given
        self.held: dict[Term, Value] = {}
        plan = _plan(tuple(roots), frozenset(given), keep_roots)
        self.order, self.placement, self.reads = plan.order, plan.placement, plan.reads.copy()
        self.results: dict[Term, Array] = {}
        """Of terms that are not computed yet, of which parts are."""

    def step(self, term: Term) -> Value:
        """Evaluate one term whose operands are held, and free those that nothing reads after it."""
        value = self.known(term) if term in self.given else self._evaluate(term)
        if self.reads[term]:
            self.held[term] = value
        return value

    def _evaluate(self, term: Term) -> Value:
        operator = term.operator
        operands: list[Any] = [self._read(child) for child in term.children]
        if operator.typed:
            operands = [Operand(c.type, v) for c, v in zip(term.children, operands, strict=True)]
        else:
            operands = [in_memory(v) for v in operands]
        attributes: list[Any] = list(term.attributes)
        if term.children == () and any(field.kind is Kind.TENSOR for field in operator.fields):
            attributes = [self.tensor(a) if isinstance(a, Tensor) else a for a in attributes]
        arguments = weave(operator, operands, attributes)
        del operands
        return self.apply(term, arguments, self._destination(term))

    def apply(self, term: Term, arguments: Sequence[Any], out: Array | None) -> Value:
        """The value of one term from its arguments in field order, with operands in place of its children; in `out`."""
        into = {} if out is None else {"out": out}
        value: Value = term.operator.evaluate(self.arithmetic, *arguments, **into)
        return np.asarray(value) if isinstance(value, np.generic) else value

    def _destination(self, term: Term) -> Array | None:
        """Where a term is computed; None where that is an array of its own, or a view."""
        if term in self.results:
            return self.results.pop(term)
        stores = type(self.arithmetic) is Native and term.operator.stores is not None  # others make arrays of their own
        if term not in self.placement or not (gathers(term) or stores):
            return None
        return self._part(term)

    def _part(self, term: Term) -> Array:
        """Of the result in which a term lies, which is allocated when its first part is computed."""
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
        assert part is not None, "only what has a place is placed"
        return part

    def allocate(self, term: Term) -> Array:
        """The array of a result before it is computed."""
        return np.empty(tuple(term.access.dims), self.arithmetic.kept(term.access.dtype))

    def _read(self, term: Term) -> Value:
        self.reads[term] -= 1
        return self.held[term] if self.reads[term] else self.held.pop(term)

    def tensor(self, tensor: Tensor) -> Array:
        """The value of an input or a constant, as the arithmetic keeps it. Raises BadInput."""
        if tensor.name not in self.values:
            raise BadInput(f"tensor {tensor.name} requires a value of shape {spelled(tensor.dims)}, got none")
        array = np.asarray(self.values[tensor.name])
        if array.shape != tensor.dims:
            need, have = spelled(tensor.dims), spelled(array.shape)
            raise BadInput(f"tensor {tensor.name} requires shape {need}, got {have}")
        return self.arithmetic.encode(tensor.name, array, tensor.dtype)

    def known(self, term: Term) -> Array:
        """The value given for a term. Raises BadInput when it does not fit."""
        array = self.given[term]
        if isinstance(term.type, AccessType) and array.shape != term.type.dims:
            need, have = spelled(term.type.dims), spelled(array.shape)
            raise BadInput(f"the value given for {term.operator.name} requires shape {need}, got {have}")
        return array
