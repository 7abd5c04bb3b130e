"""Tests software prefetching: steps ahead within a tile, and the next panel while the current one is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from slow_cases import quick

import glenside as gl
from glenside.codegen.loop_ir.affine_analysis import loads_in
from glenside.codegen.loop_ir.ir import For, Loops, Prefetch, Statement, Store
from glenside.codegen.passes import fuse_producer_consumer
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.ir.program import Program
from glenside.ir.term import build

MACHINE = replace(MACHINES["avx512"], l2=1 << 14)
"""Of which no weights of these programs are near."""
WIDTH, LINE = 32, 16
"""Columns of a panel, and of a line."""


def _asked(
    body: Sequence[Statement], at: dict[int, int], name: str = "w.packed"
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yields the prefetched lines of a buffer, each with the counters around it."""
    for statement in body:
        if isinstance(statement, For):
            for step in range(statement.axis.size if statement.way.value != "vector" else 0):
                yield from _asked(statement.body, {**at, statement.axis.number: step}, name)
        elif isinstance(statement, Prefetch) and statement.buffer.name == name:
            yield tuple(at.values()), statement.place.evaluate(at) // LINE  # type: ignore[arg-type]


def _of_convolution(channels: int, filters: int, size: int, stride: int) -> list[tuple[int, int]]:
    """Returns the panel that is read, and the line that is asked for."""
    b = gl.Builder("p")
    weight = b.constant("w", (filters, channels, 1, 1))
    x = b.relu(b.conv(b.input("x", (1, 8, size, size)), b.constant("v", (channels, 8, 1, 1))))
    loops = lower(b.finish(b.conv(x, weight, strides=stride)), MACHINE)
    found = [(at[0], line) for nest in loops.nests for at, line in _asked(nest.body, {})]
    asked = {s.buffer.name for nest in loops.nests for s in _all(nest.body) if isinstance(s, Prefetch)}
    assert asked == {"w.packed"}, "weights are asked for, and nothing else"
    return found


@pytest.mark.parametrize(("size", "stride"), [(7, 1), (13, 2), (5, 1)])
def test_a_panel_is_asked_for_while_the_one_before_is_read(size: int, stride: int) -> None:
    channels = 64
    lines = channels * WIDTH // LINE
    asked = {line for panel, line in _of_convolution(channels, 3 * WIDTH, size, stride) if panel == 0}
    assert asked >= set(range(lines + 16 * WIDTH // LINE, 2 * lines))


@pytest.mark.parametrize(("size", "width"), [(9, 32), (3, 48)])
def test_lines_are_asked_for_before_they_are_read(size: int, width: int) -> None:
    asked = {line for _, line in _of_convolution(64, 96, size, 1)}
    assert asked >= set(range(16 * width // LINE, 64 * 96 // LINE))


def _product(a: tuple[int, int], b: tuple[int, int], turned: bool, **caches: int) -> Loops:
    """Returns the sums of products of rows of a and rows of b, or, turned, of columns of both."""
    p = gl.Builder("p")
    operands = [p.input("a", a), p.input("b", b)]
    if turned:
        operands = [build("access-transpose", t, (1, 0)) for t in operands]
    pair = build("access-product", *(build("access", t, 1) for t in operands), 0)
    return lower(Program(build("compute", "dot-product", pair)), replace(MACHINES["avx512"], **caches))


@pytest.mark.parametrize(("depth", "rows", "columns"), [(200, 64, 192), (77, 50, 400)])
def test_rows_below_each_other_are_asked_for_before_they_are_read(depth: int, rows: int, columns: int) -> None:
    """If a step reads few columns: all lines of both operands except for the first steps."""
    (nest,) = _product((depth, rows), (depth, columns), True, l1=1 << 10, l2=1 << 14).nests
    for name, width in (("a", rows), ("b", columns)):
        asked = {line for _, line in _asked(nest.body, {}, name)}
        assert asked >= set(range(-(-16 * width // LINE), depth * width // LINE))


def test_nothing_is_asked_for_that_is_near() -> None:
    (nest,) = _product((200, 16), (200, 48), True).nests
    assert {line for name in "ab" for _, line in _asked(nest.body, {}, name)} == set()


def _read(body: Sequence[Statement], at: dict[int, int], name: str) -> Iterator[tuple[int, int]]:
    """Returns the indices of a buffer that are read, and the prefetched ones as negative numbers less one."""
    for statement in body:
        if isinstance(statement, For):
            for step in range(statement.axis.size):
                yield from _read(statement.body, {**at, statement.axis.number: step}, name)
        elif isinstance(statement, Prefetch) and statement.buffer.name == name:
            assert statement.far
            yield 1, statement.place.evaluate(at)  # type: ignore[arg-type]
        elif isinstance(statement, Store):
            yield from (
                (0, load.place.evaluate(at)) for load in loads_in(statement.formula) if load.buffer.name == name
            )  # type: ignore[misc]


@pytest.mark.parametrize(("window", "stride"), quick([(3, 1), (3, 2), (5, 1), (3, 3)], 1, 3, unpacked=True))
def test_a_band_asks_for_what_the_next_one_reads(window: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it but what this one read, and little else."""
    for least in ("_LEAST_BYTES", "_LEAST_ROWS"):
        monkeypatch.setattr(fuse_producer_consumer, least, 1)
    b = gl.Builder("separable")
    x = b.relu(b.conv(b.input("x", (1, 4, 13, 15)), b.constant("v", (48, 4, 1, 1))))
    x = b.relu(b.conv(x, b.constant("w", (48, 1, window, window)), strides=stride, padding=window // 2, groups=48))
    loops = lower(b.finish(b.conv(x, b.constant("u", (24, 48, 1, 1)))), MACHINE)
    (nest,) = (nest for nest in loops.nests if nest.what.startswith("bands of"))
    (loop,) = (s for s in nest.body if isinstance(s, For))
    (name,) = {s.buffer.name for s in _all(loop.body) if isinstance(s, Prefetch) and s.far}
    found = [set(_read(loop.body, {loop.axis.number: band}, name)) for band in range(loop.axis.size)]
    lines = [{(kind, place // LINE) for kind, place in places} for places in found]
    for this, following in pairwise(lines):
        new = {line for kind, line in following if kind == 0} - {line for kind, line in this if kind == 0}
        asked = {line for kind, line in this if kind == 1}
        assert new <= asked, "every line that is new"
        assert len(asked) <= 2 * len(new) + 4


def _all(body: Sequence[Statement]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, For):
            yield from _all(statement.body)


def test_a_band_asks_for_nothing_that_is_near() -> None:
    b = gl.Builder("separable")
    x = b.relu(b.conv(b.input("x", (1, 4, 33, 35)), b.constant("v", (48, 4, 1, 1))))
    x = b.relu(b.conv(x, b.constant("w", (48, 1, 3, 3)), padding=1, groups=48))
    loops = lower(b.finish(b.conv(x, b.constant("u", (24, 48, 1, 1)))), MACHINES["avx512"])
    (nest,) = (nest for nest in loops.nests if nest.what.startswith("bands of"))
    assert not any(s.far for s in _all(nest.body) if isinstance(s, Prefetch))
