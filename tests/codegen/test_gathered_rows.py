"""Tests elements that are read at computed indices, and sums of a few of them, such as linear resizes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from fuzzing import Fuzzing
from slow_cases import quick

import glenside as gl
from glenside.builder import layout, pointwise
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.ir import For, Statement, Way
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import machine_of
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.errors import OutOfBounds
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program
from glenside.ir.term import Term, build

SIZES = (0, 1, 1, 2, 3, 5, 17, 40)


class _Drawn:
    """A random chain of gathers, and of sums of gathered elements.

    limits  name of a tensor of indices -> the size of the axis that they index
    """

    def __init__(self, seed: int) -> None:
        self.pick, self.builder = random.Random(seed), gl.Builder(f"gathered {seed}")
        self.limits: dict[str, int] = {}
        pick, b = self.pick, self.builder
        dims = [pick.choice(SIZES) for _ in range(pick.randint(1, 4))]
        x = b.input("x", dims, pick.choice(("float32", "float32", "float64", "int32", "int8")))
        known = [x]
        for _ in range(pick.randint(1, 3)):
            x = self._next(x)
            known.append(x)
        if pick.random() < 0.3:
            x = b.add(x, x) if pick.random() < 0.5 else b.relu(x)
        root = build("construct-tuple", x, pick.choice(known)) if pick.random() < 0.2 else x
        self.program = b.finish(root)

    def _next(self, x: Term) -> Term:
        pick, b = self.pick, self.builder
        if pick.random() < 0.3:
            x = b.relu(x)
        if pick.random() < 0.4:
            x = b.transpose(x, pick.sample(range(x.access.rank), x.access.rank))
        axes = [axis for axis, size in enumerate(x.access.dims) if size]
        if not axes:
            return x
        axis = pick.choice(axes)
        if pick.random() < 0.7:
            return self._summed(x, axis, pick.choice((1, 4, 9, 34)), pick.choice((1, 2, 3, 8, 9)))
        rank = pick.choice((0, 1, 1, 2)) if x.access.rank > 1 else 1
        return layout.gather(x, self._indices(x, axis, [pick.choice((1, 3, 8)) for _ in range(rank)]), axis)

    def _summed(self, x: Term, axis: int, rows: int, taps: int) -> Term:
        b, pick = self.builder, self.pick
        found = layout.gather(x, self._indices(x, axis, (rows, taps)), axis)
        shape = [1] * found.access.rank
        shape[axis : axis + 2] = rows, taps
        weights = b.reshape(b.input(f"w{len(self.limits)}", (rows, taps), x.access.dtype), shape)
        factors = [found, weights] if pick.random() < 0.8 else [weights, found]
        return b.reduce_axes("reduce-sum", b.multiply(*factors), [axis + 1])

    def _indices(self, x: Term, axis: int, dims: list[int] | tuple[int, ...]) -> Term:
        name = f"i{len(self.limits)}"
        self.limits[name] = x.access.dims[axis]
        return self.builder.input(name, dims, "int64")

    def values(self, seed: int) -> dict[str, Array]:
        """Returns small whole numbers, and indices within their axes, some counted from the end."""
        draw, found = np.random.default_rng(seed), {}
        for name, tensor in self.program.tensors.items():
            low, high = (-self.limits[name], self.limits[name]) if name in self.limits else (-2, 3)
            found[name] = draw.integers(low, high, tuple(tensor.dims)).astype(tensor.dtype)
        return found


def _hold(seed: int) -> None:
    drawn = _Drawn(seed)
    program, values = drawn.program, drawn.values(seed)
    want = arrays(gl.evaluate([program.term], values)[0])
    for name in ("plain", "generic", "avx2", "avx512"):
        loops = lower(program, machine_of(name))
        assert faults(loops, arena(loops)) == [], (seed, name)
        for found, expected in zip(interpret(loops, values), want, strict=True):
            assert np.array_equal(found, expected), (seed, name)


def test_random_gathers_and_sums(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(30):
        _hold(seed)


@pytest.mark.slow
def test_many_random_gathers_and_sums(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(3_000, first=100):
        _hold(seed)


def _resized(b: gl.Builder, x: Term, axis: int) -> Term:
    """Returns weighted sums of pairs of elements along an axis, twice as many as there are."""
    size = x.access.dims[axis]
    found = layout.gather(x, b.constant(f"i{axis}", (2 * size, 2), "int64"), axis)
    shape = [1] * found.access.rank
    shape[axis : axis + 2] = 2 * size, 2
    weights = b.reshape(b.constant(f"w{axis}", (2 * size, 2)), shape)
    return b.reduce_axes("reduce-sum", b.multiply(found, weights), [axis + 1])


def _ways(statements: tuple[Statement, ...]) -> set[Way]:
    loops = [statement for statement in statements if isinstance(statement, For)]
    return {loop.way for loop in loops}.union(*(_ways(loop.body) for loop in loops))


def test_a_resize_stores_only_its_sums() -> None:
    """Rows are read in vectors; positions along a row are computed once for several rows."""
    b = gl.Builder("resize")
    program = b.finish(_resized(b, _resized(b, b.input("x", (1, 8, 14, 16)), 2), 3))
    rows, columns = lower(program, machine_of("avx2")).nests
    assert Way.VECTOR in _ways(rows.body)
    assert Way.UNROLLED in _ways(columns.body)


@pytest.mark.needs_compiler
@pytest.mark.parametrize("threads", quick([1, 2], 1))
def test_a_resize_of_a_computed_image(threads: int) -> None:
    b = gl.Builder("resize")
    x = b.relu(b.conv(b.input("x", (1, 3, 20, 30)), b.constant("w", (16, 3, 3, 3)), padding=1))
    y = _resized(b, _resized(b, x, 2), 3)
    program = b.finish(pointwise.add(y, b.input("z", (1, 16, 40, 60)))).seeded_constants(0)
    draw = np.random.default_rng(0)
    own = {f"i{axis}": draw.integers(0, size, (2 * size, 2)) for axis, size in ((2, 20), (3, 30))}
    program = Program(program.term, constants={**program.constants, **own})
    f = gl.compile(program)
    given = {b.name: draw.standard_normal(tuple(b.dims)).astype(np.float32) for b in f.inputs}
    want = gl.evaluate([program.term], {**program.constants, **given})[0]
    assert np.allclose(f(given, threads=threads), want, atol=1e-4)
    assert f.check().ok


@pytest.mark.needs_compiler
@pytest.mark.parametrize("rows", [1, 7, 4096])
def test_an_index_that_varies_in_no_loop(rows: int) -> None:
    b = gl.Builder("one index")
    x = b.input("x", (rows, 6, 16))
    f = gl.compile(b.finish(layout.gather(x, b.constant("i", (1,), "int64", np.array([-2])), 1)), "none")
    given = np.random.default_rng(0).standard_normal((rows, 6, 16)).astype(np.float32)
    np.testing.assert_array_equal(f(given, threads=2), given[:, [-2]])


@pytest.mark.needs_compiler
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_of_what_is_reversed(axis: int) -> None:
    b = gl.Builder("reversed")
    x, at = b.input("x", (4, 5, 6)), b.input("i", (3,), "int64")
    given, index = np.random.default_rng(axis).standard_normal((4, 5, 6)).astype(np.float32), np.array([-1, 0, 2])
    f = gl.compile(b.finish(layout.gather(layout.flip(x, axis), at, axis)), "none")
    np.testing.assert_array_equal(f(given, index), np.flip(given, axis).take(index, axis))


@pytest.mark.needs_compiler
def test_an_index_outside_is_refused() -> None:
    b = gl.Builder("outside")
    x, at = b.input("x", (4, 8)), b.input("i", (3, 2), "int64")
    program = b.finish(b.reduce_axes("reduce-sum", layout.gather(x, at, 0), [1]))
    f = gl.compile(program, "none")
    with pytest.raises(OutOfBounds, match="indices from -4 to 3"):
        f(np.ones((4, 8), np.float32), np.full((3, 2), 4))
