"""Tests that the output of `export_jax` computes in JAX what the program means. Optional: see spu_simulation.py for the
environment it needs.

Optional: see spu_simulation.py for the environment it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import spu_simulation
from compute_examples import COMPUTES as COMPUTE_EXAMPLES
from example_values import VALUES
from operator_examples import OPERATORS as OPERATOR_EXAMPLES
from random_terms import terms, values_for
from spu_simulation import Job

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program
from glenside.ir.term import Term

USES = pytest.mark.usefixtures("spu")


def test_without_the_environment_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(spu_simulation.VARIABLE, raising=False)
    assert "does not name" in (spu_simulation.missing() or "")
    monkeypatch.setenv(spu_simulation.VARIABLE, "/nowhere/python")
    assert "does not run" in (spu_simulation.missing() or "")
    monkeypatch.setenv(spu_simulation.VARIABLE, sys.executable)
    reason = spu_simulation.missing()
    assert reason is None or "has no SPU" in reason or "not 0.9.5" in reason


def disagreeing(programs: Sequence[tuple[str, Program, Mapping[str, Array]]]) -> list[str]:
    """Those of which JAX gives another result than the interpreter."""
    jobs = [Job(gl.export_jax(p), [values[name] for name in p.tensors], (), None) for _, p, values in programs]
    outcomes = spu_simulation.run(jobs)
    return [
        name
        for (name, p, values), outcome in zip(programs, outcomes, strict=True)
        if not all(map(_same, arrays(gl.evaluate([p.term], values)[0]), outcome.values))
    ]


def _same(want: Array, got: Array) -> bool:
    if want.shape != got.shape or want.dtype != got.dtype:
        return False
    if want.dtype.kind != "f":
        return bool((want == got).all())
    return np.allclose(want, got, 1e-3 if want.dtype == np.float16 else 1e-5, 1e-6, equal_nan=True)


@USES
def test_examples_of_every_operator_in_jax() -> None:
    found = []
    for table in (OPERATOR_EXAMPLES, COMPUTE_EXAMPLES):
        for name, examples in table.items():
            for number, example in enumerate(examples):
                program = Program(example.term)
                try:
                    gl.export_jax(program)
                except BadInput:
                    continue
                found.append((f"{name} {number}", program, VALUES))
    assert len(found) > 150
    assert disagreeing(found) == []


@USES
def test_random_terms_in_jax() -> None:
    found = [(str(i), Program(term), values_for(term, seed=i)) for i, term in enumerate(_drawn(60))]
    assert disagreeing(found) == []


def _drawn(count: int) -> list[Term]:
    """Returns random terms that can be exported; hypothesis draws them, none is made smaller."""
    from hypothesis import HealthCheck, Phase, given, settings

    kept: list[Term] = []

    @settings(
        max_examples=2 * count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(terms())
    def draw(term: Term) -> None:
        try:
            gl.export_jax(Program(term))
        except BadInput:
            return
        kept.append(term)

    draw()
    assert len(kept) >= count
    return kept[:count]
