"""Slices of a tensor that are resident for one strip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from glenside.ir.operand import Array


@dataclass(frozen=True, eq=False)
class Cut:
    """The slice of a tensor that is resident for one strip.

    elements   numbers of its elements, (n)
    streaming  flags of the rows of each tile of its reader that stream, (tiles)(m)
    """

    elements: Array
    streaming: Array

    def ends(self, dims: tuple[int, ...], strides: Array, cells: Callable[[], Array]) -> tuple[int, int]:
        """Returns the first and the last cell of its elements, relative to coordinates 0; `cells` returns those of all
        elements.
        """
        box = _box_of(self, dims)
        if box is None:
            part = cells()[self.elements]
            return int(part.min()), int(part.max())
        least, most = (own * strides for own in box)
        return int(np.minimum(least, most).sum()), int(np.maximum(least, most).sum())


@lru_cache(maxsize=1 << 8)
def _box_of(cut: Cut, dims: tuple[int, ...]) -> tuple[Array, Array] | None:
    """Returns the least and greatest coordinates if the elements are exactly the box between them; else None."""
    if not len(cut.elements):
        return None
    there: Array = np.zeros(int(np.prod(dims)), bool)
    ends = list[Array]()
    there[cut.elements] = True
    for size in reversed(dims):  # from the innermost axis on; each step removes one axis
        lines = there.reshape(-1, size)
        ends.insert(0, np.flatnonzero(lines.any(axis=0))[[0, -1]])
        there = np.asarray(lines.any(axis=1))
    least, most = np.array(ends, np.int64).reshape(-1, 2).T
    return (least, most) if np.prod(most - least + 1) == len(cut.elements) else None
