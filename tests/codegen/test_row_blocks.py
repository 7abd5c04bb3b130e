"""Tests two products with the softmax between them, fused by blocks of rows: same numbers, less memory."""

from __future__ import annotations

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.codegen.loop_ir.ir import For, Loops, Nest, Role, Way
from glenside.codegen.passes import fuse_softmax_rows
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program
from glenside.ir.term import build


def _attention(
    rows: int, heads: int, depth: int, *, batch: int = 1, keys: int = 0, mask: bool = False, scores: bool = False
) -> Program:
    """Attention of inputs to others, or to themselves; with `scores` the shares are a result too."""
    b = gl.Builder("attention")
    x = b.input("x", (batch, rows, heads * depth))
    y = b.input("y", (batch, keys, heads * depth)) if keys else x
    masked = b.input("m", (batch, 1, rows, keys or rows)) if mask else None
    if scores:
        q, k = (b.reshape(part, (rows, depth)) for part in (x, y))
        shares = b.softmax(b.matmul(q, b.transpose(k, (1, 0))))
        return Program(build("construct-tuple", b.matmul(shares, k), shares))
    return b.finish(b.attention(x, y, y, heads=heads, mask=masked))


def _drawn(program: Program) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal(t.dims).astype(np.float32) for t in program.tensors.values() if not t.constant]


def _blocks(loops: Loops) -> list[Nest]:
    return [nest for nest in loops.nests if nest.what.startswith("blocks of")]


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    ("rows", "heads", "depth", "more"),
    [
        pytest.param(64, 4, 16, {}, marks=pytest.mark.slow),
        pytest.param(67, 2, 8, {"mask": True}, marks=pytest.mark.slow),
        pytest.param(50, 1, 12, {"batch": 3}, marks=pytest.mark.slow),
        (45, 6, 8, {"keys": 33}),
        pytest.param(197, 1, 16, {}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_rows_are_those_of_the_whole_matrix(
    rows: int, heads: int, depth: int, more: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _attention(rows, heads, depth, **more)  # type: ignore[arg-type]
    arrays = _drawn(program)
    monkeypatch.setattr(fuse_softmax_rows, "predicted_time_alone", lambda nests, _: len(nests))  # whatever prices tell
    found = gl.compile(program, "none")
    (nest,) = _blocks(found.loops)
    assert all(isinstance(loop, For) and loop.way is Way.PARALLEL for loop in nest.body)
    assert max(b.bytes for b in found.loops.buffers) <= 4 * more.get("batch", 1) * rows * max(heads * depth, rows)
    assert faults(found.loops, found.arena) == []
    assert found.check().ok
    monkeypatch.setattr(fuse_softmax_rows, "_ROWS", ())
    whole = gl.compile(program, "none")
    assert not _blocks(whole.loops)
    for threads in (1, 3):
        assert np.array_equal(found(*arrays, threads=threads), whole(*arrays))


@pytest.mark.parametrize("machine", ["avx2", "neon", "avx512"])
@pytest.mark.parametrize(("rows", "heads"), [(512, 4), (256, 1)])
def test_the_matrix_is_never_whole(rows: int, heads: int, machine: str) -> None:
    loops = lower(_attention(rows, heads, 32), MACHINES[machine])
    (nest,) = _blocks(loops)
    whole = 4 * heads * rows * rows
    assert not any(buffer.bytes >= whole for buffer in loops.buffers)
    own = {b for b in fuse_softmax_rows.used_buffers(nest.body) if b.role is Role.SCRATCH}
    assert own
    assert sum(b.bytes for b in own) <= whole // 2
    assert loops.nests.index(nest) == len(loops.nests) - 1


def test_what_somebody_else_reads_is_whole() -> None:
    assert not _blocks(lower(_attention(128, 1, 32, scores=True), MACHINES["avx2"]))


def test_the_prices_of_a_machine_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fusion that is predicted to take longer is not done, however little memory it takes."""
    program, machine = _attention(512, 4, 32), MACHINES["avx2"]
    assert _blocks(lower(program, machine))
    told = fuse_softmax_rows.predicted_time_alone
    monkeypatch.setattr(
        fuse_softmax_rows, "predicted_time_alone", lambda nests, of: told(nests, of) * (9 if len(nests) < 4 else 1)
    )
    assert not _blocks(lower(program, machine))


@pytest.mark.needs_compiler
@pytest.mark.slow
def test_random_attention() -> None:
    draw = np.random.default_rng(7)
    taken = 0
    for _ in range(60):
        rows, keys = (int(n) for n in draw.integers(2, 150, 2))
        heads, depth, batch = int(draw.integers(1, 6)), int(draw.integers(1, 40)), int(draw.integers(1, 3))
        program = _attention(rows, heads, depth, batch=batch, keys=keys, mask=bool(draw.integers(2)))
        arrays = _drawn(program)
        found = gl.compile(program, "none")
        taken += len(_blocks(found.loops))
        want = gl.compile(program, machine="plain")(*arrays)
        assert faults(found.loops, found.arena) == []
        assert np.abs(found(*arrays, threads=2) - want).max() <= 2e-5 * np.abs(want).max()
    assert taken >= 20


@pytest.mark.needs_compiler
@pytest.mark.parametrize("dims", quick([(1, 4, 32, 32), (2, 2, 32, 32), (128, 32)], 2))
def test_scores_may_change_rank_before_the_softmax(dims: tuple[int, ...]) -> None:
    b = gl.Builder("reshaped")
    scores = b.matmul(b.input("q", (4, 32, 16)), b.input("k", (4, 16, 32)))
    shares = b.reshape(b.softmax(b.reshape(scores, dims)), (4, 32, 32))
    assert gl.compile(b.finish(b.matmul(shares, b.input("v", (4, 32, 16)))), "none").check().ok
