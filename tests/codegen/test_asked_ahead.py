"""Tiles ask for packed weights before they read them: steps ahead, and for a panel while the one before is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

import glenside as gl
from glenside.codegen.loops import For, Prefetch, Statement
from glenside.codegen.lower import lower
from glenside.codegen.machine import MACHINES

MACHINE = replace(MACHINES["avx512"], l2=1 << 14)
"""Of which no weights of these programs are near."""
WIDTH, LINE = 32, 16
"""Columns of a panel, and of a line."""


def _asked(body: Sequence[Statement], at: dict[int, int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """The lines that are asked for in turn, each with the counters around it."""
    for statement in body:
        if isinstance(statement, For):
            for step in range(statement.axis.size if statement.way.value != "vector" else 0):
                yield from _asked(statement.body, {**at, statement.axis.number: step})
        elif isinstance(statement, Prefetch):
            assert statement.buffer.name == "w.packed"
            yield tuple(at.values()), statement.place.evaluate(at) // LINE  # type: ignore[arg-type]


def _of_convolution(channels: int, filters: int, size: int, stride: int) -> list[tuple[int, int]]:
    """The panel that is read, and the line that is asked for."""
    b = gl.Builder("p")
    weight = b.constant("w", (filters, channels, 1, 1))
    x = b.relu(b.conv(b.input("x", (1, 8, size, size)), b.constant("v", (channels, 8, 1, 1))))
    loops = lower(b.finish(b.conv(x, weight, strides=stride)), MACHINE)
    found = [(at[0], line) for nest in loops.nests for at, line in _asked(nest.body, {})]
    assert found, "weights are asked for"
    return found


@pytest.mark.parametrize(("size", "stride"), [(7, 1), (13, 2), (5, 1)])
def test_a_panel_is_asked_for_while_the_one_before_is_read(size: int, stride: int) -> None:
    channels = 64
    lines = channels * WIDTH // LINE
    asked = {line for panel, line in _of_convolution(channels, 3 * WIDTH, size, stride) if panel == 0}
    assert asked >= set(range(lines + 16 * WIDTH // LINE, 2 * lines))


@pytest.mark.parametrize(("size", "ahead", "width"), [(9, 16, 32), (3, 48, 48)])
def test_lines_are_asked_for_before_they_are_read(size: int, ahead: int, width: int) -> None:
    """Farther before where one tile reads all: a panel of 48 columns by 9 rows."""
    asked = {line for _, line in _of_convolution(64, 96, size, 1)}
    assert asked >= set(range(ahead * width // LINE, 64 * 96 // LINE))
