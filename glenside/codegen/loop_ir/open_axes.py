"""Marks axes whose sizes depend on open sizes of a program: their loops must have one structure for all sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from glenside.codegen.loop_ir.ir import Buffer, For, Statement
from glenside.codegen.processor.model import Machine
from glenside.ir.index_map import Axis

_OF_L1 = 4
"""Buffers of open size count as this many times L1."""
_OPEN: ContextVar[tuple[int, ...]] = ContextVar("open sizes", default=())


@contextmanager
def open_sizes(sizes: Collection[int]) -> Iterator[None]:
    """Marks the axes that are made meanwhile whose size is a multiple of one of these sizes."""
    token = _OPEN.set(tuple(sizes))
    try:
        yield
    finally:
        _OPEN.reset(token)


def open_now() -> tuple[int, ...]:
    """Returns the open sizes."""
    return _OPEN.get()


def is_open(size: int) -> bool:
    """True if a size depends on open sizes."""
    return any(size and size % n == 0 for n in _OPEN.get())


def has_open_axis(statement: Statement) -> bool:
    """True if the size of a loop depends on open sizes."""
    return isinstance(statement, For) and (statement.axis.limit > 0 or any(map(has_open_axis, statement.body)))


def axis_of(number: int, size: int) -> Axis:
    """Returns an axis, marked if its size depends on open sizes."""
    return Axis(number, size, int(is_open(size)))


def bytes_assumed(buffer: Buffer, machine: Machine) -> int:
    """Returns the bytes of a buffer for decisions about schedules: more than L1, less than L2, if its size is open."""
    return _OF_L1 * machine.l1 if is_open(buffer.dims.product()) else buffer.bytes
