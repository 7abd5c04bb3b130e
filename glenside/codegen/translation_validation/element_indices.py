"""Converts indices of elements: along axes, in row-major order, and in a layout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glenside.codegen.loop_ir.ir import Layout
from glenside.ir.operand import Array

Places = tuple[Array, ...]
"""An index along each axis of a term: arrays of one shape."""
MOST = 1 << 22
"""Maximum elements evaluated for one statement, or gathered from one operand, at a time."""


class NotSampled(Exception):
    """Raised where sampling would cost too much, or is not possible; the text says why."""


def lies_at(layout: Layout, places: Places) -> Array:
    """Returns the index in its buffer of each element of a term."""
    own: Sequence[Array] = places
    if layout.dims != layout.term.access.dims:
        own = unflattened(flattened(places, layout.term.access.dims), layout.dims)
    moved = [index + offset for index, offset in zip(own, layout.offsets, strict=True)]
    return flattened([moved[axis] for axis in layout.axis_order], layout.sizes)


def flattened(places: Sequence[Array], dims: Sequence[int]) -> Array:
    """Returns flat indices in row-major order."""
    flat: Array = np.zeros(np.shape(places[0]) if len(places) else (), np.int64)
    for index, size in zip(places, dims, strict=True):
        flat = flat * size + index
    return flat


def unflattened(flat: Array, dims: Sequence[int]) -> Places:
    """Returns the indices along axes of flat indices in row-major order."""
    found: list[Array] = []
    for size in reversed(dims):
        flat, index = np.divmod(flat, max(1, size))
        found.append(index)
    return tuple(reversed(found))
