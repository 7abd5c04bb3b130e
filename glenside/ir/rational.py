"""Numbers as texts write them: exact ones, and amounts of memory.

"1.5", "-3", "1e-5" and "1/3" stand for rationals, whatever dtype they become later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from glenside.ir.dtypes import REALS, STORED, limits
from glenside.ir.errors import BadInput

# Three digits of exponent: the fraction behind "1e999999999" would not fit into memory.
_NUMBER = re.compile(r"[+-]?(\d+/\d+|(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?)", re.ASCII)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


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
def one_minus(text: str) -> str:
    """Return 1 - x of the text of an exact number x."""
    number = exact(text)
    assert number is not None, "checked when it was given"
    return str(1 - number)


def exact_numbers(text: str) -> tuple[Fraction, ...] | None:
    """The rationals that a text of words stands for, such as "1 0 -1/2"; None when one of them stands for none."""
    found = tuple(exact(word) for word in text.split())
    return None if None in found else tuple(value for value in found if value is not None)


def over_one_denominator(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """Fractions as whole numbers, and what each is divided by."""
    denominator = math.lcm(*[v.denominator for v in values])
    return [int(v * denominator) for v in values], denominator


def represents(text: str, dtype: str) -> bool:
    """Whether a dtype can hold a number: integers exactly and in range, floats by rounding, but not to infinity, and
    floats that are only stored exactly.
    """
    value = exact(text)
    if value is None:
        return False
    if dtype in REALS:
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                held = float(np.asarray(float(value)).astype(dtype))
        except OverflowError:
            return False
        return math.isfinite(held) and (dtype not in STORED or Fraction(held) == value)
    lowest, highest = limits(dtype)
    return value.denominator == 1 and lowest <= value <= highest


def byte_count(text: str, what: str) -> int:
    """`8MB`, `512KiB`, `1.5GB` or a number of bytes -> bytes; K is 1024. Raises BadInput, naming what it is for."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*(?:([KMG])?i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise BadInput(f"{what} is written as 500MB or 2GB, got {text!r}")
    return int(float(match[1]) * (1 << _UNITS[(match[2] or "").upper()]))
