"""Tests sums that alternate in one result, such as phases of transposed convolutions: they are stored in place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import glenside as gl
from glenside.builder import layout
from glenside.codegen.loop_ir.affine_analysis import coefficient
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.ir import For, Prefetch, Role, Way
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, is_here
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program

pytestmark = pytest.mark.needs_compiler

HERE = [name for name, machine in MACHINES.items() if is_here(machine)]
WITH_OTHERS = sorted({*HERE[:1], *(name for name in HERE if name == "avx2"), "generic"})


def _phases(channels: int, filters: int, length: int, phases: int) -> Program:
    """Returns windows of two elements, as many products with weights as there are phases, whose elements take turns."""
    n = length - 1
    windows = f"(access-windows (access (access-tensor x) 1) (shape {channels} 2) (shape 1 1))"
    given = f"(access (access-reshape (access {windows} 0) (access-shape (shape) (shape 1 {n} {channels} 2))) 2)"

    def product(phase: int) -> str:
        made = f"(compute dot-product (access-cartesian-product {given} (access (access-tensor w{phase}) 1)))"
        return f"(access (access-reshape (access {made} 0) (access-shape (shape) (shape 1 {n} 1 {filters}))) 4)"

    stacked = product(0)
    for phase in range(1, phases):
        stacked = f"(access-concatenate {stacked} {product(phase)} 2)"
    whole = f"(access-reshape (access {stacked} 0) (access-shape (shape) (shape 1 {n * phases} {filters})))"
    weights = [f"(constant w{phase} (shape {filters} {channels} 2) float32)" for phase in range(phases)]
    tensors = "\n".join([f"(input x (shape 1 {channels} {length}) float32)", *weights])
    return gl.parse(f"{tensors}\n(access-transpose {whole} (list 0 2 1))")


SHAPES = [
    (3, 5, 100, 2),
    pytest.param((7, 33, 70, 3), marks=pytest.mark.slow),
    pytest.param((19, 4, 161, 5), marks=pytest.mark.slow),
    pytest.param((2, 1, 97, 8), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("machine", WITH_OTHERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_phases_are_stored_where_they_are(shape: tuple[int, ...], machine: str) -> None:
    program = _phases(*shape)
    draw = np.random.default_rng(0)  # whole numbers, of which sums are exact
    values = {name: draw.integers(-8, 9, t.dims).astype(t.dtype) for name, t in program.tensors.items()}
    program = replace(program, constants={name: values[name] for name, t in program.tensors.items() if t.constant})
    (want,) = gl.evaluate([program.term], values)
    loops = lower(program, MACHINES[machine])
    assert [nest.what for nest in loops.nests] == ["dot-product in turns"]
    assert faults(loops) == []
    assert not any(buffer.role is Role.TEMPORARY for buffer in loops.buffers)
    assert np.array_equal(interpret(loops, values)[0].reshape(want.shape), want)
    compiled = gl.compile(program, "none", machine=machine)
    assert compiled.check().ok
    for threads in (1, 2):
        assert np.array_equal(compiled(values["x"], threads=threads), want)


def test_what_does_not_take_turns_is_copied() -> None:
    """More phases than a few vectors can store, and phases shorter than these."""
    for shape in ((3, 5, 100, 9), (3, 5, 20, 2)):
        loops = lower(_phases(*shape), MACHINES["avx512"])
        assert len(loops.nests) == shape[-1] + 1


def test_rows_in_other_pages_are_asked_for() -> None:
    """The last element that the next tile reads, for each channel: channels lie in pages of their own."""
    b = gl.Builder("p")
    length, channels = 1 << 14, 32
    x = b.conv(b.input("x", (1, channels, length)), b.constant("w", (48, channels, 2)))
    machine = replace(MACHINES["avx512"], l2=1 << 19)
    loops = lower(b.finish(layout.transpose(x, (0, 2, 1))), machine)
    (nest,) = loops.nests
    first, *_ = nest.body
    assert isinstance(first, For)
    assert first.way is Way.PARALLEL
    found = [s for loop in first.body if isinstance(loop, For) for s in loop.body if isinstance(s, Prefetch)]
    asked = [prefetch for prefetch in found if prefetch.buffer.name == "x"]
    assert len(asked) == 1
    assert asked[0].place.constant == 2 * coefficient(asked[0].place, first.axis)  # with the window's second element


@pytest.mark.parametrize("l1", [3648, 3647])
def test_constants_of_rows_are_packed_if_they_exceed_the_cache(l1: int) -> None:
    loops = lower(_phases(19, 24, 160, 2), replace(MACHINES["avx512"], l1=l1))
    assert {packing.source.bytes for packing in loops.packings} == ({3648} if l1 < 3648 else set())


def test_parts_along_one_axis_take_no_turns() -> None:
    """There is none along which vectors of them lie."""
    text = "(access (access-concatenate (access (access-tensor x) 1) (access (access-tensor y) 1) 0) 0)"
    program = gl.parse(text, shapes={"x": (3,), "y": (5,)})
    x, y = np.arange(3, dtype=np.float32), np.arange(5, dtype=np.float32)
    assert (gl.compile(program, "none")(x, y) == np.concatenate([x, y])).all()
