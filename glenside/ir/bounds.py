"""Defines the bounds of input from outside, and checks numbers against them."""

from __future__ import annotations

import math
import re

from glenside.ir.errors import BadInput
from glenside.ir.names import shortened

LARGEST = 2**63 - 1
"""The size of an axis, and the number of elements of a tensor: e-graphs count in int64."""
MOST_MACS = 1 << 53
"""Multiply-adds of a layer: cycles and bytes of all its mappings still fit into 64 bits."""
MOST_COUNT = 2**31 - 1
"""Counts that are not sizes: rows of a tile, seeds."""
MOST_FACTOR = 1e6
"""A ratio."""
MOST_TAPS = 64
"""m + r - 1 of Winograd's F(m, r): each increment doubles the entries of its matrices."""
MOST_NODES = 100_000
"""Nodes of one ONNX model, counting functions and loops at each use: a small file can expand to any number."""
TEXT_BYTES = 1 << 30
"""Bytes of a text file."""
_DIGITS = re.compile(r"-?[0-9]{1,20}")


def is_whole(given: object) -> bool:
    """True for an integer, also one of numpy; bool is none."""
    return hasattr(given, "__index__") and not isinstance(given, bool)


def whole(what: str, given: str | int, least: int = 0, most: int = LARGEST) -> int:
    """Returns an integer within its bounds, given as a number or as digits; bool is refused. Raises BadInput."""
    if is_whole(given) or (isinstance(given, str) and _DIGITS.fullmatch(given)):
        value = int(given)
        if least <= value <= most:
            return value
    raise BadInput(f"{what} is a whole number from {least} to {most}, got {shortened(str(given))}")


def number(what: str, given: float, least: float = 0.0, most: float = MOST_FACTOR) -> float:
    """Returns a number within its bounds; nan is refused. Raises BadInput."""
    if math.isfinite(given) and least <= given <= most:
        return given
    raise BadInput(f"{what} is a number from {least:g} to {most:g}, got {given}")
