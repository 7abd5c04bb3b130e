"""Address generators and lane tables as arrays: where every iteration of an instruction reads and writes."""

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
"""An entry of a lane table in DRAM."""
OFFSET_BITS = 24
assert ENTRY.itemsize == TABLE_ENTRY


def generated(address: Address, counts: Counts) -> Integers:
    """The address of every iteration (n), in order."""
    return np.array([address.base]) if counts == (1, 1, 1) else address.base + _steps(address.strides, counts)


@lru_cache(maxsize=1 << 10)
def _steps(strides: Counts, counts: Counts) -> Integers:
    """The same from 0 on: most instructions go as others do, from somewhere else."""
    found: Integers = np.zeros(1, np.intp)
    for n, stride in zip(counts[::-1], strides[::-1], strict=True):
        if n > 1:
            found = (found[:, None] + np.arange(n) * stride).reshape(-1)
    found.flags.writeable = False
    return found


def reach(address: Address, counts: Counts) -> tuple[int, int]:
    """The least and the greatest address of all iterations."""
    least = most = address.base
    for n, stride in zip(counts, address.strides, strict=True):
        if stride < 0:
            least += (n - 1) * stride
        else:
            most += (n - 1) * stride
    return least, most


def encoded(select: npt.ArrayLike, enable: npt.ArrayLike, offset: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """The bytes of a lane table as DRAM holds it, of its entries' selects, enables and offsets, (entries) each."""
    entries = np.zeros(np.broadcast_shapes(np.shape(select), np.shape(enable), np.shape(offset)), ENTRY)
    entries["select"], entries["enable"], entries["offset"] = select, enable, offset
    return entries.reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class Table:
    """A lane table: which lanes (or bytes of a beat) take part, what each takes, and how far from the address; or
    several, one behind the other.
    """

    lanes: Integers
    """The enabled ones, in order."""
    select: Integers
    offset: Integers
    which: Integers
    """Of which of the tables each entry is."""

    @staticmethod
    def of(entries: npt.NDArray[np.void], used: int) -> Table:
        """The table of the first `used` entries."""
        own = entries[:used]
        lanes = np.flatnonzero(own["enable"] & 1)
        select, offset = own["select"][lanes].astype(np.intp), own["offset"][lanes].astype(np.intp)
        return Table(lanes, select, offset, np.zeros(len(lanes), np.intp))

    @staticmethod
    def joined(tables: Sequence[Table]) -> Table:
        """Several as one."""
        lanes = np.concatenate([own.lanes for own in tables])
        select, offset = (np.concatenate([getattr(own, name) for own in tables]) for name in ("select", "offset"))
        return Table(lanes, select, offset, np.repeat(np.arange(len(tables)), [len(own.lanes) for own in tables]))

    @cached_property
    def offsets(self) -> tuple[int, int]:
        """The least offset of its entries and the greatest; (0, 0) where there are none."""
        return (int(self.offset.min()), int(self.offset.max())) if self.offset.size else (0, 0)

    @cached_property
    def most_select(self) -> int:
        """The greatest place that an entry takes from; -1 where there are none."""
        return int(self.select.max(initial=-1))

    def require_selects(self, most: int, what: str) -> None:
        """Raises BadInput: an enabled entry selects what is not there."""
        if self.most_select >= most:
            worst = int(self.select.argmax())
            own = f"table {self.which[worst]} behind its first" if self.which[worst] else "its table"
            raise BadInput(
                f"entry {self.lanes[worst]} of {own} selects {what} {self.select[worst]}, of {most} there are"
            )


def decoded(content: npt.NDArray[np.uint8], entries: int) -> npt.NDArray[np.void]:
    """The entries of a lane table from its bytes. Raises BadInput: an offset that has more bits than there are."""
    found = content[: entries * TABLE_ENTRY].view(ENTRY)
    most = 1 << OFFSET_BITS - 1
    bad = (found["offset"] < -most) | (found["offset"] >= most)
    if bad.any():
        worst = int(bad.argmax())
        raise BadInput(f"offset {found['offset'][worst]:,} of entry {worst} is not of {OFFSET_BITS} bits")
    return found
