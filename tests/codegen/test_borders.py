"""Tests borders that are filled by the threads next to them, and small images whose columns threads share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.codegen.loop_ir.ir import For, Loops, Nest, Way
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program


def _padded(channels: int, rows: int, columns: int, window: int, batch: int = 1) -> Program:
    """Returns a product of each pixel, and a window over it with a border."""
    b = gl.Builder("padded")
    x = b.relu(b.conv(b.input("x", (batch, 48, rows, columns)), b.constant("wide", (channels, 48, 1, 1))))
    deep = b.constant("deep", (channels, 1, window, window))
    return b.finish(b.conv(x, deep, padding=window // 2, groups=channels)).seeded_constants(0)


def _along(nest: Nest) -> list[For]:
    return [loop for loop in nest.body if isinstance(loop, For) and loop.beside is not None]


def _with_border(loops: Loops) -> Nest:
    (nest,) = (nest for nest in loops.nests if _along(nest))
    return nest


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    "shape",
    quick([(96, 14, 14, 3), (160, 7, 7, 5), (64, 9, 23, 7), (33, 13, 11, 3), (256, 5, 6, 3, 2)], 3),
    ids=str,
)
def test_threads_fill_a_border_along_with_what_lies_beside_it(shape: tuple[int, ...]) -> None:
    program = _padded(*shape)
    found = gl.compile(program, "none")
    assert not any(nest.what == "border" for nest in found.loops.nests)
    assert faults(found.loops, found.arena) == []
    (tensor,) = (t for t in program.tensors.values() if not t.constant)
    x = np.random.default_rng(0).standard_normal(tensor.dims).astype(np.float32)
    want = gl.compile(program, machine="plain")(x)
    for threads in (1, 2, 3, 5):
        for _ in range(3):  # what an earlier call left in the arena is no border
            found(np.full_like(x, np.nan), threads=threads)
            assert np.abs(found(x, threads=threads) - want).max() <= 2e-5 * np.abs(want).max()
    assert found.check().ok


def test_a_border_goes_by_rows_or_by_the_panels_that_threads_share() -> None:
    by_rows = _with_border(lower(_padded(96, 14, 14, 3), MACHINES["avx512"]))
    by_panels = _with_border(lower(_padded(320, 7, 7, 3), MACHINES["avx512"]))
    assert {loop.beside[0] for loop in _along(by_rows) if loop.beside} <= {16, 256}
    (main,) = (loop for loop in by_panels.body if isinstance(loop, For) and loop not in _along(by_panels))
    assert main.axis.size == 10
    assert {loop.beside for loop in _along(by_panels)} == {(10, 0)}


def test_few_rows_are_not_shared_where_there_are_more_panels() -> None:
    """49 pixels are four tiles, of which two threads would take one and two, and one of them the last one alone."""
    (nest, *_) = (n for n in lower(_padded(320, 7, 7, 3), MACHINES["avx512"]).nests)
    shared = [s for s in nest.body if isinstance(s, For) and s.way is Way.PARALLEL and s.beside is None]
    assert [loop.axis.size for loop in shared] == [10]


@pytest.mark.parametrize("change", ["overlap", "parts", "alone"])
def test_a_loop_that_must_not_go_along_is_found(change: str) -> None:
    loops = lower(_padded(96, 14, 14, 3), MACHINES["avx512"])
    nest = _with_border(loops)
    main, *along = nest.body
    assert isinstance(main, For)
    body = {
        "overlap": (main, replace(main, beside=(main.axis.size, 0)), *along),
        "parts": (main, *(replace(loop, beside=(1, 1)) for loop in along if isinstance(loop, For))),
        "alone": (replace(main, way=Way.LOOP), *along),
    }[change]
    wrong = tuple(replace(n, body=body) if n is nest else n for n in loops.nests)
    said = "\n".join(faults(replace(loops, nests=wrong)))
    assert " runs beside " in said, said
