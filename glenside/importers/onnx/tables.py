"""Tables that are computed before any data are seen, such as weights between elements: they must fit into memory."""

from __future__ import annotations

from math import prod

from glenside.ir.errors import BadInput

ELEMENTS = 1 << 28
"""Of one table: 2 GiB of float64."""


def require_table(what: str, *sizes: int) -> None:
    """Raise BadInput when a table of these sizes is too large."""
    if prod(sizes) > ELEMENTS:
        raise BadInput(f"{what} requires at most {ELEMENTS} elements, got {' x '.join(map(str, sizes))}")
