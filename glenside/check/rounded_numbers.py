"""Spells numbers of two programs alike that are one float: 0.1, and the float32 nearest to it.

A text has the rational 0.1, where a file has the float32 nearest to it. They are the same constant when a program runs,
and other numbers in exact arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np

from glenside.ir.dtypes import FLOATS
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.rational import exact
from glenside.ir.term import Term, build, postorder, rebuild_all, shared
from glenside.ir.types import AccessType, Dims, Tensor

_FRACTION = re.compile(r"(?<![\w.])[+-]?(?:\d+/\d+|\d*\.\d+(?:[eE][+-]?\d+)?|\d+\.?[eE][+-]?\d+)(?![\w./])", re.ASCII)


def with_equal_numbers(first: Program, second: Program, given: Mapping[str, Array]) -> tuple[Program, Program]:
    """Returns two programs in which numbers that round to one float are spelled as one, that of the least denominator.

    given  values of constants; those whose elements are equal become numbers
    """
    pair = [_with_numbers(each, given) for each in (first, second)]
    spelled: dict[tuple[str, float], str] = {}
    for program in pair:
        for term in postorder(*program.roots):
            for text, key in _fractions(term):
                spelled[key] = min(spelled.get(key, text), text, key=lambda each: Fraction(each).denominator)

    def respelled(term: Term, children: tuple[Term, ...]) -> Term | None:
        new = {text: spelled[key] for text, key in _fractions(term) if spelled[key] != text}
        if not new:
            return None
        attributes = (
            _FRACTION.sub(lambda m: new.get(m[0], m[0]), a) if isinstance(a, str) else a for a in term.attributes
        )
        return shared(term.operator, children, tuple(attributes))

    one, two = (each.with_roots(rebuild_all(each.roots, respelled)) for each in pair)
    return one, two


def _with_numbers(program: Program, given: Mapping[str, Array]) -> Program:
    """Returns a program with a number for each given float constant whose elements are equal."""

    def replaced(term: Term, _: tuple[Term, ...]) -> Term | None:
        tensor = term.attributes[0] if term.attributes else None
        if not isinstance(tensor, Tensor) or tensor.name not in given or tensor.dtype not in FLOATS:
            return None
        array = given[tensor.name]
        if array.size == 0 or not np.isfinite(array.flat[0]) or not (array == array.flat[0]).all():
            return None
        return build("full", Dims(tensor.dims), str(Fraction(float(array.flat[0]))), tensor.dtype)

    return program.with_roots(rebuild_all(program.roots, replaced))


def _fractions(term: Term) -> Iterator[tuple[str, tuple[str, float]]]:
    """Yields the numbers of a term that are not whole, each with the float that it is rounded to."""
    if term.operator.opaque:
        return
    types = (each.type for each in (term, *term.children))
    dtype = next((str(t.dtype) for t in types if isinstance(t, AccessType) and t.dtype in FLOATS), "")
    for attribute in term.attributes if dtype else ():
        for text in _FRACTION.findall(attribute) if isinstance(attribute, str) else ():
            value = exact(text)
            if value is not None:
                with np.errstate(all="ignore"):
                    yield text, (dtype, float(np.asarray(float(value)).astype(dtype)))
