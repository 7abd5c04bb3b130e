"""Tables that are computed before any data are seen, such as weights between elements: they must fit into memory."""

from __future__ import annotations

from math import prod

from glenside.ir.errors import BadInput

ELEMENTS = 1 << 24
"""Of one table: 128 MiB of float64, and some of them are needed at once."""


def require_table(what: str, *sizes: int, most: int = ELEMENTS) -> None:
    """Raise BadInput when a table of these sizes is too large."""
    if prod(sizes) > most:
        raise BadInput(f"{what} requires at most {most} elements, got {' x '.join(map(str, sizes))}")
