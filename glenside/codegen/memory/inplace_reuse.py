"""In-place reuse: a nest may overwrite an operand whose live range ends there.

Each element must be read in the step, and before the statement, that overwrites it, and must be stored once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from glenside.codegen.loop_ir.accesses import Access, accesses
from glenside.codegen.loop_ir.footprints import footprint
from glenside.codegen.loop_ir.ir import Buffer, Nest, Statement


def overwritten(nests: Sequence[Nest], lives: Mapping[Buffer, tuple[int, int]]) -> dict[Buffer, Buffer]:
    """Returns buffer -> an operand that it may overwrite: the first whose live range ends in its first nest.

    Each operand is overwritten by at most one buffer.
    """
    found: dict[Buffer, Buffer] = {}
    taken: set[Buffer] = set()
    for buffer, (first, _) in lives.items():
        body = nests[first].body
        for other, (_, last) in lives.items():
            if last == first and other not in taken and may_overwrite(body, buffer, other):
                found[buffer] = other
                taken.add(other)
                break
    return found


def may_overwrite(body: Sequence[Statement], buffer: Buffer, other: Buffer) -> bool:
    """True if statements may store `buffer` in the memory of `other`, which they read."""
    if buffer == other or (buffer.dtype, buffer.dims.product()) != (other.dtype, other.dims.product()):
        return False
    found = list(accesses(body))
    own = [access for access in found if access.buffer == buffer]
    reads = [access for access in found if access.buffer == other]
    if not own or not reads or not all(a.writes for a in own) or any(a.writes for a in reads):
        return False
    return all(any(_is_before(read, write) for write in own) for read in reads) and _is_once(own, buffer)


def _is_before(read: Access, write: Access) -> bool:
    """True if each step of the same loops reads an element and then stores to its index."""
    same = read.place == write.place and not read.picked and read.count == 1
    return same and read.loops == write.loops and read.path[:-2] == write.path[:-2] and read.path < write.path


def _is_once(writes: Sequence[Access], buffer: Buffer) -> bool:
    """True if each element is provably stored exactly once: as many steps as elements, and all are covered."""
    if any(write.conditions or write.picked or write.count != 1 or not write.sure for write in writes):
        return False
    steps = sum(prod(axis.size for axis in write.axes) for write in writes)
    size = buffer.dims.product()
    mask = np.zeros(size if steps == size else 0, bool)
    for write in writes if mask.size else ():
        here = footprint(write, {}, {})
        if not here.exact or here.is_empty:
            return False
        here.mark(mask)
    return bool(mask.size and mask.all())
