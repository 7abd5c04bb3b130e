"""Represents the value of a term as moved integers, scaled, shifted, clipped and rounded elementwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from glenside.analysis.element_sources import places
from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build
from glenside.quantization.values import BYTES, Bytes, Leaf, Moved, Product, joined, moved_numbers, narrow, pulled_back

_MANY = 1 << 13
_NEAR = 2e-3
"""The part of a byte's step that rounding a bias may change."""


def one_number(value: float) -> Array:
    """Returns a number for all elements, ()."""
    return np.asarray(value, np.float64)


@dataclass(frozen=True, eq=False)
class Affine:
    """clip((integers + shift) * scale, low, high), rounded if `offset` is a number, which is added afterwards.

    Numbers are float64, and broadcast to the dims of the integers. Bytes, as the program stores them, are the sum of
    integer and shift modulo 256.
    """

    moved: Moved
    dtype: str
    shift: Array = field(default_factory=partial(one_number, 0))
    scale: Array = field(default_factory=partial(one_number, 1))
    low: Array = field(default_factory=partial(one_number, -np.inf))
    high: Array = field(default_factory=partial(one_number, np.inf))
    offset: float | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        return self.moved.dims

    @property
    def products(self) -> list[Product]:
        return [leaf for leaf in self.moved.leaves.values() if isinstance(leaf, Product)]

    @property
    def bytes(self) -> list[Bytes]:
        return [leaf for leaf in self.moved.leaves.values() if isinstance(leaf, Bytes)]

    @property
    def whole(self) -> bool:
        """True if it is integers of the network plus one number for all of them."""
        return self.integral and self.shift.ndim == 0 and self.fits

    @property
    def integral(self) -> bool:
        """True if it is bytes plus integers; it may be clipped to integers."""
        alone = len(self.bytes) == len(self.moved.leaves) and self.scale.ndim == 0 and self.offset is None
        return bool(alone and self.scale == 1 and (self.shift == np.rint(self.shift)).all())

    @property
    def fits(self) -> bool:
        """True if nothing is clipped."""
        least, most = self.ends
        return bool(self.low.max() <= least and self.high.min() >= most)

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds before clipping."""
        if len(self.bytes) != len(self.moved.leaves):
            return -np.inf, np.inf
        zero = [0] * self.moved.filled
        least = min([leaf.low - leaf.zero for leaf in self.bytes] + zero)
        most = max([leaf.high - leaf.zero for leaf in self.bytes] + zero)
        every = [(end + self.shift) * self.scale for end in (least, most)]
        return float(min(map(np.min, every))), float(max(map(np.max, every)))

    def around(self) -> Array | None:
        """The values of filled zeros among sums, or numbers of an input, and 0 elsewhere; None if that is 0
        everywhere.
        """
        if not self.moved.filled or self.bytes or not self.shift.any():
            return None
        zeros = places(self.moved.term).numbers == 0
        found = np.where(zeros, np.clip(self.shift * self.scale, self.low, self.high), 0)
        return found if found.any() else None

    def plus(self, by: Array) -> Affine:
        """Adds a constant."""
        if self.dtype in BYTES or self.offset is not None:
            if by.ndim or by != np.rint(by):
                raise BadInput("an addition to integers of 8 bits requires one integer")
            if self.offset is not None:
                return replace(self, offset=self.offset + float(by))
            return replace(self, shift=self.shift + by)
        return replace(
            self, shift=narrow(self.shift + by / self.scale), low=narrow(self.low + by), high=narrow(self.high + by)
        )

    def times(self, by: Array) -> Affine:
        """Multiplies by a constant."""
        if not (np.isfinite(by).all() and by.all()):
            raise BadInput("a factor of sums requires a finite number other than 0")
        if self.dtype in BYTES or self.offset is not None:
            raise BadInput("rounded integers cannot be multiplied")
        ends = self.low * by, self.high * by
        low, high = np.where(by < 0, ends[1], ends[0]), np.where(by < 0, ends[0], ends[1])
        return replace(self, scale=narrow(self.scale * by), low=narrow(low), high=narrow(high))

    def between(self, low: Array, high: Array) -> Affine:
        """Clips."""
        own = 0 if self.offset is None else self.offset
        least, most = (np.clip(end, low - own, high - own) for end in (self.low, self.high))
        found = replace(self, low=narrow(np.asarray(least)), high=narrow(np.asarray(most)))
        return self if self.offset is None and found.fits else found

    def rounded(self) -> Affine:
        """Rounds to the nearest integers, ties to even."""
        if self.offset is not None or self.whole:
            return self
        return replace(self, low=np.rint(self.low), high=np.rint(self.high), offset=0.0)

    def with_nearest_bias(self, least: int, most: int) -> Affine:
        """Moves a part of the shift after rounding if the rest is then closer to integers.

        That part is a zero point that was added before rounding. The part after rounding stays between two numbers.
        """
        if self.offset is None or self.moved.filled or max(self.shift.size, self.scale.size) > _MANY:
            return self

        def off(by: Sequence[int]) -> list[float]:
            """Returns the distance of the rest from integers, for each part."""
            shift = self.shift - np.reshape(by, (-1, *[1] * max(self.shift.ndim, self.scale.ndim))) / self.scale
            return [*map(float, np.abs((shift - np.rint(shift)) * self.scale).reshape(len(by), -1).max(1))]

        own = round(self.offset)
        (as_it_is,) = off([0])
        if as_it_is < _NEAR or not least <= own <= most:
            return self
        parts = [*range(least - own, most - own + 1)]
        rest, by = min(zip(off(parts), parts, strict=True), key=lambda each: (round(each[0], 4), abs(each[1])))
        if rest > min(_NEAR, as_it_is / 8):
            return self
        shift = narrow(self.shift - by / self.scale)
        return replace(self, shift=shift, low=self.low - by, high=self.high - by, offset=self.offset + by)

    def widened(self) -> Affine:
        """Returns bytes as integers of their value. Raises BadInput if they wrapped."""
        if self.dtype not in BYTES:
            return self
        least, most = limits(self.dtype)
        lowest, highest = replace(self, shift=one_number(0)).ends
        by = self.shift + 256 * np.ceil((least - lowest - self.shift) / 256)
        if highest + by > most:
            raise BadInput(f"an addition to {self.dtype} wraps")
        return replace(self, shift=np.asarray(by), dtype="int32")

    def centred(self) -> Affine:
        """Moves the shift into the zero points of the bytes; returns itself if that is impossible."""
        if len(self.bytes) != len(self.moved.leaves) or not self.shift.any():
            return self
        if self.moved.filled and np.broadcast_to(self.shift, self.dims)[places(self.moved.term).numbers == 0].any():
            return self
        try:
            (shifts,) = pulled_back(self.moved, [self.shift], "zero points")
        except BadInput:
            return self
        if any(shift.ndim or shift != np.rint(shift) for shift in shifts.values()):
            return self
        leaves: dict[Term, Leaf] = {}
        for stand_in, leaf in self.moved.leaves.items():
            assert isinstance(leaf, Bytes), "all leaves are bytes"
            zero = leaf.zero - int(shifts[stand_in])
            leaves[stand_in] = replace(leaf, zero=(zero + 128) % 256 - 128 if self.dtype in BYTES else zero)
        return replace(self, moved=self.moved.with_leaves(leaves), shift=one_number(0))

    def raw(self) -> Affine:
        """Moves zero points into the shift; returns itself if zeros are filled in among the bytes."""
        alone = len(self.bytes) == len(self.moved.leaves)
        return self.centred_at(0) if alone and not self.moved.filled else self

    def centred_at(self, zero: int) -> Affine:
        """Returns bytes with that zero point; the difference goes into the shift, per element if zero points differ."""
        before = {stand_in: leaf.zero for stand_in, leaf in self.moved.leaves.items() if isinstance(leaf, Bytes)}
        apart = {zero - own for own in before.values()}
        if apart == {0}:
            return self
        moved = with_zero(self.moved, zero)
        if len(apart) == 1 and not self.moved.filled:
            return replace(self, moved=moved, shift=self.shift + apart.pop())
        found = places(self.moved.term)
        every = np.zeros(1 + sum(leaf.access.size for leaf in found.first))
        for stand_in, first in found.first.items():
            every[first : first + stand_in.access.size] = zero - before[stand_in]
        return replace(self, moved=moved, shift=narrow(self.shift + every[found.numbers]))


def alike(values: Sequence[Affine]) -> list[Affine]:
    """Returns bytes with a common zero point: 0, or that of values with filled zeros."""
    raw = [value.raw() for value in values]
    filled = [leaf.zero for value in raw if value.moved.filled for leaf in value.bytes]
    return [value.centred_at(filled[0] if filled else 0) for value in raw]


def with_zero(moved: Moved, zero: int) -> Moved:
    """Returns bytes with another zero point."""
    leaves = {stand_in: replace(leaf, zero=zero) for stand_in, leaf in moved.leaves.items() if isinstance(leaf, Bytes)}
    return moved.with_leaves(leaves)


def moved_by(by: Term, parts: list[Affine], least: bool = False) -> Affine:
    """Moves operands as a term does; padding of bytes is 0, or with `least` the least number.

    Raises BadInput unless all operands are equally rounded bytes, or sums.
    """
    map_ = by.index_map
    fills = map_ is not None and map_.fill is not None and not least
    if fills:
        parts = [part.centred() for part in parts]
    first = parts[0]
    if len({(part.dtype, part.offset) for part in parts}) > 1 or len({_kinds(part) for part in parts}) > 1:
        raise BadInput("a concatenation requires operands of one kind: equally rounded bytes, or sums")
    if fills and any((part.low > 0).any() or (part.high < 0).any() for part in parts):
        raise BadInput("a padding with 0 requires numbers whose clip range contains 0")
    dims = [part.dims for part in parts]

    def along(numbers: list[Array], fill: float | None) -> Array:
        return moved_numbers(by, list(zip(numbers, dims, strict=True)), fill)

    return Affine(
        joined(by, [part.moved for part in parts]),
        first.dtype,
        along([part.shift for part in parts], None if least else 0.0),
        along([part.scale for part in parts], 1.0 if any(part.scale.ndim for part in parts) else None),
        along([part.low for part in parts], None),
        along([part.high for part in parts], None),
        first.offset,
    )


def beside(by: Term, value: Affine, known: Array, before: bool) -> Affine:
    """Concatenates a tensor and known numbers, which are added to filled zeros. Raises BadInput for 8-bit integers."""
    if value.dtype in BYTES or value.offset is not None:
        raise BadInput("a concatenation of constants with integers of 8 bits requires dequantizing both first")
    axis = int(str(by.attributes[-1]))
    more = known.shape[axis]
    pad = build("access-pad", by.children[before], "zero-padding", axis, *((more, 0) if before else (0, more)))
    apart = [(0, 0)] * len(value.dims)
    apart[axis] = (0, value.dims[axis]) if before else (value.dims[axis], 0)
    return moved_by(pad, [value]).plus(np.pad(known, apart))


def _kinds(part: Affine) -> frozenset[type]:
    return frozenset(map(type, part.moved.leaves.values()))
