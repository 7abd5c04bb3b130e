"""What a term computes of integers that are moved about: scaled, shifted, clipped and rounded, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from glenside.analysis.places import places
from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build
from glenside.quantization.values import BYTES, Bytes, Leaf, Moved, Product, joined, moved_numbers, narrow, pulled_back

_MANY = 1 << 13
_NEAR = 2e-3
"""Of a byte: what rounding a bias may change."""


def one_number(value: float) -> Array:
    """A number for all elements, ()."""
    return np.asarray(value, np.float64)


@dataclass(frozen=True, eq=False)
class Affine:
    """clip((integers + shift) * scale, low, high), rounded where `offset` is a number, which is added then.

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
        """Whether it is integers of the network, and a number that is added to all of them."""
        return self.integral and self.shift.ndim == 0 and self.fits

    @property
    def integral(self) -> bool:
        """Whether it is bytes to which integers are added, if it is clipped to integers."""
        alone = len(self.bytes) == len(self.moved.leaves) and self.scale.ndim == 0 and self.offset is None
        return bool(alone and self.scale == 1 and (self.shift == np.rint(self.shift)).all())

    @property
    def fits(self) -> bool:
        """Whether nothing is clipped."""
        least, most = self.ends
        return bool(self.low.max() <= least and self.high.min() >= most)

    @property
    def ends(self) -> tuple[float, float]:
        """Bounds of what is clipped."""
        if len(self.bytes) != len(self.moved.leaves):
            return -np.inf, np.inf
        zero = [0] * self.moved.filled
        least = min([leaf.low - leaf.zero for leaf in self.bytes] + zero)
        most = max([leaf.high - leaf.zero for leaf in self.bytes] + zero)
        every = [(end + self.shift) * self.scale for end in (least, most)]
        return float(min(map(np.min, every))), float(max(map(np.max, every)))

    def around(self) -> Array | None:
        """What stands in place of the zeros among its sums, or numbers of an input, and 0 elsewhere; None where that is
        0 everywhere.
        """
        if not self.moved.filled or self.bytes or not self.shift.any():
            return None
        zeros = places(self.moved.term).numbers == 0
        found = np.where(zeros, np.clip(self.shift * self.scale, self.low, self.high), 0)
        return found if found.any() else None

    def plus(self, by: Array) -> Affine:
        """A constant added."""
        if self.dtype in BYTES or self.offset is not None:
            if by.ndim or by != np.rint(by):
                raise BadInput("what is added to integers of 8 bits is one integer")
            if self.offset is not None:
                return replace(self, offset=self.offset + float(by))
            return replace(self, shift=self.shift + by)
        return replace(
            self, shift=narrow(self.shift + by / self.scale), low=narrow(self.low + by), high=narrow(self.high + by)
        )

    def times(self, by: Array) -> Affine:
        """Multiplied by a constant."""
        if not (np.isfinite(by).all() and by.all()):
            raise BadInput("what sums are multiplied by is a finite number that is not 0")
        if self.dtype in BYTES or self.offset is not None:
            raise BadInput("integers that were rounded are multiplied by nothing")
        ends = self.low * by, self.high * by
        low, high = np.where(by < 0, ends[1], ends[0]), np.where(by < 0, ends[0], ends[1])
        return replace(self, scale=narrow(self.scale * by), low=narrow(low), high=narrow(high))

    def between(self, low: Array, high: Array) -> Affine:
        """Clipped."""
        own = 0 if self.offset is None else self.offset
        least, most = (np.clip(end, low - own, high - own) for end in (self.low, self.high))
        found = replace(self, low=narrow(np.asarray(least)), high=narrow(np.asarray(most)))
        return self if self.offset is None and found.fits else found

    def rounded(self) -> Affine:
        """The nearest integers, of two the even one."""
        if self.offset is not None or self.whole:
            return self
        return replace(self, low=np.rint(self.low), high=np.rint(self.high), offset=0.0)

    def with_nearest_bias(self, least: int, most: int) -> Affine:
        """The same, rounded, with a part of the shift added after that, where the rest is nearer to integers: a zero
        point that was added before. All that is added after it stays between two numbers.
        """
        if self.offset is None or self.moved.filled or max(self.shift.size, self.scale.size) > _MANY:
            return self

        def off(by: Sequence[int]) -> list[float]:
            """How far the rest is from integers, for each part."""
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
        """Bytes as the integers that they are. Raises BadInput where they were wrapped."""
        if self.dtype not in BYTES:
            return self
        least, most = limits(self.dtype)
        lowest, highest = replace(self, shift=one_number(0)).ends
        by = self.shift + 256 * np.ceil((least - lowest - self.shift) / 256)
        if highest + by > most:
            raise BadInput(f"what is added to {self.dtype} wraps")
        return replace(self, shift=np.asarray(by), dtype="int32")

    def centred(self) -> Affine:
        """The same with a shift of 0, which goes into the zero points of the bytes; itself where it cannot."""
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
            assert isinstance(leaf, Bytes), "there are no others"
            zero = leaf.zero - int(shifts[stand_in])
            leaves[stand_in] = replace(leaf, zero=(zero + 128) % 256 - 128 if self.dtype in BYTES else zero)
        return replace(self, moved=self.moved.with_leaves(leaves), shift=one_number(0))

    def raw(self) -> Affine:
        """The same with zero points of 0, which go into the shift; itself where zeros stand among the bytes."""
        alone = len(self.bytes) == len(self.moved.leaves)
        return self.centred_at(0) if alone and not self.moved.filled else self

    def centred_at(self, zero: int) -> Affine:
        """Bytes with that zero point, less which goes into the shift: of each, where there are several."""
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
    """Bytes with one zero point for all: 0, or that of some among which zeros stand."""
    raw = [value.raw() for value in values]
    filled = [leaf.zero for value in raw if value.moved.filled for leaf in value.bytes]
    return [value.centred_at(filled[0] if filled else 0) for value in raw]


