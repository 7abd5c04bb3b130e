"""Defines the branch outcomes of primitives and casts, and the operands that reach each.

Equal operands are an outcome of their own where they matter: two comparisons may differ there only (lt and le), and so
may a sign or a rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from glenside.analysis.ranges import Range
from glenside.ir.dtypes import FLOATS, RECORDS, WHOLE, limits, wider
from glenside.ir.operand import Array

_NEAR = 1e-9  # largest rounding error of a position
_ZERO = Range(0.0, 0.0)
Function = Callable[..., Array]


Aim = Callable[[Array], Array]
"""Operands -> the nearby operands that reach an outcome."""


def _at(number: float) -> Aim:
    return lambda a: np.full_like(a, number)


def _half_above(parity: int) -> Aim:
    return lambda a: 2 * np.rint((a - parity) / 2) + parity + 0.5


_LOW, _SAME, _HIGH = _at(-1), _at(0), _at(1)


class Watched(NamedTuple):
    """The branch outcomes of a primitive.

    words     each outcome, as messages name it after "never"
    taken     (function, *operands) -> for each outcome, whether some elements reach it
    possible  ranges of the operands -> for each outcome, whether some elements could reach it
    aims      for each outcome, values of the operand, or of the difference of two, that reach it; None if unknown
    """

    words: tuple[str, ...]
    taken: Callable[..., Sequence[Any]]
    possible: Callable[..., Sequence[bool]]
    aims: tuple[Aim | None, ...]


def _equal(a: Array, b: Array) -> Array:
    """Returns a mask of equal elements; numbers with an order are compared by their residues."""
    return np.asarray(a.imag == b.imag if a.dtype.kind == "c" else a == b)


def _apart(a: Array, b: Array) -> tuple[Any, Any]:
    """Returns whether some elements of a are below those of b, and whether some are above."""
    differ, less = ~_equal(a, b), np.asarray(a.real < b.real)
    return (less & differ).any(), (~less & differ).any()


def _from_zero(a: Array) -> tuple[Any, Any, Any]:
    zero = np.zeros((), a.dtype)
    return (*_apart(a, zero), _equal(a, zero).any())


def _truth(holds: Array) -> tuple[Any, Any]:
    return holds.any(), not holds.all()


def _fraction(a: Array) -> Array:
    """Returns the fractional parts; 0 where a number is whole up to rounding."""
    above = a.real - np.floor(a.real)
    return np.asarray(np.where(above > 1 - _NEAR, 0.0, above))


def _halves(a: Array) -> tuple[Any, Any]:
    below = np.floor(a.real)
    half = np.abs(a.real - below - 0.5) < _NEAR
    if not half.any():  # as of most numbers
        return False, False
    odd = below[half] % 2 == 1
    return not odd.all(), odd.any()


def _unlike(function: Function, a: Array, b: Array) -> tuple[Any]:
    """Returns whether operands of different signs leave a remainder.

    Always True for residues without an order, because a pseudo-random function replaces their remainder.
    """
    if a.dtype.kind == "f":
        return (True,)
    return ((((a.real < 0) != (b.real < 0)) & ~_equal(np.asarray(function(a, b)), np.zeros((), a.dtype))).any(),)


def _below(a: Range, b: Range) -> bool:
    return a.low < b.high


def _meet(a: Range, b: Range) -> bool:
    return a.low <= b.high and b.low <= a.high


def _may_differ(a: Range, b: Range) -> bool:
    return not a.low == a.high == b.low == b.high


def _may_be_apart(a: Range, b: Range = _ZERO) -> tuple[bool, bool]:
    return _below(a, b), _below(b, a)


def _may_be_whole(a: Range) -> tuple[bool, bool]:
    holds = bool(np.ceil(a.low) <= a.high)
    return holds, a.low < a.high or not holds


def _relation(
    held: Callable[[Range, Range], bool], failed: Callable[[Range, Range], bool], aims: tuple[Aim, Aim], *equal: str
) -> Watched:
    """Returns the outcomes of a comparison; with `equal`, equal operands are an outcome of their own."""
    if not equal:
        return Watched(_HELD, lambda f, a, b: _truth(f(a, b)), lambda a, b: (held(a, b), failed(a, b)), aims)
    return Watched(
        (*_HELD, *equal),
        lambda f, a, b: (*_truth(f(a, b)), _equal(a, b).any()),
        lambda a, b: (held(a, b), failed(a, b), _meet(a, b)),
        (*aims, _SAME),
    )


_HELD = ("held", "failed")
_EQUAL = "was of equal numbers"
_TOOK = ("took the first number", "took the second number")
_SIGNS = ("was of a number below 0", "was of a number above 0")
_JOINED = Watched(_HELD, lambda f, a, b: _truth(f(a, b)), lambda a, b: (True, True), (None, None))
_FLOORED = Watched(
    ("was of a whole number", "was of a number that is not whole"),
    lambda f, a: _truth(_fraction(a) <= _NEAR),
    _may_be_whole,
    (np.rint, lambda a: np.floor(a) + 0.25),
)
_REST = Watched(
    ("left a rest of numbers that differ in sign",),
    _unlike,
    lambda a, b: ((a.low < 0 < b.high) or (b.low < 0 < a.high),),
    (None,),
)
WATCHED = {
    "lt": _relation(_below, lambda a, b: a.high >= b.low, (_LOW, _HIGH), _EQUAL),
    "le": _relation(lambda a, b: a.low <= b.high, lambda a, b: _below(b, a), (_LOW, _HIGH), _EQUAL),
    "gt": _relation(lambda a, b: _below(b, a), lambda a, b: a.low <= b.high, (_HIGH, _LOW), _EQUAL),
    "ge": _relation(lambda a, b: a.high >= b.low, _below, (_HIGH, _LOW), _EQUAL),
    "eq": _relation(_meet, _may_differ, (_SAME, _HIGH)),
    "ne": _relation(_may_differ, _meet, (_HIGH, _SAME)),
    "logical-and": _JOINED,
    "logical-or": _JOINED,
    "select": Watched(
        _TOOK,
        lambda f, condition, a, b: _truth(~_equal(condition, np.zeros((), condition.dtype))),
        lambda condition, a, b: (_may_differ(condition, _ZERO), _meet(condition, _ZERO)),
        (None, None),
    ),
    "min": Watched(_TOOK, lambda f, a, b: _apart(a, b), _may_be_apart, (_LOW, _HIGH)),
    "max": Watched(_TOOK, lambda f, a, b: _apart(b, a), lambda a, b: _may_be_apart(b, a), (_HIGH, _LOW)),
    "abs": Watched(_SIGNS, lambda f, a: _from_zero(a)[:2], _may_be_apart, (_LOW, _HIGH)),
    "sign": Watched(
        (*_SIGNS, "was of 0"),
        lambda f, a: _from_zero(a),
        lambda a: (*_may_be_apart(a), _meet(a, _ZERO)),
        (_LOW, _HIGH, _SAME),
    ),
    "floor": _FLOORED,
    "ceil": _FLOORED,
    "round": Watched(
        ("was of a half above an even number", "was of a half above an odd number"),
        lambda f, a: _halves(a),
        lambda a: (a.high - a.low >= 2,) * 2,
        (_half_above(0), _half_above(1)),
    ),
    "mod": _REST,
    "rem": _REST,
}
CAST = (
    "was of 0",
    "was of another number than 0",
    "cut a number below 0",
    "cut a number above 0",
    "wrapped a number below its least",
    "wrapped a number above its most",
)
CAST_AIMS: tuple[Aim | None, ...] = (_SAME, _HIGH, _at(-1.5), _at(1.5), None, None)
_WRAPPED_BITS = 32  # wrapping is not watched in integers of this width or wider, whose bounds few numbers reach
ROUNDED = ("floor", "ceil", "round")


def cast_taken(a: Array, dtype: str) -> Sequence[Any]:
    """Returns which outcomes of `CAST` some elements reach when they are cast to integers or bool."""
    if dtype == "bool":
        return (_equal(a, np.zeros((), a.dtype)).any(), (~_equal(a, np.zeros((), a.dtype))).any(), *(False,) * 4)
    if a.dtype.name in WHOLE:  # numpy compares no integer of 4 or 2 bits with a number that they do not hold
        a = a.astype(wider(a.dtype.name))
    if a.dtype == bool:  # nor a truth value with a number beyond int64
        a = a.astype(np.int8)
    least, most = limits(dtype)
    wraps = (a.real < least).any(), (a.real > most).any()
    if a.dtype.kind != "c":
        return False, False, False, False, *wraps
    cut, negative = _fraction(a) > _NEAR, a.real < 0
    return False, False, (cut & negative).any(), (cut & ~negative).any(), *wraps


def cast_possible(a: Range, dtype: str, other: str, whole: bool) -> Sequence[bool]:
    """Returns which outcomes of `CAST` elements could reach.

    a      their range
    other  their dtype
    whole  whether all of them are whole numbers
    """
    if dtype == "bool":
        return (_meet(a, _ZERO), _may_differ(a, _ZERO), *(False,) * 4)
    least, most = limits(dtype)
    cut, wraps = other in FLOATS and not whole, RECORDS[dtype].bits < _WRAPPED_BITS
    return False, False, cut and a.low < 0, cut and a.high > 0, wraps and a.low < least, wraps and a.high > most
