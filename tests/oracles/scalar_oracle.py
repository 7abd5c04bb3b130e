"""Computes compute types element by element, without the expressions of the records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from glenside.ir.dtypes import COMPUTED, FLOATS, INTEGERS

LEAKY = Fraction(1, 3)
LOW, HIGH = 1, 100


def wrapped(value: int, dtype: str) -> int:
    """Returns the integer of a dtype with the same low bits."""
    bits, lowest = np.iinfo(dtype).bits, int(np.iinfo(dtype).min)
    return (value - lowest) % 2**bits + lowest


def _cut(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _power(a: int, b: int) -> int:
    if b < 0:
        return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)
    return pow(a, b, 2**64)


def _same_sign_as_divisor(a: int, b: int) -> int:
    return a % b if b else 0


NUMBERS = (*FLOATS, *INTEGERS)
TAKES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("minimum", "maximum", "(compare lt)", "(compare le)", "(compare gt)", "(compare ge)"), COMPUTED),
    **dict.fromkeys(("(compare eq)", "(compare ne)", "select"), COMPUTED),
    **dict.fromkeys(("elementwise-add", "elementwise-mul", "elementwise-div", "subtract", "pow"), NUMBERS),
    **dict.fromkeys(("(mod floor)", "(mod truncate)", "relu", "negative", "abs", "sign", "(clip 1 100)"), NUMBERS),
    **dict.fromkeys(("bitwise-and", "bitwise-or", "bitwise-xor"), INTEGERS),
    **dict.fromkeys(("logical-and", "logical-or", "logical-not"), ("bool",)),
    **dict.fromkeys("sqrt exp log tanh sigmoid erf sin cos tan asin acos atan sinh cosh".split(), FLOATS),
    **dict.fromkeys("asinh acosh atanh floor ceil round".split(), FLOATS),
    "(leaky-relu 1/3)": FLOATS,
}

# Of anything that has an order: Python's integers and bools, floats of numpy's, signed residues.
ORDERED: Mapping[str, Callable[..., Any]] = {
    "minimum": lambda a, b: a if a < b else b,
    "maximum": lambda a, b: a if a > b else b,
    "(compare lt)": lambda a, b: a < b,
    "(compare le)": lambda a, b: a <= b,
    "(compare gt)": lambda a, b: a > b,
    "(compare ge)": lambda a, b: a >= b,
    "(compare eq)": lambda a, b: a == b,
    "(compare ne)": lambda a, b: a != b,
    "select": lambda a, b, c: b if a else c,
    "relu": lambda a: a if a > 0 else type(a)(0),
    "abs": lambda a: -a if a < 0 else a,
    "sign": lambda a: (a > 0) - int(a < 0),
    "negative": lambda a: -a,
}
OF_INTEGERS: Mapping[str, Callable[..., Any]] = {
    **ORDERED,
    "elementwise-add": lambda a, b: a + b,
    "elementwise-mul": lambda a, b: a * b,
    "elementwise-div": _cut,
    "subtract": lambda a, b: a - b,
    "pow": _power,
    "(mod floor)": _same_sign_as_divisor,
    "(mod truncate)": lambda a, b: a - b * _cut(a, b) if b else 0,
    "bitwise-and": lambda a, b: a & b,
    "bitwise-or": lambda a, b: a | b,
    "bitwise-xor": lambda a, b: a ^ b,
    "(clip 1 100)": lambda a: sorted((LOW, a, HIGH))[1],
}
OF_BOOLS: Mapping[str, Callable[..., Any]] = {
    **ORDERED,
    "logical-and": lambda a, b: a and b,
    "logical-or": lambda a, b: a or b,
    "logical-not": lambda a: not a,
}
# Of floats, each as a number of numpy's in its dtype: it rounds after each step, and knows inf and nan.
OF_FLOATS: Mapping[str, Callable[..., Any]] = {
    **ORDERED,
    "elementwise-add": lambda a, b: a + b,
    "elementwise-mul": lambda a, b: a * b,
    "elementwise-div": lambda a, b: a / b,
    "subtract": lambda a, b: a - b,
    "pow": lambda a, b: a**b,
    "(mod floor)": lambda a, b: a % b,
    "(mod truncate)": lambda a, b: type(a)(math.fmod(a, b)) if b and math.isfinite(a) else type(a)(math.nan),
    "(clip 1 100)": lambda a: sorted((type(a)(LOW), a, type(a)(HIGH)))[1],
    "(leaky-relu 1/3)": lambda a: a * type(a)(float(LEAKY)) if a < 0 else a,
    **{name: getattr(math, name) for name in "exp tanh erf sin cos tan atan sinh cosh asinh floor ceil".split()},
    **{name: getattr(math, name) for name in "log sqrt asin acos acosh atanh".split()},
    "sigmoid": lambda a: 1 / (1 + math.exp(-float(a))),
    "round": lambda a: round(float(a)),
}


def of_residues(p: int) -> Mapping[str, Callable[..., Any]]:
    """Primitives of signed representatives modulo p, as Python integers; all others are pseudo-random functions."""

    def signed(a: int) -> int:
        return (a + p // 2) % p - p // 2

    def residue(value: Fraction | int) -> int:
        return signed(Fraction(value).numerator * pow(Fraction(value).denominator, -1, p))

    return {
        **ORDERED,
        "elementwise-add": lambda a, b: signed(a + b),
        "elementwise-mul": lambda a, b: signed(a * b),
        "elementwise-div": lambda a, b: signed(a * pow(b, -1, p)) if b else 0,
        "subtract": lambda a, b: signed(a - b),
        "(clip 1 100)": lambda a: sorted((LOW, a, HIGH))[1],
        "(leaky-relu 1/3)": lambda a: signed(a * residue(LEAKY)) if a < 0 else a,
    }
