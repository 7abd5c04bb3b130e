"""Which elements of a buffer are written: as boxes, while those say it, else one by one."""

from __future__ import annotations

from math import prod

import numpy as np

from glenside.codegen.loop_ir.footprints import Footprint, footprint_of
from glenside.codegen.loop_ir.index_boxes import Box, contains, is_apart
from glenside.ir.operand import Array

_MOST = 64
"""Boxes of a buffer that are kept as such."""


class Written:
    """What is written of a buffer of some elements."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes: dict[Box, None] = {}
        self._mask: Array | None = None
        self._whole: bool | None = not size

    def clear(self) -> None:
        """Nothing is written any more."""
        self.boxes, self._mask, self._whole = {}, None, not self.size

    def fill(self) -> None:
        """All of it is written."""
        self.boxes, self._mask, self._whole = {}, None, True

    def add(self, box: Box) -> None:
        """The places of a box are written, all of which the buffer has."""
        if self._whole:
            return
        if self._mask is not None:
            footprint_of(box).mark(self._mask)
        elif not any(contains(other, box) for other in self.boxes):
            self.boxes = {other: None for other in self.boxes if not contains(box, other)} | {box: None}
            if len(self.boxes) > _MOST:
                self.mask()
        self._whole = None

    def add_places(self, places: Footprint) -> None:
        """The same of a footprint."""
        if not self._whole:
            places.mark(self.mask())
            self._whole = None

    @property
    def state(self) -> object:
        """What distinguishes it from others of that size; None where its elements do."""
        return True if self.is_whole else frozenset(self.boxes) if self._mask is None else None

    @property
    def is_whole(self) -> bool:
        """Whether each element is written."""
        if self._whole is None:
            known = self._mask is None
            self._whole = (known and self._is_tiled()) or (not (known and self._is_less()) and bool(self.mask().all()))
            if self._whole:
                self.fill()
        return self._whole

    def _is_less(self) -> bool:
        """Whether its boxes have fewer places than there are, however they lie."""
        return sum(prod(count for _, count in box.steps) for box in self.boxes) < self.size

    def _is_tiled(self) -> bool:
        """Whether its boxes lie apart and have as many places as there are."""
        boxes = list(self.boxes)
        sizes = [box.size for box in boxes]
        if None in sizes or sum(size or 0 for size in sizes) != self.size:
            return False
        return all(is_apart(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])

    def covers(self, box: Box) -> bool:
        """Whether each place of a box is written, as far as boxes say."""
        return self.is_whole or any(contains(other, box) for other in self.boxes)

    def mask(self) -> Array:
        """Whether each element is written: an array that is changed with it."""
        if self._mask is None:
            self._mask = np.full(self.size, bool(self._whole))
            for box in self.boxes:
                footprint_of(box).mark(self._mask)
            self.boxes = {}
        return self._mask