def with_zero(moved: Moved, zero: int) -> Moved:
    """Bytes with another zero point."""
    leaves = {stand_in: replace(leaf, zero=zero) for stand_in, leaf in moved.leaves.items() if isinstance(leaf, Bytes)}
    return moved.with_leaves(leaves)


def moved_by(by: Term, parts: list[Affine], least: bool = False) -> Affine:
    """What a term that moves its operands makes of them; zeros among bytes stand for 0, or for the least number.

    Raises BadInput where they are no bytes, or sums, alike.
    """
    map_ = by.index_map
    fills = map_ is not None and map_.fill is not None and not least
    if fills:
        parts = [part.centred() for part in parts]
    first = parts[0]
    if len({(part.dtype, part.offset) for part in parts}) > 1 or len({_kinds(part) for part in parts}) > 1:
        raise BadInput("what is joined is of one kind: bytes that were rounded alike, or sums")
    if fills and any((part.low > 0).any() or (part.high < 0).any() for part in parts):
        raise BadInput("0 stands around numbers that are clipped to a range without it")
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
    """What a concatenation makes of a tensor and of numbers that are known, before or behind it: zeros that stand
    there, to which the numbers are added. Raises BadInput for integers of 8 bits.
    """
    if value.dtype in BYTES or value.offset is not None:
        raise BadInput("constants are joined with integers of 8 bits: dequantize both before")
    axis = int(str(by.attributes[-1]))
    more = known.shape[axis]
    pad = build("access-pad", by.children[before], "zero-padding", axis, *((more, 0) if before else (0, more)))
    apart = [(0, 0)] * len(value.dims)
    apart[axis] = (0, value.dims[axis]) if before else (value.dims[axis], 0)
    return moved_by(pad, [value]).plus(np.pad(known, apart))


def _kinds(part: Affine) -> frozenset[type]:
    return frozenset(map(type, part.moved.leaves.values()))
