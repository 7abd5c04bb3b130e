"""Tests fused bands of nests, computed one step of an axis at a time: results do not change."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.codegen.c_library.export import library
from glenside.codegen.loop_ir.ir import For, Loops, Role, Way
from glenside.codegen.passes import fuse_producer_consumer
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, machine_of
from glenside.codegen.runtime.compile_and_load import compiler, flags
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program

pytestmark = pytest.mark.needs_compiler


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands where they do not pay either."""
    for name in ("_LEAST_BYTES", "_LEAST_ROWS", "_LEAST_BANDS"):
        monkeypatch.setattr(fuse_producer_consumer, name, 1)


def _separable(channels: int, made: int, rows: int, columns: int, window: int, stride: int) -> Program:
    """Returns a depthwise convolution, and a product of each pixel."""
    b = gl.Builder("separable")
    deep = b.constant("deep", (channels, 1, window, window))
    x = b.input("x", (1, channels, rows, columns))
    x = b.relu(b.conv(x, deep, strides=stride, padding=window // 2, groups=channels))
    return b.finish(b.relu(b.conv(x, b.constant("wide", (made, channels, 1, 1))))).seeded_constants(0)


def _taken_together(loops: Loops) -> Iterator[str]:
    return (nest.what for nest in loops.nests if nest.what.startswith("bands of"))


def _agrees(program: Program, target: gl.CPU | None = None) -> Loops:
    (tensor,) = (t for t in program.tensors.values() if not t.constant)
    x = np.random.default_rng(0).standard_normal(tensor.dims).astype(np.float32)
    want = gl.compile(program, machine="plain")(x)
    found = gl.compile(program, target)
    for threads in (1, 3):
        assert np.abs(found(x, threads=threads) - want).max() <= 2e-5 * np.abs(want).max()
    assert faults(found.loops, found.arena) == []
    assert found.check().ok
    return found.loops


@pytest.mark.usefixtures("every")
@pytest.mark.parametrize(
    "shape",
    quick([(24, 40, 9, 14, 3, 1), (16, 20, 13, 7, 5, 2), (33, 7, 6, 21, 3, 1)], 1),
    ids=str,
)
def test_a_depthwise_convolution_and_the_products_after_it(shape: tuple[int, ...]) -> None:
    loops = _agrees(_separable(*shape))
    assert list(_taken_together(loops))
    (nest,) = (nest for nest in loops.nests if nest.what.startswith("bands of"))
    (loop,) = nest.body
    assert isinstance(loop, For)
    assert loop.way is Way.PARALLEL
    assert Role.SCRATCH in {b.role for b in fuse_producer_consumer.used_buffers(nest.body)}


@pytest.mark.usefixtures("every")
@pytest.mark.parametrize(
    "dims", [(13, 16), *(pytest.param(d, marks=pytest.mark.slow) for d in [(18, 21), (24, 24)])], ids=str
)
def test_what_the_search_found(dims: tuple[int, int]) -> None:
    b = gl.Builder("windows")
    x = b.input("x", (1, 9, *dims))
    for layer, (given, made) in enumerate([(9, 12), (12, 5)]):
        x = b.relu(b.conv(x, b.constant(f"w{layer}", (made, given, 3, 3)), padding=1))
    assert list(_taken_together(_agrees(b.finish(x).seeded_constants(0), gl.CPU(balance=0))))


@pytest.mark.usefixtures("every")
def test_what_more_than_one_reads_is_whole() -> None:
    b = gl.Builder("read twice")
    x = b.input("x", (1, 8, 9, 14))
    x = b.relu(b.conv(x, b.constant("deep", (8, 1, 3, 3)), padding=1, groups=8))
    y = b.relu(b.conv(x, b.constant("wide", (8, 8, 1, 1))))
    y = b.relu(b.conv(y, b.constant("next", (8, 8, 3, 3)), padding=1))
    _agrees(b.finish(b.add(y, x)).seeded_constants(0))


def test_bands_are_made_where_what_is_between_is_large() -> None:
    avx2 = MACHINES["avx2"]
    assert list(_taken_together(lower(_separable(64, 64, 56, 56, 3, 1), avx2)))
    assert not list(_taken_together(lower(_separable(16, 16, 14, 14, 3, 1), avx2)))


@pytest.mark.usefixtures("every")
def test_the_same_program_has_the_same_bands() -> None:
    b = gl.Builder("two of a size")
    x = b.input("x", (1, 16, 12, 14))
    first, second, third = (b.conv(x, b.constant(f"w{i}", (24, 16, 1, 1))) for i in range(3))
    program = b.finish(b.add(b.add(b.relu(first), b.relu(second)), b.relu(third))).seeded_constants(0)
    texts = {str(lower(program, MACHINES["avx2"])) for _ in range(12)}
    assert len(texts) == 1
    assert "bands of" in texts.pop()


@pytest.mark.usefixtures("every")
def test_scratch_memory_of_a_file_is_that_of_its_threads(tmp_path: Path) -> None:
    machine = machine_of("native")
    lowered = Lowered(_separable(24, 40, 9, 14, 3, 1), machine)
    assert lowered.arena.scratch
    assert lowered.arena.bytes_of(3) == lowered.arena.size + 3 * lowered.arena.scratch
    made = library([lowered], "net")
    (tmp_path / "net.weights").write_bytes(made.weights)
    for path, text in made.texts.items():
        (tmp_path / path).write_text(text)
    # where variables are, all that -g says, takes minutes
    told = [*compiler(), *flags(machine), "-O1", "-g1", "-fsanitize=address,undefined", "-DNET_MAIN", "net.c"]
    subprocess.run([*told, "-o", "net", "-lm", "-pthread"], cwd=tmp_path, check=True, timeout=300)
    for threads in ("1", "3"):
        words = ["./net", "net.weights", threads]
        ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert (ran.returncode, ran.stderr) == (0, "")
