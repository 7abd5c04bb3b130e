"""Tests that programs with one fault are never called equal, and that equal programs always are."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from equal_rewrites import equals
from fuzzing import Fuzzing
from mutations import mutants, network, unseen

from glenside.check import check, is_equal
from glenside.ir.program import Program

COUNT = 5
PARTS = 4  # tests that share the slow seeds


def missed(seed: int) -> tuple[int, list[str]]:
    """Returns the number of mutants of one network that numpy distinguishes, and those of them
    that the check misses.
    """
    pick = random.Random(seed)
    term = network(pick)
    return unseen(term, islice(mutants(term, pick), COUNT), seed)


def alarms(seed: int) -> list[str]:
    """What the check says of programs that are equal to one network, and differ in how."""
    pick = random.Random(seed)
    term = network(pick)
    found = []
    for names, other in islice(equals(term, pick), 2):
        verdict = check(Program(term), Program(other), layers=False).result
        if not is_equal(verdict):
            found.append(f"seed {seed}, {names}, {verdict}:\n{Program(term)}\n{Program(other)}")
    return found


def test_no_mutant_is_called_equal() -> None:
    judged = [missed(seed) for seed in range(8)]
    assert sum(wrong for wrong, _ in judged) > 20
    assert [text for _, texts in judged for text in texts] == []


def test_what_is_equal_is_called_equal() -> None:
    assert [text for seed in range(2) for text in alarms(seed)] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [379, 1138, 1664])
def test_what_was_called_equal_before(seed: int) -> None:
    """Hard cases: only a sum of exactly 0 shows the difference; only windows of few positions, after two clips; only
    one integer of 256.
    """
    assert missed(seed)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_few_mutants_of_many_are_called_equal(part: int, fuzzing: Fuzzing) -> None:
    """None of those of the committed seeds; of others at most 1 of 500."""
    judged = [missed(seed + part) for seed in fuzzing.seeds(1000 // PARTS, step=PARTS)]
    found = [text for _, texts in judged for text in texts]
    wrong = sum(count for count, _ in judged)
    assert len(found) <= wrong / 500 * (fuzzing.seed is not None), f"{len(found)} of {wrong}, such as\n{found[0]}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_equal_of_many_is_called_equal(part: int, fuzzing: Fuzzing) -> None:
    found = [text for seed in fuzzing.seeds(200 // PARTS, step=PARTS) for text in alarms(seed + part)]
    assert not found, f"{len(found)}, such as\n{found[0]}"
