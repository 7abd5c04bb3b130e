"""Tests sums in vector lanes, for few columns: they agree with plain loops, and are selected where they are faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.codegen.cost.count_work import predicted_nanoseconds
from glenside.codegen.loop_ir.ir import Role
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program


def _to_few(channels: int, made: int, window: int, size: tuple[int, int] = (13, 11), batch: int = 1) -> Program:
    """Channels that lie last, and a convolution to few, whose activation is long."""
    b = gl.Builder("few")
    x = b.relu(b.conv(b.input("x", (batch, 3, *size)), b.constant("w", (channels, 3, 3, 3)), padding=1))
    x = b.conv(x, b.constant("v", (made, channels, window, window)), padding=window // 2)
    return b.finish(b.tanh(b.add(x, b.constant("b", (1, made, 1, 1))))).seeded_constants(0)


def _widths(body: Any) -> set[tuple[int, ...]]:
    """Returns the dims of what is held in registers."""
    found = set()
    for statement in body:
        found |= _widths(getattr(statement, "body", ()))
        buffer = getattr(statement, "buffer", None)
        if buffer is not None and buffer.role is Role.REGISTER:
            found.add(tuple(buffer.dims))
    return found


SHAPES = [(32, 1, 7), (24, 3, 3), (20, 5, 3), (14, 2, 5), (64, 1, 1), (32, 8, 3), (5, 3, 3), (3, 1, 7)]


@pytest.mark.needs_compiler
@pytest.mark.parametrize("shape", quick(SHAPES, 7), ids=str)
def test_convolutions_to_few_channels(shape: tuple[int, int, int]) -> None:
    program = _to_few(*shape)
    (given,) = (t for t in program.tensors.values() if not t.constant)
    x = np.random.default_rng(0).standard_normal(given.dims).astype(np.float32)
    want = np.asarray(gl.compile(program, machine="plain")(x))
    f = gl.compile(program, "none")
    for threads in (1, 3):
        assert np.abs(np.asarray(f(x, threads=threads)) - want).max() <= 1e-5 * np.abs(want).max()
    assert f.check().ok


def _in_groups(channels: int, groups: int, window: int) -> Program:
    """Channels that lie last, of which each one that is made is of a few."""
    b = gl.Builder("groups")
    x = b.relu(b.conv(b.input("x", (1, 3, 21, 19)), b.constant("w", (channels, 3, 3, 3)), padding=1))
    weight = b.constant("v", (groups, channels // groups, window, window))
    return b.finish(b.relu(b.conv(x, weight, padding=window // 2, groups=groups))).seeded_constants(0)


@pytest.mark.needs_compiler
@pytest.mark.parametrize("shape", quick([(96, 32, 3), (30, 10, 3), (12, 4, 5), (21, 7, 5)], 0), ids=str)
def test_one_channel_of_each_group(shape: tuple[int, int, int]) -> None:
    program = _in_groups(*shape)
    x = np.random.default_rng(0).standard_normal((1, 3, 21, 19)).astype(np.float32)
    want = np.asarray(gl.compile(program, machine="plain")(x))
    f = gl.compile(program, "none")
    for threads in (1, 3):
        assert np.abs(np.asarray(f(x, threads=threads)) - want).max() <= 1e-5 * np.abs(want).max()
    assert f.check().ok
    for machine in MACHINES.values():
        lowered = Lowered(program, machine)
        assert faults(lowered.loops, lowered.arena) == []


def test_sums_of_numbers_are_of_several_rows() -> None:
    nests = lower(_in_groups(96, 32, 3), MACHINES["avx512"]).nests
    assert (10, 1) in _widths(nests[-1].body) or (9, 1) in _widths(nests[-1].body)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("shape", quick(SHAPES, 1), ids=str)
def test_nothing_is_read_or_stored_outside_on_any_machine(name: str, shape: tuple[int, int, int]) -> None:
    lowered = Lowered(_to_few(*shape, batch=2), MACHINES[name])
    assert faults(lowered.loops, lowered.arena) == []


def test_sums_are_vectors_where_columns_are_few() -> None:
    machine = MACHINES["avx512"]
    few, many = (lower(_to_few(32, made, 3), machine).nests for made in (3, 64))
    assert any((rows, 16) in _widths(nest.body) for nest in few for rows in range(3, 33, 3))
    assert not any(dims[-1] == 16 and dims[0] % 3 == 0 for dims in _widths(many[-1].body) if len(dims) > 1)


def test_to_one_channel_takes_less_than_to_many() -> None:
    machine = MACHINES["avx512"]
    one, many = (
        sum(predicted_nanoseconds(lower(_to_few(32, made, 7, (40, 40)), machine), machine)) for made in (1, 32)
    )
    assert one < many / 4


def test_pixels_are_the_vectors_of_few_channels_where_they_lie_next_to_each_other() -> None:
    """With channels first, as in an image, three output channels are never the vectorized axis."""
    b = gl.Builder("picture")
    x = b.conv(b.input("x", (1, 24, 40, 48)), b.constant("w", (3, 24, 7, 7)))
    nests = lower(b.finish(x).seeded_constants(0), MACHINES["avx512"]).nests
    widths = _widths(nests[-1].body)
    assert widths
    assert max(dims[-1] for dims in widths) >= 16
