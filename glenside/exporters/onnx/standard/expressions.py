"""Matches elementwise expressions through movement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from glenside.exporters.onnx.affine_indices import Loop, Reading, Unreadable, below_movement, read
from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.writer import Value
from glenside.ir.index_map import Axis, Index
from glenside.ir.operators.compute import name_of
from glenside.ir.rational import exact
from glenside.ir.term import Term
from glenside.semantics.interpreter import evaluate

T = TypeVar("T")

_MOST = 1 << 20  # elements of a constant that are compared


@dataclass(frozen=True)
class Element:
    """One element of a term, in a loop over the elements of another term; equal ones are the same element."""

    term: Term
    places: tuple[Index, ...]

    @classmethod
    def of(cls, loop: Loop, term: Term, places: Sequence[Index]) -> Element:
        """Returns the element below movement. Raises Unreadable."""
        found, at = below_movement(loop, term, places)
        return cls(found, tuple(at))

    @property
    def kind(self) -> str:
        """The operator or the compute type that computes it."""
        return name_of(self.term)


@dataclass(frozen=True)
class Expressions:
    """Elements of a term, and the elements on which they depend."""

    emit: Emitter
    loop: Loop
    term: Term

    @cached_property
    def root(self) -> Element:
        return Element(self.term, tuple(self.loop.places()))

    def operands(self, element: Element, kind: str) -> list[Element]:
        """Returns the operands of an element that this compute type computes, else an empty list."""
        if element.kind != kind or element.term.operator.name != "compute":
            return []
        (child,) = element.term.children
        if child.operator.name != "access-product":
            same = child.access.dims == element.term.access.dims
            return [Element.of(self.loop, child, element.places)] if same else []
        a, b, shared = child.arguments()
        if shared != a.access.split or shared != b.access.split:
            return []
        return [Element.of(self.loop, x, element.places) for x in (a, b)]

    def number(self, element: Element) -> float | None:
        """Returns the number that a constant repeats everywhere, or None."""
        term = element.term
        if term.operator.name in ("full", "access-literal"):
            value = exact(str(term.attributes[-2]))
            return None if value is None else float(value)
        if not self.emit.is_constant(term) or not 0 < term.access.size <= _MOST:
            return None
        numbers = self.emit.numbers
        if term not in numbers:
            (array,) = evaluate([term], self.emit.constants)
            numbers[term] = float(array.flat[0]) if (array == array.flat[0]).all() else None
        return numbers[term]

    def factors(self, element: Element) -> tuple[float, list[Element]]:
        """Returns the factors of an element: a number, and other elements."""
        known = self.number(element)
        if known is not None:
            return known, []
        for kind in ("elementwise-mul", "elementwise-div"):
            if len(pair := self.operands(element, kind)) != 2:
                continue
            (first, others), (second, more) = map(self.factors, pair)
            if kind == "elementwise-mul":
                return first * second, [*others, *more]
            if not more and second:
                return first / second, others
        return 1.0, [element]

    def plus(self, element: Element, number: float) -> Element | None:
        """Returns the other summand of an element that adds that number, or None."""
        pair = self.operands(element, "elementwise-add")
        for x, other in (pair, pair[::-1]) if len(pair) == 2 else ():
            if self.number(other) == number:
                return x
        return None


def matched(emit: Emitter, term: Term, match: Callable[[Expressions], T | None]) -> T | None:
    """Returns the match of a term; None if its indices are not affine."""
    loop = Loop.over(term.access.dims)
    try:
        return read(loop, lambda: match(Expressions(emit, loop, term)))
    except Unreadable:
        return None


def axes_of(element: Element) -> list[Axis]:
    """Returns the loop axes along an element's array, in row-major order. Raises Unreadable."""
    return Reading(Value("", element.term.access.dims, element.term.access.dtype), element.places).axes
