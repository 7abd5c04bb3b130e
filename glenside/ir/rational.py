"""Numbers in a text are exact: "1.5", "-3", "1e-5" and "1/3" stand for rationals, whatever dtype they become later."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

import numpy as np

from glenside.ir.types import FLOATS

# Three digits of exponent: the fraction behind "1e999999999" would not fit into memory.
_NUMBER = re.compile(r"[+-]?(\d+/\d+|(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?)", re.ASCII)


@lru_cache(maxsize=4096)
def exact(text: str) -> Fraction | None:
    """The rational that a text stands for; None when it stands for none (also "inf", "nan" and "1/0")."""
    if len(text) > 1000 or not _NUMBER.fullmatch(text):
        return None
    try:
        return Fraction(text)
    except ZeroDivisionError:
        return None


@lru_cache(maxsize=4096)
def exact_numbers(text: str) -> tuple[Fraction, ...] | None:
    """The rationals that a text of words stands for, such as "1 0 -1/2"; None when one of them stands for none."""
    found = tuple(exact(word) for word in text.split())
    return None if None in found else tuple(value for value in found if value is not None)


def represents(text: str, dtype: str) -> bool:
    """Whether a dtype can hold a number: integers exactly and in range, floats by rounding, but not to infinity."""
    value = exact(text)
    if value is None:
        return False
    if dtype in FLOATS:
        try:
            with np.errstate(over="ignore"):
                return bool(np.isfinite(np.asarray(float(value)).astype(dtype)))
        except OverflowError:
            return False
    lowest, highest = (0, 1) if dtype == "bool" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return value.denominator == 1 and lowest <= value <= highest
