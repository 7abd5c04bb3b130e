"""Tests the predicted cache lines that threads fetch from each other, by hand counts and by marking each element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.cost.coherence_traffic import Holders
from glenside.codegen.loop_ir.accesses import accesses
from glenside.codegen.loop_ir.footprints import counted, holds
from glenside.codegen.loop_ir.ir import Buffer, For, Load, Loops, Nest, Role, Store, Way
from glenside.codegen.loop_ir.structural_hash import Like
from glenside.codegen.lowering.constant_preparation import prepared
from glenside.codegen.memory.buffer_arena import Arena, arena
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.ir.index_map import Axis, Index
from glenside.ir.types import Dims

ROWS, COLUMNS = 64, 256  # whole lines in each row
LINE = 64


def _buffer(name: str, role: Role = Role.TEMPORARY, rows: int = ROWS, columns: int = COLUMNS) -> Buffer:
    return Buffer(name, Dims((rows, columns)), "float32", role)


def _copy(made: Buffer, given: Buffer, by_rows: bool, way: Way = Way.PARALLEL) -> Nest:
    """Of a matrix, whose rows or whose columns threads share."""
    rows, columns = made.dims
    row, column = Axis(0, rows), Axis(1, columns)
    place = Index(((row, columns), (column, 1)))
    outer, inner = (row, column) if by_rows else (column, row)
    body = For(inner, (Store(made, place, Load(given, place)),))
    return Nest("copy", made, (For(outer, (body,), way),))


def _run(holders: Holders, nests: Sequence[Nest]) -> list[float]:
    """What nests fetch when they run again."""
    bodies = [Like.of(nest.body) for nest in nests]
    holders.warm(bodies)
    return [holders.fetched(body) for body in bodies]


def _fetched(nests: Sequence[Nest], buffers: Sequence[Buffer], threads: int, cache: int = 1 << 20) -> list[float]:
    """Where no two buffers share memory."""
    places, end = {}, 0
    for buffer in buffers:
        places[buffer] = end
        end += buffer.bytes
    holders = Holders(Arena(places, end, end, 0, {}), threads, cache)
    return _run(holders, nests)


@pytest.mark.parametrize("threads", [2, 4])
def test_who_goes_along_the_same_axis_finds_all_in_its_own_cache(threads: int) -> None:
    x, one, two = _buffer("x", Role.INPUT), _buffer("one"), _buffer("two")
    for by_rows in (True, False):
        nests = [_copy(one, x, by_rows), _copy(two, one, by_rows)]
        assert _fetched(nests, [one, two], threads) == [0, 0]


@pytest.mark.parametrize("threads", [2, 4])
def test_who_goes_along_another_one_fetches_what_others_stored(threads: int) -> None:
    """And the one that stores it again takes it back from whoever has read it since."""
    x, one, two = _buffer("x", Role.INPUT), _buffer("one"), _buffer("two")
    others = one.bytes * (threads - 1) // threads
    assert _fetched([_copy(one, x, True), _copy(two, one, False)], [one, two], threads) == [others, others]


def test_nobody_holds_what_is_larger_than_all_caches() -> None:
    x, one, two = _buffer("x", Role.INPUT), _buffer("one"), _buffer("two")
    nests = [_copy(one, x, True), _copy(two, one, False)]
    assert _fetched(nests, [one, two], 2, one.bytes // 2 - 1) == [0, 0]
    assert all(_fetched(nests, [one, two], 2, one.bytes // 2))


def test_what_one_thread_does_is_fetched_by_all_others() -> None:
    """It is told of each thread as if all did as much as the one that does most."""
    x, one, two = _buffer("x", Role.INPUT), _buffer("one"), _buffer("two")
    nests = [_copy(one, x, True, Way.LOOP), _copy(two, one, True)]
    assert _fetched(nests, [one, two], 2) == [one.bytes, one.bytes]


def test_the_same_memory_is_taken_from_whoever_had_another_buffer_there() -> None:
    x, one, two = _buffer("x", Role.INPUT), _buffer("one"), _buffer("two")
    nests = [_copy(one, x, True), _copy(two, x, False)]
    holders = Holders(Arena({one: 0, two: 0}, one.bytes, one.bytes, 0, {}), 2, 1 << 20)
    assert _run(holders, nests) == [one.bytes / 2, one.bytes / 2]


@pytest.mark.parametrize("threads", [2, 3])
def test_it_is_what_the_steps_of_each_thread_touch_one_by_one(threads: int) -> None:
    b = gl.Builder("small")
    x = b.relu(b.conv(b.input("x", (1, 3, 13, 11)), b.constant("w", (24, 3, 3, 3)), padding=1))
    y = b.relu(b.conv(x, b.constant("d", (24, 1, 3, 3)), groups=24, padding=1, strides=2))
    y = b.relu(b.conv(y, b.constant("p", (40, 24, 1, 1))))
    loops = lower(prepared(b.finish(b.softmax(y)), lazily=True), MACHINES["avx512"])
    holders = Holders(arena(loops), threads, MACHINES["avx512"].l2)
    expected = _one_by_one(loops, threads)
    assert _run(holders, loops.nests) == expected
    assert any(expected)


def _one_by_one(loops: Loops, threads: int) -> list[float]:
    """Returns the second run of a program, each line of each access of each step by itself."""
    places = arena(loops).places
    held: list[set[int]] = [set() for _ in range(threads)]
    for _ in range(2):
        found = []
        for nest in loops.nests:
            touched = [[_lines(nest, places, threads, t, writes) for t in range(threads)] for writes in (False, True)]
            fetched = [0] * threads
            elsewhere = [set[int]().union(*held[:t], *held[t + 1 :]) for t in range(threads)]
            for t, lines in enumerate(touched[0]):
                fetched[t] += len((lines - held[t]) & elsewhere[t])
            for own, lines in zip(held, touched[0], strict=True):
                own |= lines
            elsewhere = [set[int]().union(*held[:t], *held[t + 1 :]) for t in range(threads)]
            for t, lines in enumerate(touched[1]):
                fetched[t] += len(lines & elsewhere[t])
            stored = set[int]().union(*touched[1])
            for own, lines in zip(held, touched[1], strict=True):
                own -= stored
                own |= lines
            found.append(float(threads * LINE * max(fetched)))
    return found


def _lines(nest: Nest, places: dict[Buffer, int], threads: int, thread: int, writes: bool) -> set[int]:
    found: set[int] = set()
    steps = 1
    for statement in nest.body:
        shared = isinstance(statement, For) and statement.way is Way.PARALLEL
        if isinstance(statement, For) and shared and statement.beside is None:
            steps = statement.axis.size
        for access in accesses([statement]):
            if access.writes is not writes or access.buffer.role is not Role.TEMPORARY:
                continue
            grid = counted(access.axes)
            value = np.asarray(access.place.evaluate(grid))
            mask = np.broadcast_to(holds(access.conditions, grid), [axis.size for axis in access.axes])
            mask = mask & (_own(statement, steps, threads, thread, grid) if shared else thread == 0)
            at = places[access.buffer] + 4 * np.broadcast_to(value, mask.shape)[mask]
            found |= set((at // LINE).reshape(-1).tolist())
    return found


def _own(loop: For, steps: int, threads: int, thread: int, grid: dict[int, np.ndarray]) -> np.ndarray:
    """Returns which steps of a loop a thread executes; of a fused loop, those that go with its steps of the loop
    before.
    """
    first, end = steps * thread // threads, steps * (thread + 1) // threads
    if loop.beside is not None:
        parts, begin = loop.beside
        first, end = (step * parts // steps - begin for step in (first, end))
    step = grid[loop.axis.number]
    return (first <= step) & (step < end)
