"""Tests constant folding: rearranged weights become constants, the program computes the same, nothing else moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import glenside as gl
from glenside.builder import Builder
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.passes.constant_folding import fold
from glenside.semantics.interpreter import evaluate


def _depthwise(values: bool = True) -> Program:
    b = Builder("depthwise")
    value = np.random.default_rng(0).standard_normal((6, 1, 3, 3)).astype("float32") if values else None
    x = b.input("x", (1, 6, 7, 9))
    return b.finish(b.relu(b.conv(x, b.constant("w", (6, 1, 3, 3), value=value), padding=1, groups=6, name="dw")))


@pytest.mark.slow
def test_rearranged_weights_become_constants() -> None:
    result = gl.optimize(_depthwise(), gl.SystolicArray(16, 16))
    assert "regrouped" in str(gl.optimize(_depthwise(), gl.SystolicArray(16, 16), explain=True).report.layers[0].rules)
    folded = fold(result.program)
    assert [name for name in folded.constants_declared] == ["folded.1"]
    assert folded.constants["folded.1"].size > 6 * 9  # block-diagonal, or repeated
    x = {"x": np.random.default_rng(1).standard_normal((1, 6, 7, 9)).astype("float32")}
    before, after = (evaluate([p.term], {**p.constants, **x})[0] for p in (result.program, folded))
    assert np.array_equal(before, after)
    assert len(str(folded)) < len(str(result.program))
    assert str(fold(folded)) == str(folded)


def test_a_constant_without_a_value_is_named() -> None:
    result = gl.optimize(_depthwise(values=False), gl.SystolicArray(16, 16))
    with pytest.raises(BadInput, match="the constant w"):
        fold(result.program)


def test_what_is_no_constant_stays() -> None:
    program = gl.parse("(compute relu (access-tensor x))", shapes={"x": (3,)})
    assert fold(program).term is program.term


def test_a_layer_that_is_no_part_of_the_program_keeps_what_has_no_value() -> None:
    """As of a program that was folded: what only its layers name is gone from its constants, and its name is taken."""
    b = Builder("p")
    gone = b.relu(b.constant("folded.1", (4,)))
    program = b.finish(b.add(b.input("x", (3,)), b.relu(b.constant("w", (3,), value=np.ones(3, np.float32)))))
    folded = fold(replace(program, layers={"gone": gone}))
    assert folded.layers == {"gone": gone}
    assert folded.constants.keys() == {"folded.1'"}
