"""Estimates a nest's cache-miss bytes (capacity misses) at each cache level.

If the footprint of one step of a loop fits the cache, the footprint of the whole loop is read once; otherwise each step
reads its footprint again. The number of distinct indices is estimated from the sizes of the axes that they depend on,
at most the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from glenside.codegen.loop_ir.affine_analysis import loads_in
from glenside.codegen.loop_ir.bf16_split_matmul import product_of
from glenside.codegen.loop_ir.ir import Buffer, For, Let, Role, Statement, Store, Way, When
from glenside.codegen.processor.model import Machine
from glenside.codegen.processor.work_record import Work
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index

_LINE = 64
"""Bytes of a cache line."""
_OWN = 0.75
"""Effective fraction of the last-level cache. Measured: among 1/8, 3/16 .. 1, it had the least prediction error for
nests of large images on a Zen 5.
"""
_SHARES = (0.6, 1.0, 1.6)
"""Fractions of the L2 capacity over which misses are averaged: a cache evicts gradually."""
_PARTS, _LARGE_PART = 64, 1 << 16
"""Blocks of the L2 cache in the cache model, and bytes of a block of the last-level cache."""


@dataclass(frozen=True)
class Reach:
    """The bytes that a nest reads into its caches, whatever ran before it.

    near       bytes from beyond L1
    behind     for each fraction of L2 in `_SHARES`: bytes of each buffer from beyond it
    footprint  bytes of each buffer that the nest touches
    """

    near: float
    behind: tuple[Mapping[Buffer, float], ...]
    footprint: Mapping[Buffer, float]

    @classmethod
    def of(cls, body: Sequence[Statement], machine: Machine) -> Reach:
        touched = Touched.of(body)
        near = sum(touched.beyond(machine.l1).values())
        return cls(near, tuple(touched.beyond(machine.l2 * share) for share in _SHARES), touched.footprint)

    def over(self, names: Mapping[Buffer, Buffer]) -> Reach:
        """Returns the reach of a structurally equal nest over other buffers."""
        behind, whole = (
            [{names[buffer]: n for buffer, n in own.items()} for own in every]
            for every in (self.behind, [self.footprint])
        )
        return Reach(self.near, tuple(behind), *whole)


def second_caches(machine: Machine, places: Mapping[Buffer, int] = MappingProxyType({})) -> tuple[Cache, ...]:
    """Returns models of the L2 cache, one for each of `_SHARES`: a cache evicts gradually between nests, too."""
    part = max(_LINE, machine.l2 // _PARTS)
    return tuple(Cache(share * machine.l2, part, places) for share in _SHARES)


def last_cache(machine: Machine, places: Mapping[Buffer, int]) -> Cache:
    """Returns the model of the last-level cache."""
    return Cache(_OWN * machine.l3, _LARGE_PART, places)


def traffic(reach: Reach, stored: Buffer, caches: Sequence[Cache]) -> Work:
    """Returns the bytes that a nest reads from L2 and from beyond it; updates the state of `caches`, of L2.

    stored  the buffer that the nest stores
    """
    found = dict.fromkeys(("far", "weights"), 0.0)
    for bytes_of, cache in zip(reach.behind, caches, strict=True):
        missed = cache.touch(stored, reach.footprint).missed
        for buffer, n in bytes_of.items():
            once = min(n, reach.footprint[buffer])
            again = n - once  # evicted by the nest itself
            part = missed[buffer] / reach.footprint[buffer] if once and reach.footprint[buffer] > 0 else 0.0
            found["weights" if buffer.role is Role.CONSTANT else "far"] += (part * once + again) / len(_SHARES)
    return Work(near=reach.near, **found)


@dataclass(frozen=True)
class Brought:
    """The traffic of a nest beyond a cache: missed bytes of each buffer, and bytes that are written back."""

    missed: Mapping[Buffer, float]
    back: float

    def work(self) -> Work:
        """Returns the bytes as work of the memory behind the last-level cache."""
        weights = sum(n for buffer, n in self.missed.items() if buffer.role is Role.CONSTANT)
        return Work(memory=sum(self.missed.values()) - weights + self.back, memory_weights=weights)


class Cache:
    """A cache model for a program that runs repeatedly: blocks of memory with LRU replacement.

    Temporaries are allocated in the arena. A temporary is in cache if another one at the same address was. A new
    temporary without an address is assumed to reuse memory that is in cache, if it is not large.

    parts  resident block -> True if it is dirty and is written back on eviction; least recently used first
    """

    def __init__(self, size: float, part: int, places: Mapping[Buffer, int] = MappingProxyType({})) -> None:
        self.most, self.part, self.places = size / part, part, places
        self.parts: dict[tuple[Buffer | None, int], bool] = {}
        self._seen: set[Buffer] = set()

    def warm(self, nests: Iterable[tuple[Buffer, Reach]]) -> Cache:
        """Runs nests, each with the buffer that it stores, and returns the cache."""
        for stored, reach in nests:
            self.touch(stored, reach.footprint)
        return self

    def touch(self, stored: Buffer, footprint: Mapping[Buffer, float]) -> Brought:
        """Runs a nest that stores a buffer and touches the bytes of `footprint`; returns its traffic."""
        missed, back = dict.fromkeys(footprint, 0.0), 0
        near = {buffer for buffer, n in footprint.items() if self._is_near(buffer, n)}
        self._seen.update(footprint)
        parts, most = self.parts, self.most
        for buffer, key, n in self._touched(footprint):
            held = parts.pop(key, None)
            if held is None and buffer not in near:
                missed[buffer] += n
            parts[key] = bool(held) or buffer is stored
            if len(parts) > most:
                back += parts.pop(next(iter(parts)))
        return Brought(missed, back * self.part)

    def _is_near(self, buffer: Buffer, n: float) -> bool:
        """True if a buffer has no address, is new, and is small enough to be assumed in cache."""
        is_new = buffer not in self._seen and buffer not in self.places
        return is_new and buffer.role in (Role.TEMPORARY, Role.SCRATCH) and 2 * n <= self.most * self.part

    def _touched(self, footprint: Mapping[Buffer, float]) -> list[tuple[Buffer, tuple[Buffer | None, int], float]]:
        """Returns the blocks of buffers, interleaved, as (buffer, key, bytes)."""
        found = []
        for buffer, n in footprint.items():
            place = self.places.get(buffer)
            first = 0 if place is None else place // self.part
            end = max(first + 1, -int(-((place or 0) + n) // self.part))
            key = buffer if place is None else None
            if buffer.role is not Role.SCRATCH:
                found += [((i - first) / (end - first), buffer, (key, i), n / (end - first)) for i in range(first, end)]
        return [(buffer, key, n) for _, buffer, key, n in sorted(found, key=lambda one: one[0])]


@dataclass
class Touched:
    """The indices that statements access, as a tree of loops.

    places   (buffer, index) of these statements themselves
    loops    (axis, accesses of each of its steps)
    """

    places: list[tuple[Buffer, Index]] = field(default_factory=list)
    loops: list[tuple[Axis, Touched]] = field(default_factory=list)

    @classmethod
    def of(cls, body: Sequence[Statement]) -> Touched:
        found = cls()
        for statement in body:
            found._add(statement)
        return found

    def _add(self, statement: Statement) -> None:
        if isinstance(statement, For) and statement.way is Way.MATRIX:
            product = product_of(statement)
            for number, (buffer, begin, size) in enumerate(product.touches()):
                along = Axis(-1 - number, size)
                self.loops.append((along, Touched([(buffer, begin + Index(((along, 1),)))])))
        elif isinstance(statement, For):
            self.loops.append((statement.axis, Touched.of(statement.body)))
        elif isinstance(statement, When):
            for inner in statement.body:
                self._add(inner)
        elif isinstance(statement, Store | Let):
            touched = [(load.buffer, load.place) for load in loads_in(statement.formula)]
            if isinstance(statement, Store):
                touched.append((statement.buffer, statement.place))
            self.places += [(buffer, place) for buffer, place in touched if buffer.role is not Role.REGISTER]

    @cached_property
    def footprint(self) -> dict[Buffer, float]:
        """Returns buffer -> bytes that are touched."""
        return _footprint(self._shapes(()))

    @cached_property
    def swept(self) -> list[dict[Buffer, float]]:
        """Returns, for each loop, the footprint of all its steps."""
        return [_footprint(inner._shapes((axis,))) for axis, inner in self.loops]

    def _shapes(self, axes: tuple[Axis, ...]) -> dict[Buffer, dict[object, float]]:
        """Returns, for each buffer, key of a set of indices -> estimated elements in it."""
        found: dict[Buffer, dict[object, float]] = {}
        for buffer, place in dict.fromkeys(self.places):
            key, count = _extent(place, axes, buffer)
            found.setdefault(buffer, {})[key] = count
        for axis, inner in self.loops:
            for buffer, shapes in inner._shapes((*axes, axis)).items():
                found.setdefault(buffer, {}).update(shapes)
        return found

    def beyond(self, cache: float) -> dict[Buffer, float]:
        """Returns buffer -> estimated bytes from beyond a cache of `cache` bytes."""
        if sum(self.footprint.values()) <= cache:
            return self.footprint
        found: dict[Buffer, float] = {}
        for buffer, _ in self.places:
            found[buffer] = found.get(buffer, 0) + _LINE
        for (axis, inner), swept in zip(self.loops, self.swept, strict=True):
            once = sum(inner.footprint.values()) <= cache
            for buffer, n in (swept if once else inner.beyond(cache)).items():
                found[buffer] = found.get(buffer, 0) + (n if once else axis.size * n)
        return found


def _footprint(shapes: Mapping[Buffer, Mapping[object, float]]) -> dict[Buffer, float]:
    return {b: min(b.bytes, sum(of_buffer.values()) * _size(b)) for b, of_buffer in shapes.items()}


def _extent(place: Index, axes: Sequence[Axis], buffer: Buffer) -> tuple[object, float]:
    """Returns a key that accesses to the same set of indices share, and its estimated elements, in whole lines."""
    steps = sorted((abs(factor), axis.size) for axis, factor in place.terms if isinstance(axis, Axis) and axis in axes)
    line = _LINE / _size(buffer)
    nearest = steps[0][0] if steps else line
    count, reach, unit, span = min(line, nearest), 0, 0, 0
    for step, size in steps:
        reach += step * (size - 1)
        if unit and step % unit == 0 and step <= span + unit:  # overlapping, such as a window and its image
            count *= (span + step * (size - 1) + unit) / (span + unit)
            span += step * (size - 1)
        else:
            count *= size
            unit, span = step, step * (size - 1)
    others = tuple((atom, factor) for atom, factor in place.terms if atom not in axes)
    return (tuple(steps), _apart(place.constant, steps, line), others), min(count, reach + line)


def _apart(begin: int, steps: Sequence[tuple[int, int]], line: float) -> tuple[int, ...]:
    """Returns a key that is equal for accesses along the same axes if one starts within the other's range.

    The next row of an image starts within the range of rows; the next piece of a reduction starts after the first.
    """
    rest, found = abs(begin), []
    for step, size in reversed(steps):
        shift, rest = divmod(rest, step)
        found.append(shift // max(size, 1))
    return *found, int(rest // line)


def _size(buffer: Buffer) -> int:
    """Returns the bytes of an element."""
    return RECORDS[buffer.dtype].numpy.itemsize
