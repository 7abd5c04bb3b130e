"""Defines requirements that several operators share, each with its message."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.ir.bounds import is_whole
from glenside.ir.dtypes import DTYPES, FLOATS
from glenside.ir.operator import require
from glenside.ir.rational import exact, exact_numbers, represents
from glenside.ir.scalar import require_computed
from glenside.ir.types import AccessType


def spelled(sizes: Sequence[int]) -> str:
    """Spells sizes as the text format does: (2 3)."""
    return f"({' '.join(map(str, sizes))})"


def require_axis(operator: str, axis: int, rank: int) -> None:
    """Requires an axis of a."""
    require(0 <= axis < rank, operator, f"0 <= axis < {rank}", axis)


def require_order(operator: str, order: Sequence[int], count: int, what: str) -> None:
    """Requires each of `count` axes or parts exactly once in the order."""
    require(sorted(order) == list(range(count)), operator, f"an order of {count} {what}", spelled(order))


def require_sizes(operator: str, what: str, sizes: Sequence[int], least: int = 0) -> None:
    """Requires sizes of at least `least`."""
    require(all(is_whole(n) and n >= least for n in sizes), operator, f"{what} of at least {least}", spelled(sizes))


def require_dtype(operator: str, dtype: str) -> None:
    """Requires a dtype of the language."""
    require(dtype in DTYPES, operator, f"a dtype ({', '.join(DTYPES)})", dtype)


def require_value(operator: str, value: str, dtype: str) -> None:
    """Requires a dtype and an exact number that it can hold."""
    require_dtype(operator, dtype)
    require(exact(value) is not None, operator, "an exact number, such as -2, 1.5, 1e-5 or 1/3", value)
    require(represents(value, dtype), operator, f"a value that {dtype} can hold", value)


def require_values(operator: str, values: str, count: int, dtype: str) -> None:
    """Requires a dtype and `count` exact numbers that it can hold."""
    require_dtype(operator, dtype)
    found = exact_numbers(values)
    require(found is not None, operator, "exact numbers, such as 1 0 -1/2", values)
    have = len(values.split())
    require(have == count, operator, f"{count} numbers", have)
    unfit = next((v for v in values.split() if not represents(v, dtype)), None)
    require(unfit is None, operator, f"values that {dtype} can hold", unfit)


def require_number(operator: str, a: AccessType) -> None:
    """Requires elements that are numbers in a dtype that is computed in, not bool."""
    require_computed(operator, a.dtype, a)
    require(a.dtype != "bool", operator, "numbers", a)


def require_float(operator: str, a: AccessType) -> None:
    """Requires a float dtype that is computed in."""
    require_computed(operator, a.dtype, a)
    require(a.dtype in FLOATS, operator, f"a float dtype ({', '.join(FLOATS)})", a)


def require_elements(operator: str, a: AccessType) -> None:
    """Requires items that are not empty."""
    require(a.item.product() > 0, operator, "an item of at least one element", a)
