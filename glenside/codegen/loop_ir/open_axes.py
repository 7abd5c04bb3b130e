"""Marks axes whose sizes depend on open sizes of a program: their loops must have one structure for all sizes."""

from __future__ import annotations

from glenside.codegen.loop_ir.ir import Buffer, For, Statement
from glenside.codegen.processor.model import Machine
from glenside.ir.index_map import Axis
from glenside.ir.open_integer import OpenInteger

_OF_L1 = 4
"""Buffers of open size count as this many times L1."""


def is_open(size: int) -> bool:
    """True if a size depends on open sizes."""
    return isinstance(size, OpenInteger)


def has_open_axis(statement: Statement) -> bool:
    """True if the size of a loop depends on open sizes."""
    return isinstance(statement, For) and (statement.axis.limit > 0 or any(map(has_open_axis, statement.body)))


def axis_of(number: int, size: int) -> Axis:
    """Returns an axis, marked if its size depends on open sizes."""
    return Axis(number, size, int(is_open(size)))


def at_least(size: int, least: int) -> int:
    """Returns 1 if a size is at least a number, else 0."""
    times = size // least
    return 2 * times // (times + 1)


def bytes_assumed(buffer: Buffer, machine: Machine) -> int:
    """Returns the bytes of a buffer for decisions about schedules: more than L1, less than L2, if its size is open."""
    return _OF_L1 * machine.l1 if is_open(buffer.dims.product()) else buffer.bytes
