"""Programs that are wrong in one place are never called exact, and those that are equal are."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from mutations import apart, mutants, network

from glenside.check import EXACT, check
from glenside.ir.program import Program

COUNT = 5


def missed(seed: int) -> list[str]:
    """Mutants of one network that numpy tells from it, and the check does not."""
    pick = random.Random(seed)
    term = network(pick)
    found = []
    for mutant in islice(mutants(term, pick), COUNT):
        if apart(term, mutant, seed) and check(Program(term), Program(mutant), layers=False).result == EXACT:
            found.append(f"seed {seed}:\n{Program(term)}\n{Program(mutant)}")
    return found


MANY = [pytest.param(first, 40, marks=pytest.mark.slow) for first in range(40, 1000, 40)]


@pytest.mark.parametrize(("first", "networks"), [(0, 8), *MANY])
def test_no_mutant_is_called_exact(first: int, networks: int) -> None:
    found = [text for seed in range(first, first + networks) for text in missed(seed)]
    assert not found, f"{len(found)} of {networks * COUNT}, such as\n{found[0]}"
