"""Compares the least memory that a check needs with the free memory, before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from glenside.ir.dtypes import REALS, RECORDS
from glenside.ir.operator import OperatorKind
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType, Tensor


def least_bytes(tensors: Iterable[Tensor], width: int, *roots: Term) -> int:
    """Returns a lower bound of the bytes for evaluating the terms: every tensor and the largest computed result.

    width  bytes of a float
    """

    def bytes_of(size: int, dtype: str) -> int:
        return size * (width if dtype in REALS else RECORDS[dtype].numpy.itemsize)

    computed = (term for term in postorder(*roots) if term.operator.kind in _NEW and isinstance(term.type, AccessType))
    largest = max((bytes_of(term.access.size, term.access.dtype) for term in computed), default=0)
    return sum(bytes_of(tensor.dims.product(), tensor.dtype) for tensor in tensors) + largest


_NEW = (OperatorKind.COMPUTE, OperatorKind.INSTRUCTION)


def available_bytes() -> int | None:
    """Returns the bytes available without swapping; None if the system does not report them."""
    with suppress(OSError, ValueError, StopIteration), open("/proc/meminfo", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
        return int(line.split()[1]) << 10
    return None


def shortage(needed: int) -> str:
    """Returns the sentence that memory does not suffice, or ""."""
    available = available_bytes()
    if available is None or needed <= available:
        return ""
    return f"it takes {needed / 1e9:,.1f} GB of memory at least, and {available / 1e9:,.1f} GB are free"
