"""Tests that a result which no nest reads is computed where its operands are in cache."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import glenside as gl
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.ir import Loops, Role
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.passes.hoist_results import hoist_results
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program
from glenside.ir.term import build

MACHINE = MACHINES["avx512"]


def _step(batch: int, *sizes: int) -> Program:
    b = gl.Builder("perceptron")
    value = b.input("x", (batch, sizes[0]))
    for i, (before, after) in enumerate(pairwise(sizes)):
        value = b.linear(value, b.constant(f"w{i}", (after, before)), b.constant(f"c{i}", (after,)), name=f"layer{i}")
        value = b.relu(value) if i < 2 else value
    step = gl.training_step(b.finish(value).seeded_constants(0), "softmax-cross-entropy", gl.SGD("0.1"))
    return step.program


def _written(loops: Loops) -> list[str]:
    return [nest.buffer.name for nest in loops.nests]


def test_new_weights_are_made_before_the_gradients_of_layers_below() -> None:
    """Those of the last layer first; of a layer, its sums of rows before its products, which use more."""
    loops = lower(_step(200, 64, 48, 32, 16), MACHINE)
    made = [nest.buffer for nest in loops.nests if nest.buffer in loops.results[1:]]
    shapes = [tuple(buffer.dims) for buffer in made]
    assert shapes == [(16,), (16, 32), (32,), (32, 48), (48,), (48, 64)]
    assert loops.nests[-1].buffer.role is Role.RESULT
    assert faults(loops, arena(loops)) == []


def test_the_order_changes_no_result() -> None:
    program = _step(24, 20, 33, 18, 7)
    loops = lower(program, MACHINE)
    draw = np.random.default_rng(0)
    given = {
        t.name: draw.integers(0, 7, tuple(t.dims)) if t.dtype == "int64" else draw.standard_normal(tuple(t.dims), "f")
        for t in program.tensors.values()
    }
    want = gl.evaluate([program.term], given)[0]
    for a, b in zip(interpret(loops, given), want, strict=True):
        assert np.allclose(a, b, 1e-4, 1e-5)


def test_what_others_read_stays_where_it_is() -> None:
    """A result of which another one is made; and one that is already early moves no more."""
    b = gl.Builder("p")
    x = b.input("x", (40, 40))
    first = b.matmul(x, x)
    second = b.matmul(first, x)
    third = b.matmul(second, first)
    loops = lower(b.finish(build("construct-tuple", first, second, third)), MACHINE)
    again = hoist_results(Module(loops.nests, loops.packings), MACHINE)
    assert [nest.buffer for nest in again.nests] == [nest.buffer for nest in loops.nests]
    assert [n for n in _written(loops) if n.startswith("result")] == [buffer.name for buffer in loops.results]
