"""Tests where programs are cut into repeated blocks, and that the stages compute what the program does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from deep_programs import deep

import glenside as gl
from glenside.ir.program import Program
from glenside.models.decoder import Decoder, growing_step
from glenside.models.decoder_weights import RandomWeights
from glenside.passes.repeated_blocks import Stage, repeated_blocks


def stages_of(program: Program) -> list[Stage]:
    cut = repeated_blocks(program)
    assert cut is not None
    stages = cut.stages(program)
    assert stages is not None
    return stages


def drawn(program: Program) -> dict[str, np.ndarray]:
    draw, found = np.random.default_rng(0), {}
    for name, tensor in program.inputs.items():
        value = draw.standard_normal(tuple(tensor.dims))
        found[name] = value.astype(np.float32) if tensor.dtype == "float32" else np.abs(value * 9).astype(tensor.dtype)
    return found


def run_in_stages(stages: list[Stage], given: dict[str, np.ndarray], constants: Any) -> dict[int, np.ndarray]:
    """Returns the results of a program by number, each stage evaluated by the interpreter."""
    values: dict[int, np.ndarray] = {}
    results: dict[int, np.ndarray] = {}
    for stage in stages:
        arrays = {}
        for name, of in stage.operands.items():
            arrays[name] = values[of] if isinstance(of, int) else given[of] if of in given else constants[of]
        (own,) = gl.evaluate([stage.program.term], arrays)
        every = own if isinstance(own, tuple) else (own,)
        for array, numbers, value in zip(every, stage.results, stage.values, strict=True):
            results |= dict.fromkeys(numbers, array)
            if value is not None:
                values[value] = array
    return results


def decoder(**more: Any) -> Program:
    shape = Decoder("small", 4, 32, 4, 2, 8, 48, 50, **{"rotated": 8, **more})
    return growing_step(shape, RandomWeights(32, seed=1), 5, 7, 64)


def only_blocks() -> Program:
    b = gl.Builder("blocks")
    x = b.input("x", (5, 8))
    for block in range(4):
        draw = np.random.default_rng(block)
        x = b.add(
            x, b.relu(b.linear(x, b.constant(f"w.{block}", (8, 8), value=draw.standard_normal((8, 8)).astype("f"))))
        )
    return b.finish(x)


PROGRAMS = {
    "nothing but blocks": only_blocks,
    "blocks": lambda: deep(5),
    "blocks with a cache": lambda: deep(5, past=3),
    "shared weights": lambda: deep(5, weights=lambda _: 0),
    "two kinds of blocks in turn": lambda: deep(5, 8, scale=lambda n: (0.5, 0.25)[n % 2]),
    "a decoder": decoder,
    "a decoder with learned positions": lambda: decoder(rotated=0, norm="layer", gated=False),
    "a decoder with a window": lambda: decoder(window=3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_stages_compute_what_the_program_computes(name: str) -> None:
    program = PROGRAMS[name]()
    stages, given = stages_of(program), drawn(program)
    kinds = [stage.kind for stage in stages]
    assert max(map(kinds.count, kinds)) >= 3
    for stage in stages:
        assert stage.program.term is next(one.program.term for one in stages if one.kind == stage.kind)
    (right,) = gl.evaluate([program.term], {**given, **program.constants})
    found = run_in_stages(stages, given, program.constants)
    for number, array in enumerate(right if isinstance(right, tuple) else (right,)):
        np.testing.assert_array_equal(found[number], array)


def test_values_that_several_blocks_read_are_computed_once() -> None:
    program = deep(5)
    stages = stages_of(program)
    readers = {of for stage in stages[1:] for of in stage.operands.values() if isinstance(of, int)}
    passed = [value for value in stages[0].values if value in readers]
    assert len(passed) == 2  # what the first block reads, and the sigmoid of `shift`
    assert "shift" in stages[0].operands.values()
    assert all("shift" not in stage.operands.values() for stage in stages[1:])


def test_each_block_has_its_own_weights() -> None:
    stages = stages_of(deep(5))
    weights = [frozenset(of for of in s.operands.values() if str(of).startswith(("up", "down"))) for s in stages]
    own = [names for names in weights if names]
    assert len(own) == len(set(own)) == 4
    for stage in stages:
        for name, of in stage.operands.items():
            if name in stage.program.constants:
                np.testing.assert_array_equal(stage.program.constants[name], deep(5).constants[str(of)])


NONE = {
    "too few blocks": lambda: deep(5, 2),
    "other numbers, which are in the code": lambda: deep(5, 3, scale=float),
    "a value of the first block that the last one reads": lambda: deep(5, skip=True),
    "no input": lambda: gl.parse("(constant w (shape 2) float32)\n(compute relu (access-tensor w))"),
}


@pytest.mark.parametrize("name", NONE)
def test_other_programs_have_no_blocks(name: str) -> None:
    assert repeated_blocks(NONE[name]()) is None


def test_another_program_is_not_cut_there() -> None:
    cut = repeated_blocks(deep(5))
    assert cut is not None
    assert cut.stages(deep(1)) is not None
    assert cut.stages(decoder()) is None
