"""Tests that programs with a plausibly wrong step are never called equal, and that programs with a rewritten step
always are.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

import equal_steps
import pytest
import wrong_integer_steps
import wrong_steps
from fuzzing import Fuzzing
from mutations import differ_on, unseen
from stepped_programs import REAL, Pair, Place, Step, chosen, ended, floats, is_smooth, tensor, times, whole_numbers

from glenside.builder.pointwise import cast
from glenside.builder.products import matmul
from glenside.check import check, is_equal
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.term import Term

Steps = Mapping[str, Step]
PARTS = 4  # tests that share the slow seeds
COUNT = 6  # steps at the end of one beginning


def pairs(seed: int, count: int, moved: Steps, decided: Steps, integers: Steps) -> Iterator[tuple[str, Pair]]:
    """Yields names of steps, and two programs that have one or the other of its terms at one place."""
    pick = random.Random(seed)
    x = whole_numbers(pick) if pick.random() < 0.35 else floats(pick)
    steps = integers if x.access.dtype != REAL else moved if is_smooth(x) else {**moved, **decided}
    for name in pick.sample(list(steps), count):
        try:
            one, other = steps[name](Place(x, pick))
        except (GlensideError, IndexError):  # too small for it
            continue
        if one is not other and one.type == other.type:
            yield name, ended(pick, one, other)


def apart(a: Term, b: Term, seed: int) -> bool:
    """True if numpy distinguishes two terms on chosen numbers."""
    return any(differ_on(a, b, values) for values in chosen(a, b, seed))


def missed(seed: int) -> tuple[int, list[str]]:
    """Returns the number of pairs of a right and a wrong step that numpy distinguishes, and those that the check
    misses.
    """
    wrong, found = 0, []
    for name, (a, b) in pairs(seed, COUNT, wrong_steps.MOVED, wrong_steps.DECIDED, wrong_integer_steps.INTEGERS):
        count, texts = unseen(a, [b], seed, apart)
        wrong += count
        found += [f"{name}, {text}" for text in texts]
    return wrong, found


def alarms(seed: int) -> tuple[int, list[str]]:
    """Returns the number of pairs of equal steps, and the check's report on those that it calls different."""
    equal, found = 0, []
    for name, (a, b) in pairs(seed, 2, equal_steps.MOVED, equal_steps.DECIDED, equal_steps.INTEGERS):
        equal += 1
        verdict = check(Program(a), Program(b), layers=False).result
        if not is_equal(verdict):
            found.append(f"{name}, seed {seed}, {verdict}:\n{Program(a)}\n{Program(b)}")
    return equal, found


def summed(judged: Iterable[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    counts, texts = zip(*judged, strict=True)
    return sum(counts), [text for some in texts for text in some]


def test_no_wrong_step_is_called_equal() -> None:
    wrong, found = summed(missed(seed) for seed in range(12))
    assert wrong > 40
    assert found == []


def test_what_is_equal_is_called_equal() -> None:
    equal, found = summed(alarms(seed) for seed in range(3))
    assert equal > 3
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_few_wrong_steps_of_many_are_called_equal(part: int, fuzzing: Fuzzing) -> None:
    """None of those of the committed seeds; of others at most 1 of 500."""
    wrong, found = summed(missed(seed + part) for seed in fuzzing.seeds(400 // PARTS, step=PARTS))
    print(f"{wrong} wrong steps, {len(found)} called equal")
    assert len(found) <= wrong / 500 * (fuzzing.seed is not None), f"{len(found)} of {wrong}, such as\n{found[0]}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_equal_steps_of_many_are_called_equal(part: int, fuzzing: Fuzzing) -> None:
    equal, found = summed(alarms(seed + part) for seed in fuzzing.seeds(400 // PARTS, step=PARTS))
    print(f"{equal} equal steps, {len(found)} called different")
    assert not found, f"{len(found)} of {equal}, such as\n{found[0]}"


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_large_numbers_that_cancel_are_not_called_different(dtype: str) -> None:
    """Among products of numbers about 2**31 there are some of which nobody knows the last digits."""
    x = matmul(tensor("w", (3, 9)), tensor("x", (9, 8))).result
    one, other = (Program(cast(y, dtype)) for y in (x, times(times(x, "1/3"), 3)))
    assert all(is_equal(check(one, other, seed=seed).result) for seed in (0, 8))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 2056, 2074, 2260, 8030])
def test_what_was_called_equal_before(seed: int) -> None:
    """Only positions of the larger of two sums that are close show it; halves of numbers below 8; one number of 65,536;
    a window that wraps as a whole; one that is within a 32nd above a number.
    """
    assert missed(seed)[1] == []
