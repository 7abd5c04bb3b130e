"""Mutates one operator of a gradient: the exact check must find each mutant that numpy can distinguish.

numpy's numbers are normal ones, so that none is at a corner: whether a mask holds of 0 is a convention.
"""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest
from fuzzing import Fuzzing
from hand_gradients import RIGHT
from mutations import NATIVE, differ_on, mutants, network

import glenside as gl
from glenside.check import check_gradient
from glenside.check.confined import Confined
from glenside.check.indices import index_limits, picks
from glenside.ir.dtypes import FLOATS
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, tensors
from glenside.ir.types import Tensor

_TRIALS, _MUTANTS = 12, 6


def drawn(tensor: Tensor, limit: int | Array | None, trial: int, rng: np.random.Generator) -> Array:
    if tensor.dtype not in FLOATS:
        return rng.integers(0, np.maximum(1, 9 if limit is None else limit), tensor.dims).astype(tensor.dtype)
    normal = rng.standard_normal(tensor.dims) * (3 if trial % 2 else 1) + (4 if trial % 3 == 2 else 0)
    return normal.astype(tensor.dtype)


def apart(a: Term, b: Term, seed: int) -> bool:
    limits, confined = index_limits(a, others=[b]), Confined(picks(a))
    leaves = [tensor for leaf in tensors(a, b) if isinstance(tensor := leaf.attributes[0], Tensor)]
    for trial in range(_TRIALS):
        rng = np.random.default_rng([seed, trial])
        values = {t.name: drawn(t, limits.get(t.name), trial, rng) for t in leaves}
        if differ_on(a, b, confined.settle(values, NATIVE) or values):
            return True
    return False


def caught(program: Program, seed: int) -> int:
    """Returns the number of mutants that numpy distinguishes from the gradients; the check must find all of them."""
    wrong = 0
    for name in (n for n, tensor in program.tensors.items() if tensor.dtype in FLOATS):
        (right,) = gl.gradient(program, name, cotangent="u").term.children
        for mutant in islice(mutants(right, random.Random(seed)), _MUTANTS):
            if apart(right, mutant, seed):
                report = check_gradient(program, Program(mutant), name, cotangents=["u"])
                assert report.gradients[name].startswith("differs"), f"{report}\n{Program(right)}\n{Program(mutant)}"
                wrong += 1
    return wrong


def test_mutants_of_gradients_are_caught() -> None:
    assert sum(caught(made().program, 1) for made in RIGHT.values()) > 100


@pytest.mark.slow
def test_mutants_of_many_gradients_are_caught(fuzzing: Fuzzing) -> None:
    count = 0
    for seed in fuzzing.seeds(30, 10):
        found = network(random.Random(seed))
        if any(leaf.access.dtype in FLOATS for leaf in tensors(found)) and found.access.dtype in FLOATS:
            count += caught(Program(found), seed)
        count += sum(caught(made().program, seed) for made in RIGHT.values())
    assert count > 100
    print(f"{count:,} wrong gradients, all caught")
