"""Parses exact numbers and amounts of memory from text.

"1.5", "-3", "1e-5" and "1/3" denote rationals, whatever dtype they become later.
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
from glenside.ir.open_integer import OpenFraction, OpenText

# Three digits of exponent: the fraction of "1e999999999" would not fit into memory.
_NUMBER = re.compile(r"[+-]?(\d+/\d+|(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?)", re.ASCII)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


@lru_cache(maxsize=4096)
def exact(text: str) -> Fraction | None:
    """Returns the rational that a text denotes, or None (also for "inf", "nan" and "1/0")."""
    if isinstance(text, OpenText):
        return OpenFraction(text.integer)
    if len(text) > 1000 or not _NUMBER.fullmatch(text):
        return None
    try:
        return Fraction(text)
    except ZeroDivisionError:
        return None


@lru_cache(maxsize=4096)
def one_minus(text: str) -> str:
    """Returns 1 - x for the text of an exact number x."""
    number = exact(text)
    assert number is not None, "checked when it was given"
    return str(1 - number)


def exact_numbers(text: str) -> tuple[Fraction, ...] | None:
    """Returns the rationals of a text of words, such as "1 0 -1/2"; None if a word is not a number."""
    found = tuple(exact(word) for word in text.split())
    return None if None in found else tuple(value for value in found if value is not None)


def over_one_denominator(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """Returns fractions as integers over one common denominator."""
    denominator = math.lcm(*[v.denominator for v in values])
    return [int(v * denominator) for v in values], denominator


def represents(text: str, dtype: str) -> bool:
    """True if a dtype can hold a number.

    Integers must be exact and in range. Floats may be rounded, but not to infinity; floats that are only stored must be
    exact.
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
    """Parses `8MB`, `512KiB`, `1.5GB` or a number of bytes; K is 1024. Raises BadInput, naming the purpose `what`."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*(?:([KMG])?i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise BadInput(f"{what} is written as 500MB or 2GB, got {text!r}")
    return int(float(match[1]) * (1 << _UNITS[(match[2] or "").upper()]))
