"""Compares the predicted memory of random programs with their allocations; a budget is kept, or its excess reported."""

from __future__ import annotations

import random

import numpy as np
import pytest
from allocations import inputs, measured_peak, tiled
from fuzzing import Fuzzing
from memory_programs import Networks

import glenside as gl
from glenside.analysis.liveness import bookkeeping, peak_bytes
from glenside.ir.program import Program
from glenside.semantics import Native
from glenside.semantics.interpreter import Run, evaluate


class _Elsewhere(Native):
    """The same numbers, each result in an array of its own."""


def differs(program: Program) -> str:
    """Returns predicted and measured bytes if they differ by more than 1 % and 64 KB; otherwise ""."""
    told, measured = peak_bytes(program.term).bytes + bookkeeping(program), measured_peak(program)
    return "" if abs(told - measured) <= max(0.01 * measured, 64 << 10) else f"told {told:,}, measured {measured:,}"


def ways(seed: int) -> dict[str, Program]:
    """Returns a program as given, and with products in tiles of some rows."""
    program = Networks(seed).program()
    return {"as given": program, **{f"tiles of {rows}": tiled(program, rows) for rows in (1, 40, 100_000)}}


def budgeted(seed: int) -> tuple[int, gl.OptimizationResult]:
    """Draws a budget between the largest result and the memory of the program as written; returns the program chosen
    for it.
    """
    program = Networks(seed).program()
    least = max(term.access.size * 4 for term in (program.term, *program.layers.values()))
    budget = random.Random(seed).randint(least, max(least, peak_bytes(program.term).bytes))
    return budget, gl.optimize(program, gl.CPU(budget), verify=False)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_told_is_allocated(seed: int) -> None:
    assert {name: words for name, program in ways(seed).items() if (words := differs(program))} == {}


def test_a_constant_is_no_reason_to_compute_elsewhere() -> None:
    """A constant of one number counts the same in prediction and run, when it is concatenated with
    computed operands.
    """
    two = "(full (shape 1 20 88 62) 2 float32)"
    doubled = f"(compute elementwise-mul (access-cartesian-product (compute exp (access-tensor x)) {two}))"
    text = f"(input x (shape 1 20 88 62) float32) (access-concatenate (access-tensor x) {doubled} 1)"
    assert differs(gl.parse(text)) == ""


@pytest.mark.slow
def test_what_is_told_of_many_is_allocated(fuzzing: Fuzzing) -> None:
    wrong = [(seed, name, differs(p)) for seed in fuzzing.seeds(200) for name, p in ways(seed).items()]
    assert [found for found in wrong if found[2]] == []


@pytest.mark.slow
def test_budgets_are_held_or_the_excess_is_said(fuzzing: Fuzzing) -> None:
    wrong = []
    for seed in fuzzing.seeds(50):
        budget, answer = budgeted(seed)
        over = measured_peak(answer.program) > budget and not answer.report.notes
        wrong += [(seed, budget, differs(answer.program))] if over or differs(answer.program) else []
    assert wrong == []


@pytest.mark.parametrize("seed", range(8))
def test_results_computed_in_place_are_equal(seed: int) -> None:
    """Whatever is put together: the same numbers, but for the rounding of matrices that BLAS multiplies otherwise."""
    program = tiled(Networks(seed).program().seeded_constants(seed), 40)
    values = {**program.constants, **inputs(program, seed)}
    placed = Run([program.term], values, Native(), {}, keep_roots=True).placement
    (got,), (wanted,) = (evaluate([program.term], values, numbers) for numbers in (Native(), _Elsewhere()))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=f"{len(placed)} results in place")
