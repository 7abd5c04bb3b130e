"""Amounts of memory as people write them."""

from __future__ import annotations

import re

from glenside.ir.errors import BadInput

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


def byte_count(text: str, what: str) -> int:
    """`8MB`, `512KiB`, `1.5GB` or a number of bytes -> bytes; K is 1024. Raises BadInput, naming what it is for."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*(?:([KMG])?i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise BadInput(f"{what} is written as 500MB or 2GB, got {text!r}")
    return int(float(match[1]) * (1 << _UNITS[(match[2] or "").upper()]))
