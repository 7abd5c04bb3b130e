"""Computes the addresses of all iterations of an instruction, and reads permutation tables, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa.fields import Address, Counts
from glenside.npu.machine.model import TABLE_ENTRY

Integers = npt.NDArray[np.intp]
ENTRY = np.dtype([("select", "<u2"), ("enable", "<u2"), ("offset", "<i4")])
"""An entry of a permutation table in DRAM."""
OFFSET_BITS = 24
assert ENTRY.itemsize == TABLE_ENTRY


def generated(address: Address, counts: Counts) -> Integers:
    """Returns the address of each iteration, (n), in order."""
    return np.array([address.base]) if counts == (1, 1, 1) else address.base + _steps(address.strides, counts)


@lru_cache(maxsize=1 << 10)
def _steps(strides: Counts, counts: Counts) -> Integers:
    """Returns the addresses relative to the base. Memoized: most instructions differ in the base alone."""
    found: Integers = np.zeros(1, np.intp)
    for n, stride in zip(counts[::-1], strides[::-1], strict=True):
        if n > 1:
            found = (found[:, None] + np.arange(n) * stride).reshape(-1)
    found.flags.writeable = False
    return found


def reach(address: Address, counts: Counts) -> tuple[int, int]:
    """Returns the least and the greatest address of all iterations."""
    least = most = address.base
    for n, stride in zip(counts, address.strides, strict=True):
        if stride < 0:
            least += (n - 1) * stride
        else:
            most += (n - 1) * stride
    return least, most


def encoded(select: npt.ArrayLike, enable: npt.ArrayLike, offset: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Returns a permutation table's bytes in DRAM, from the select, enable and offset of each entry, (entries) each."""
    entries = np.zeros(np.broadcast_shapes(np.shape(select), np.shape(enable), np.shape(offset)), ENTRY)
    entries["select"], entries["enable"], entries["offset"] = select, enable, offset
    return entries.reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class Table:
    """The enabled entries of a permutation table, or of several tables concatenated.

    lanes   index of each enabled entry, ascending within a table: a bank, a column, or a byte of a beat
    select  index of the source that each entry takes
    offset  what each entry adds to the address
    which   index of the table that each entry is of
    """

    lanes: Integers
    select: Integers
    offset: Integers
    which: Integers

    @staticmethod
    def of(entries: npt.NDArray[np.void], used: int) -> Table:
        """Builds a table from the first `used` entries."""
        own = entries[:used]
        lanes = np.flatnonzero(own["enable"] & 1)
        select, offset = own["select"][lanes].astype(np.intp), own["offset"][lanes].astype(np.intp)
        return Table(lanes, select, offset, np.zeros(len(lanes), np.intp))

    @staticmethod
    def joined(tables: Sequence[Table]) -> Table:
        """Concatenates tables."""
        lanes = np.concatenate([own.lanes for own in tables])
        select, offset = (np.concatenate([getattr(own, name) for own in tables]) for name in ("select", "offset"))
        return Table(lanes, select, offset, np.repeat(np.arange(len(tables)), [len(own.lanes) for own in tables]))

    @cached_property
    def offsets(self) -> tuple[int, int]:
        """Returns the least and the greatest offset; (0, 0) for a table without enabled entries."""
        return (int(self.offset.min()), int(self.offset.max())) if self.offset.size else (0, 0)

    @cached_property
    def most_select(self) -> int:
        """Returns the greatest `select`; -1 for a table without enabled entries."""
        return int(self.select.max(initial=-1))

    def require_selects(self, most: int, what: str) -> None:
        """Checks that each `select` is below `most`; `what` names a source. Raises BadInput otherwise."""
        if self.most_select >= most:
            worst = int(self.select.argmax())
            own = f"table {self.which[worst]} behind its first" if self.which[worst] else "its table"
            raise BadInput(f"entry {self.lanes[worst]} of {own} selects {what} {self.select[worst]}; there are {most}")


def decoded(content: npt.NDArray[np.uint8], entries: int) -> npt.NDArray[np.void]:
    """Decodes a permutation table's entries from its bytes. Raises BadInput for an offset of too many bits."""
    found = content[: entries * TABLE_ENTRY].view(ENTRY)
    most = 1 << OFFSET_BITS - 1
    bad = (found["offset"] < -most) | (found["offset"] >= most)
    if bad.any():
        worst = int(bad.argmax())
        raise BadInput(f"offset {found['offset'][worst]:,} of entry {worst} does not fit {OFFSET_BITS} bits")
    return found
