"""The set of written elements of a buffer: as boxes while these suffice, else as a mask."""

from __future__ import annotations

from math import prod

import numpy as np

from glenside.codegen.loop_ir.footprints import Footprint, footprint_of
from glenside.codegen.loop_ir.index_boxes import Box, contains, is_apart
from glenside.ir.operand import Array

_MAX_BOXES = 64
"""Maximum boxes of a buffer; more become a mask."""


class Written:
    """The written elements of a buffer of `size` elements."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes: dict[Box, None] = {}
        self._mask: Array | None = None
        self._whole: bool | None = not size

    def clear(self) -> None:
        """Marks all elements as not written."""
        self.boxes, self._mask, self._whole = {}, None, not self.size

    def fill(self) -> None:
        """Marks all elements as written."""
        self.boxes, self._mask, self._whole = {}, None, True

    def add(self, box: Box) -> None:
        """Marks the elements of a box, which is within the buffer, as written."""
        if self._whole:
            return
        if self._mask is not None:
            footprint_of(box).mark(self._mask)
        elif not any(contains(other, box) for other in self.boxes):
            self.boxes = {other: None for other in self.boxes if not contains(box, other)} | {box: None}
            if len(self.boxes) > _MAX_BOXES:
                self.mask()
        self._whole = None

    def add_places(self, places: Footprint) -> None:
        """Marks the elements of a footprint as written."""
        if not self._whole:
            places.mark(self.mask())
            self._whole = None

    @property
    def state(self) -> object:
        """A key that is equal for equal sets of this size; None if the set is a mask."""
        return True if self.is_whole else frozenset(self.boxes) if self._mask is None else None

    @property
    def is_whole(self) -> bool:
        """True if each element is written."""
        if self._whole is None:
            known = self._mask is None
            self._whole = (known and self._is_tiled()) or (not (known and self._is_less()) and bool(self.mask().all()))
            if self._whole:
                self.fill()
        return self._whole

    def _is_less(self) -> bool:
        """True if all boxes together have fewer elements than the buffer."""
        return sum(prod(count for _, count in box.steps) for box in self.boxes) < self.size

    def _is_tiled(self) -> bool:
        """True if the boxes are disjoint and together have as many elements as the buffer."""
        boxes = list(self.boxes)
        sizes = [box.size for box in boxes]
        if None in sizes or sum(size or 0 for size in sizes) != self.size:
            return False
        return all(is_apart(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])

    def covers(self, box: Box) -> bool:
        """True if one written box contains this box; False does not mean that an element is missing."""
        return self.is_whole or any(contains(other, box) for other in self.boxes)

    def mask(self) -> Array:
        """Returns the mask of written elements, which later writes change in place."""
        if self._mask is None:
            self._mask = np.full(self.size, bool(self._whole))
            for box in self.boxes:
                footprint_of(box).mark(self._mask)
            self.boxes = {}
        return self._mask
