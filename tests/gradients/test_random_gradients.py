"""Tests gradients of random programs: against differences, and forward mode against reverse mode."""

from __future__ import annotations

import numpy as np
import pytest
from differences import difference, doubled, results
from fuzzing import Fuzzing
from random_terms import STEPS, drawn

import glenside as gl
from glenside.ir.program import Program
from glenside.ir.term import Term

KNOWN = tuple(name for name in STEPS if "opaque" not in name)


def _agrees(term: Term, seed: int) -> bool:
    """True if there was something finite to compare."""
    program = doubled(Program(term))
    random = np.random.default_rng(seed)
    values = {name: random.uniform(-1.5, 1.5, tensor.dims) for name, tensor in program.tensors.items()}
    names = [*values]
    direction = {name: random.standard_normal(values[name].shape) for name in names}
    found = results(program, values)[0]
    (change,) = difference(program, values, direction)
    if not np.isfinite(found).all() or np.abs(found).max(initial=0) > 1e4:
        return False
    cotangent = random.standard_normal(found.shape)
    gradients = results(gl.gradient(program, names, cotangent="g"), {**values, "g": cotangent})
    forward = gl.jvp(program, names)
    tangent = results(forward, {**values, **{f"{n}.tangent": d for n, d in direction.items()}})[1]
    scale = 1 + np.abs(change).max(initial=0)
    np.testing.assert_allclose(tangent / scale, change / scale, atol=1e-5, err_msg=str(program))
    back = sum(float(np.sum(direction[n] * g)) for n, g in zip(names, gradients, strict=True))
    there = float(np.sum(cotangent * tangent))
    size = sum(float(np.sum(np.abs(direction[n] * g))) for n, g in zip(names, gradients, strict=True))
    assert abs(back - there) <= 1e-10 * (1 + size), str(program)
    return True


def test_random_programs() -> None:
    compared = sum(_agrees(term, seed) for seed, term in enumerate(drawn(11, 120, operators=KNOWN)))
    assert compared > 80


@pytest.mark.slow
def test_many_random_programs(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(30):
        for term in drawn(seed, 100, operators=KNOWN):
            _agrees(term, seed)
