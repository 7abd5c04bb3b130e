"""Shrinks a failing case: delta debugging over terms, as long as the same failure remains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from math import prod

from glenside.builder.layout import split_at
from glenside.fuzzing.cases import Case
from glenside.fuzzing.models import shrunk_model
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.term import Attribute, Term, build, make, postorder, rebuild, tensors, weave
from glenside.ir.text import parse, print_program
from glenside.ir.types import AccessType, Dims, Tensor, TupleType

Fails = Callable[[Case], bool]
"""True if a case still fails in the same way."""


def shrunk(case: Case, fails: Fails, seconds: float, tries: int = 400) -> Case:
    """Returns the smallest case found that still fails, within a time and a number of tries."""
    if case.form == "model":
        return shrunk_model(case, fails, seconds, tries)
    until = time.monotonic() + seconds
    best, term, seen = case, parse(case.text).term, {case.text}
    said = "".join(takewhile(lambda line: line.startswith("; "), case.text.splitlines(keepends=True)))
    again = True
    while again:
        again = False
        for candidate in candidates(term):
            if tries <= 0 or time.monotonic() > until:
                return best
            if _weight(candidate) >= _weight(term):
                continue
            try:
                text = said + print_program(Program(candidate))
            except GlensideError:
                continue
            if text in seen:
                continue
            seen.add(text)
            tries -= 1
            smaller = replace(best, text=text)
            if fails(smaller):
                best, term, again = smaller, candidate, True
                break
    return best


def _weight(term: Term) -> tuple[int, int, int, int]:
    """Returns the size of a program: operators, elements, complexity of attributes."""
    order = [*postorder(term)]
    operators = sum(1 for t in order if t.children)
    elements = sum(t.access.size for t in order if isinstance(t.type, AccessType))
    numbers = sum(abs(n) for t in order for a in t.attributes for n in _numbers(a))
    plain = sum(t.access.dtype != "float32" for t in order if isinstance(t.type, AccessType))
    return operators, elements, numbers + sum(len(str(a)) for t in order for a in t.attributes), plain + len(order)


def _numbers(attribute: Attribute) -> tuple[int, ...]:
    if isinstance(attribute, bool):
        return ()
    if isinstance(attribute, int):
        return (attribute,)
    return tuple(attribute) if isinstance(attribute, Dims) else ()


def candidates(term: Term) -> Iterator[Term]:
    """Yields programs that are smaller in one respect, the largest steps first."""
    order = [*postorder(term)]
    if isinstance(term.type, TupleType):
        yield from term.children
        if len(term.children) > 2:
            for left_out in range(len(term.children)):
                yield build("construct-tuple", *(c for i, c in enumerate(term.children) if i != left_out))
    yield from (part for part in order[:-1] if isinstance(part.type, AccessType) and part.children)
    yield from _replaced(term, order)
    yield from _with_ones(term, order)
    yield from _resized(term)
    yield from _simpler_attributes(term, order)
    yield from _other_dtypes(term)


def _replaced(term: Term, order: list[Term]) -> Iterator[Term]:
    """Yields programs with one part replaced by an operand of the same type, by a new input, or by ones."""
    inputs = {leaf.attributes[0].name for leaf in tensors(term)}  # type: ignore[union-attr]
    for part in reversed(order):
        if not isinstance(part.type, AccessType) or not part.children:
            continue
        for child in part.children:
            if isinstance(child.type, AccessType):
                if child.type == part.type:
                    yield _with(term, part, child)
                elif (child.access.dims, child.access.dtype) == (part.access.dims, part.access.dtype):
                    yield _with(term, part, split_at(child, part.access.split))
        number = 0
        while f"x{number}" in inputs:
            number += 1
        leaf = build("access-tensor", Tensor(f"x{number}", part.access.dims, part.access.dtype))
        if part is not term:
            yield _with(term, part, split_at(leaf, part.access.split))


def _with_ones(term: Term, order: list[Term]) -> Iterator[Term]:
    """Yields programs with one tensor or constant replaced by ones."""
    for part in order:
        if part.operator.name in ("access-tensor", "numbers"):
            try:
                yield _with(term, part, build("full", part.access.dims, "1", part.access.dtype))
            except GlensideError:
                continue


def _with(term: Term, part: Term, other: Term) -> Term:
    """Returns the term with one part replaced."""
    return rebuild(term, lambda t, _: other if t is part else None)


def _resized(term: Term) -> Iterator[Term]:
    """Yields programs with one size changed wherever it occurs."""
    sizes = {n for t in postorder(term) if isinstance(t.type, AccessType) for n in t.access.dims}
    for size in sorted(sizes, reverse=True):
        for smaller in sorted({1, 2, 3, size // 2, size - 1}):
            if 0 < smaller < size:
                found = _renumbered(term, size, smaller)
                if found is not None:
                    yield found


def _renumbered(term: Term, size: int, smaller: int) -> Term | None:
    """Returns the term with a number replaced in all tensors and attributes, if that is legal."""

    def number(n: int) -> int:
        return smaller if n == size else n

    def change(attribute: Attribute) -> Attribute:
        if isinstance(attribute, Tensor):
            return replace(attribute, dims=Dims(map(number, attribute.dims)))
        if isinstance(attribute, Dims):
            return Dims(map(number, attribute))
        return number(attribute) if isinstance(attribute, int) else attribute

    def new(t: Term, children: tuple[Term, ...]) -> Term:
        attributes = [change(a) for a in t.attributes]
        if t.operator.name == "numbers":
            attributes[1] = _cut(attributes[1], prod(_numbers(attributes[0])))
        elif t.operator.name == "linear-map":
            (axis,), (rows,) = _numbers(attributes[0]), _numbers(attributes[1])
            attributes[2] = _cut(attributes[2], rows * children[0].access.dims[axis])
        return make(t.operator, weave(t.operator, children, attributes))

    try:
        return rebuild(term, new)
    except (GlensideError, IndexError, ValueError):
        return None


def _cut(numbers: Attribute, count: int) -> str:
    """Returns the first numbers of a text."""
    return " ".join(str(numbers).split()[:count])


def _simpler_attributes(term: Term, order: list[Term]) -> Iterator[Term]:
    """Yields programs with one number of one attribute made smaller, or one constant made 1 or 0."""
    for part in reversed(order):
        for at, attribute in enumerate(part.attributes):
            for other in _simpler(attribute):
                attributes = [*part.attributes[:at], other, *part.attributes[at + 1 :]]
                try:
                    yield _with(term, part, make(part.operator, weave(part.operator, part.children, attributes)))
                except (GlensideError, IndexError, ValueError):
                    continue


def _simpler(attribute: Attribute) -> Iterator[Attribute]:
    if isinstance(attribute, Tensor):
        if attribute.constant:
            yield replace(attribute, constant=False)
        for at, size in enumerate(attribute.dims):
            yield from (
                replace(attribute, dims=Dims((*attribute.dims[:at], smaller, *attribute.dims[at + 1 :])))
                for smaller in sorted({1, size // 2, size - 1})
                if 0 <= smaller < size
            )
    elif isinstance(attribute, Dims):
        for at, size in enumerate(attribute):
            yield from (Dims((*attribute[:at], n, *attribute[at + 1 :])) for n in _less(size))
    elif isinstance(attribute, int):
        yield from _less(attribute)
    elif attribute not in ("0", "1") and _is_number(attribute):
        yield from ("1", "0", "2")


def _less(number: int) -> list[int]:
    """Returns smaller numbers to try."""
    return [n for n in sorted({0, 1, number // 2, number - 1}) if n < number]


def _is_number(text: str) -> bool:
    return all(c in "0123456789-/.e" for c in text) and bool(text)


def _other_dtypes(term: Term) -> Iterator[Term]:
    """Yields programs in which all of one dtype become float32."""
    found = {t.access.dtype for t in postorder(term) if isinstance(t.type, AccessType)} - {"float32"}
    for dtype in sorted(found):

        def new(t: Term, children: tuple[Term, ...], dtype: str = dtype) -> Term:
            attributes = [
                replace(a, dtype="float32")
                if isinstance(a, Tensor) and a.dtype == dtype
                else "float32"
                if a == dtype
                else a
                for a in t.attributes
            ]
            return make(t.operator, weave(t.operator, children, attributes))

        try:
            yield rebuild(term, new)
        except (GlensideError, IndexError, ValueError):
            continue
