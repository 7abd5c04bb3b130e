"""What is taken from outside at most: one place that knows the bounds and says them."""

from __future__ import annotations

import math
import re

from glenside.ir.errors import BadInput
from glenside.ir.names import shortened

LARGEST = 2**63 - 1
"""The size of an axis, and the elements of a tensor: what an e-graph counts with."""
MOST_MACS = 1 << 53
"""Multiply-adds of a layer: cycles and bytes of all its mappings still fit into 64 bits."""
MOST_COUNT = 2**31 - 1
"""Anything that is counted and is no size: rows of a tile, seeds."""
MOST_FACTOR = 1e6
"""A ratio of two things."""
MOST_TAPS = 64
"""m + r - 1 of Winograd's F(m, r): the numbers of its matrices double with each."""
MOST_NODES = 100_000
"""Nodes of one ONNX model, those of functions and loops counted each time: a small file can ask for any number."""
TEXT_BYTES = 1 << 30
"""A text file."""
_DIGITS = re.compile(r"-?[0-9]{1,20}")


def whole(what: str, given: str | int, least: int = 0, most: int = LARGEST) -> int:
    """A whole number within its bounds, or its digits; no truth value. Raises BadInput."""
    is_number = hasattr(given, "__index__") and not isinstance(given, bool)
    if is_number or (isinstance(given, str) and _DIGITS.fullmatch(given)):
        value = int(given)
        if least <= value <= most:
            return value
    raise BadInput(f"{what} is a whole number from {least} to {most}, got {shortened(str(given))}")


def number(what: str, given: float, least: float = 0.0, most: float = MOST_FACTOR) -> float:
    """A number within its bounds, no nan. Raises BadInput."""
    if math.isfinite(given) and least <= given <= most:
        return given
    raise BadInput(f"{what} is a number from {least:g} to {most:g}, got {given}")
