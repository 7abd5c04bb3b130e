"""What an operator sends for operands of which some are secret, but for products of matrices: see `pricing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glenside.ir.rational import exact_numbers
from glenside.ir.types import AccessType
from glenside.secure.semi2k import NOTHING, Semi2k, Traffic


def _fractional_rows(coefficients: str, rows: int) -> int:
    """How many rows of a linear map need a product."""
    values = exact_numbers(coefficients) or ()
    count = len(values) // max(rows, 1)
    return sum(any(v.denominator != 1 for v in values[i * count : (i + 1) * count]) for i in range(rows))


def node_traffic(
    protocol: Semi2k,
    operator: str,
    attributes: Sequence[Any],
    operands: Sequence[AccessType],
    secret: Sequence[bool],
    own: AccessType,
) -> Traffic | None:
    """What one party sends for an operator whose result is secret; None where there is no exact formula."""
    if operator == "linear-map":
        axis, rows, coefficients = attributes
        return protocol.truncation(_fractional_rows(coefficients, rows) * (own.size // max(1, own.dims[axis])))
    if operator == "compute" and attributes[0] != "elementwise-add":
        return None
    return NOTHING
