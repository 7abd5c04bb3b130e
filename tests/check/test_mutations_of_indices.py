"""Tests that wrong programs with computed indices are never called equal, and that equal ones always are."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from fuzzing import Fuzzing
from indexed_programs import equal_ones, indexed, is_exact
from mutations import mutants, unseen
from test_gradient_mutants import apart

import glenside as gl
from glenside.check import check, check_gradient, is_equal
from glenside.ir.dtypes import FLOATS
from glenside.ir.program import Program
from glenside.ir.term import Term

COUNT, GRADIENTS = 6, 4
PARTS = 4  # tests that share the slow seeds


def legal(pick: random.Random) -> Term:
    """Returns a program that some inputs are valid for."""
    while not check(Program(term := indexed(pick)), Program(term), layers=False).ok:
        pass
    return term


def missed(seed: int) -> tuple[int, list[str]]:
    """Returns the number of mutants of one program that numpy distinguishes, and those of them
    that the check misses.
    """
    pick = random.Random(seed)
    term = legal(pick)
    exact = (mutant for mutant in mutants(term, pick) if is_exact(mutant))
    return unseen(term, islice(exact, COUNT), seed)


def alarms(seed: int, count: int) -> list[str]:
    """What the check says of programs that are equal to one, and differ in how."""
    pick = random.Random(seed)
    term = legal(pick)
    found = []
    for names, other in islice(equal_ones(term, pick), count):
        verdict = check(Program(term), Program(other), layers=False).result
        if not is_equal(verdict):
            found.append(f"seed {seed}, {names}, {verdict}:\n{Program(term)}\n{Program(other)}")
    return found


def test_no_mutant_of_an_index_is_called_equal() -> None:
    judged = [missed(seed) for seed in range(2)]
    assert sum(wrong for wrong, _ in judged) > 5
    assert [text for _, texts in judged for text in texts] == []


def test_equal_indices_are_called_equal() -> None:
    assert alarms(0, 2) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_mutant_of_many_indices_is_called_equal(part: int, fuzzing: Fuzzing) -> None:
    """None of the committed seeds, some 5,000 mutants; of others at most 1 of 1,000."""
    judged = [missed(seed + part) for seed in fuzzing.seeds(1200 // PARTS, step=PARTS)]
    found = [text for _, texts in judged for text in texts]
    wrong = sum(count for count, _ in judged)
    assert len(found) <= wrong / 1000 * (fuzzing.seed is not None), f"{len(found)} of {wrong}, such as\n{found[0]}"
    print(f"{wrong:,} wrong programs, all seen")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_equal_indices_are_called_equal(part: int, fuzzing: Fuzzing) -> None:
    found = [text for seed in fuzzing.seeds(1000 // PARTS, step=PARTS) for text in alarms(seed + part, 2)]
    assert not found, f"{len(found)}, such as\n{found[0]}"


# Gradients.


def judged_gradients(seed: int) -> tuple[int, list[str]]:
    """Returns the number of mutants that numpy distinguishes from the gradients of one program, and the wrong verdicts
    on mutants and on right gradients.
    """
    program = Program(legal(random.Random(seed)))
    names = [name for name, tensor in program.tensors.items() if tensor.dtype in FLOATS]
    wrong, found = 0, []
    for name in names if program.term.access.dtype in FLOATS else ():
        gradient = gl.gradient(program, name, cotangent="u")
        report = check_gradient(program, gradient, name)
        if not report.ok:
            found.append(f"seed {seed}, {report}:\n{program}\n{gradient}")
        (right,) = gradient.term.children
        for mutant in islice(mutants(right, random.Random(seed)), GRADIENTS):
            if apart(right, mutant, seed):
                wrong += 1
                verdict = check_gradient(program, Program(mutant), name, cotangents=["u"]).gradients[name]
                if not verdict.startswith("differs"):
                    found.append(f"seed {seed}, {name}, {verdict}:\n{program}\n{Program(mutant)}")
    return wrong, found


def test_gradients_above_indices_are_told_from_wrong_ones() -> None:
    judged = [judged_gradients(seed) for seed in range(2)]
    assert sum(wrong for wrong, _ in judged) > 3
    assert [text for _, texts in judged for text in texts] == []


@pytest.mark.slow
def test_many_gradients_above_indices_are_told_from_wrong_ones(fuzzing: Fuzzing) -> None:
    judged = [judged_gradients(seed) for seed in fuzzing.seeds(200)]
    found = [text for _, texts in judged for text in texts]
    assert not found, f"{len(found)} of {sum(wrong for wrong, _ in judged)}, such as\n{found[0]}"
