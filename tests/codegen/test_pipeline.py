"""Tests the pipeline of loop passes: each optional pass can be left out, and programs stay correct."""

from __future__ import annotations

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.ir import Loops
from glenside.codegen.loop_ir.pass_observer import observed
from glenside.codegen.pipeline import NAMES, OPTIONAL, PIPELINE, lower
from glenside.codegen.processor.model import MACHINES
from glenside.ir.errors import BadInput
from glenside.ir.program import Program

MACHINE = MACHINES["avx2"]
pytestmark = pytest.mark.usefixtures("shared_by_price")


def _network() -> Program:
    """Padded and depthwise convolutions of which one follows the other, and products of what both are."""
    b = gl.Builder("p")
    y = b.relu(b.conv(b.input("x", (1, 8, 34, 34)), b.constant("w", (8, 8, 3, 3)), padding=1))
    y = b.conv(y, b.constant("v", (8, 1, 3, 3)), padding=1, groups=8)
    return b.finish(b.conv(y, b.constant("u", (16, 8, 1, 1))))


@pytest.mark.parametrize("name", OPTIONAL)
def test_programs_are_right_without_a_pass(name: str) -> None:
    program = _network().seeded_constants(0)
    seen: list[str] = []
    with observed(lambda own, _: seen.append(own)):
        loops = lower(program, MACHINE, without=[name])
    assert seen == [own for own in ("lower", *(one.name for one in PIPELINE)) if own != name]
    given = {
        n: np.random.default_rng(0).normal(size=tuple(t.dims)).astype("f") for n, t in program.tensors.items()
    } | dict(program.constants)
    want = gl.evaluate([program.term], given)
    for a, b in zip(interpret(loops, given), want, strict=True):
        assert np.allclose(a, b, 1e-4, 1e-5)


def test_loops_are_seen_after_each_pass() -> None:
    after: dict[str, Loops] = {}
    with observed(after.__setitem__):
        loops = lower(_network(), MACHINE)
    assert after.keys() <= set(NAMES)
    assert str(after[PIPELINE[-1].name]) == str(loops)


def test_passes_that_are_left_out_change_the_loops() -> None:
    whole, serial = lower(_network(), MACHINE), lower(_network(), MACHINE, without=["fuse-padding"])
    assert len(serial.nests) >= len(whole.nests)


@pytest.mark.parametrize("name", ["fuse-paddings", "name-packings", "lower", ""])
def test_only_optional_passes_can_be_left_out(name: str) -> None:
    with pytest.raises(BadInput, match="passes that can be left out are"):
        lower(_network(), MACHINE, without=[name])


def test_compiled_functions_tell_the_seconds_of_stages() -> None:
    f = gl.compile(_network().seeded_constants(0), "none", without=["parallelize"])
    assert {"lower", "verify", "emit-c", "plan-memory"} <= f.report.passes.keys()
    assert "parallelize" not in f.report.passes
    assert "Lowering: " in str(f.report)
