"""Where temporaries lie: as little memory as can be, held to every order of placing; over operands that end."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from fuzzing import Fuzzing
from slow_cases import quick

import glenside as gl
from glenside.builder import layout
from glenside.codegen.loop_ir.ir import Buffer
from glenside.codegen.memory import offset_assignment
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.memory.offset_assignment import Interval, Plan, needed, placed
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, machine_of
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.program import Program

BEYOND_ORDERS = {
    (25, 25): "6 2-4, 2 6-6, 5 4-8, 6 1-1, 6 2-6, 5 0-2, 1 6-8, 2 2-6, 3 1-3, 1 5-8, 2 2-4, 4 3-6",
    (10, 10): "3 0-1, 2 5-5, 4 0-4, 1 3-5, 3 4-5, 1 3-5, 3 5-5",
}
"""What no order that is tried reaches; height and bound."""


def _intervals(text: str) -> tuple[Interval, ...]:
    rows = [word.replace("-", " ").split() for word in text.split(",")]
    return tuple(Interval(*map(int, row)) for row in rows)


def _drawn(seed: int, count: int, times: int, most: int) -> tuple[Interval, ...]:
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        first = draw.randrange(times)
        found.append(Interval(draw.randint(1, most), first, min(times - 1, first + draw.randrange(5))))
    return tuple(found)


def _least(intervals: tuple[Interval, ...]) -> int:
    """Returns the least height over all stacking orders; the order of addresses in a best plan gives its height."""
    every, near = itertools.permutations(range(len(intervals))), offset_assignment._meeting(intervals)
    return min(
        offset_assignment._height(intervals, offset_assignment._stacked(intervals, near, order)) for order in every
    )


def _holds(intervals: tuple[Interval, ...], plan: Plan) -> None:
    for (a, low), (b, high) in itertools.combinations(zip(intervals, plan.places, strict=True), 2):
        assert not a.meets(b) or low + a.size <= high or high + b.size <= low
    assert plan.height == max(place + i.size for place, i in zip(plan.places, intervals, strict=True))
    assert needed(intervals) <= plan.bound <= plan.height


@pytest.mark.parametrize("seed", range(40))
def test_no_order_is_better(seed: int) -> None:
    intervals = _drawn(seed, 2 + seed % 6, 7, 6)
    plan = placed(intervals)
    _holds(intervals, plan)
    assert plan.height == plan.bound == _least(intervals)


@pytest.mark.parametrize(("least", "text"), BEYOND_ORDERS.items())
def test_an_exact_search_finds_what_orders_miss(least: tuple[int, int], text: str) -> None:
    intervals = _intervals(text)
    plan = placed(intervals)
    _holds(intervals, plan)
    assert (plan.height, plan.bound) == least
    assert offset_assignment._height(intervals, offset_assignment._improved(intervals, needed(intervals))) > plan.height
    short = placed(intervals, 3)  # no time to search: what orders find, and what is known of the least
    _holds(intervals, short)
    assert short.height > short.bound == needed(intervals)


@pytest.mark.slow
def test_large_plans_hold(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(20):
        intervals = _drawn(seed, 30 + seed % 120, 10 + seed % 70, 1000)
        _holds(intervals, placed(intervals))


def _branches(seed: int, steps: int) -> Program:
    """Convolutions, sums, pools and concatenations of what came before, at random."""
    draw, b = random.Random(seed), gl.Builder("branches")
    made = [(b.conv(b.input("x", (1, 4, 12, 12)), b.constant("w", (8, 4, 3, 3)), padding=1), 8)]
    for number in range(steps):
        x, channels = draw.choice(made[-5:])
        kind = draw.choice(("conv", "conv", "join", "add", "pool"))
        if kind == "conv":
            window, count = draw.choice((1, 3)), draw.choice((4, 8, 16, 24))
            weight = b.constant(f"w{number}", (count, channels, window, window))
            made.append((b.relu(b.conv(x, weight, padding=window // 2)), count))
        elif kind == "join":
            other, more = draw.choice(made[-5:])
            made.append((layout.concatenate([x, other], 1), channels + more))
        elif kind == "add":
            other = draw.choice([y for y, count in made if count == channels])
            made.append((b.add(x, other), channels))
        else:
            made.append((b.max_pool(x, 3, strides=1, padding=1), channels))
    return b.finish(layout.concatenate([x for x, _ in made[-3:]], 1)).seeded_constants(seed)


def _checked(program: Program, machine: str) -> None:
    lowered = Lowered(program, MACHINES[machine])
    assert faults(lowered.loops, lowered.arena) == []
    assert lowered.arena.size == lowered.arena.bound, lowered.arena


@pytest.mark.parametrize("seed", range(4))
def test_branches_take_the_least(seed: int) -> None:
    _checked(_branches(seed, 10), "avx512")


@pytest.mark.slow
def test_many_branches_take_the_least(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(10):
        _checked(_branches(seed, 10 + seed % 30), ("avx512", "generic")[seed % 2])


def _residual() -> Program:
    b = gl.Builder("residual")
    x = b.relu(b.conv(b.input("x", (1, 8, 20, 20)), b.constant("a", (16, 8, 1, 1))))
    for name in ("b", "c", "d"):
        y = b.relu(b.conv(x, b.constant(f"{name}1", (4, 16, 1, 1))))
        x = b.relu(b.add(b.conv(y, b.constant(f"{name}2", (16, 4, 1, 1))), x))
    return b.finish(b.conv(x, b.constant("e", (8, 16, 1, 1)))).seeded_constants(0)


def test_a_sum_is_stored_over_its_operand() -> None:
    program = _residual()
    loops = lower(program, machine_of("avx2"))
    plan = arena(loops)
    assert len(plan.in_place) >= 2
    assert all(plan.places[over] == plan.places[under] for over, under in plan.in_place.items())
    whole = 16 * 20 * 20 * 4
    assert plan.size == plan.bound < 2 * whole
    assert faults(loops, plan) == []


def test_nothing_else_is_stored_over_what_is_read() -> None:
    """What reads its neighbours, or in another order, needs them until its end."""
    b = gl.Builder("p")
    x = b.relu(b.input("x", (1, 8, 20, 20)))
    loops = lower(b.finish(b.relu(b.max_pool(x, 3, strides=1, padding=1))), MACHINES["generic"])
    plan = arena(loops)
    pairs: list[tuple[Buffer, Buffer]] = []
    for one, other in itertools.combinations(plan.places, 2):
        if one.dims.product() == other.dims.product():
            pairs.append((one, other))
            assert faults(loops, replace(plan, places={**plan.places, one: plan.places[other]}))
    assert not plan.in_place


@pytest.mark.needs_compiler
@pytest.mark.parametrize("program", quick([_residual(), _branches(3, 12)], 0), ids=["residual", "branches"])
def test_what_is_stored_in_place_is_right(program: Program) -> None:
    compiled = gl.compile(program, "none")
    x = np.random.default_rng(0).standard_normal(tuple(program.inputs["x"].dims)).astype(np.float32)
    want = gl.evaluate([program.term], {**program.constants, "x": x})[0]
    for threads in (1, 2):
        assert np.allclose(compiled(x, threads=threads), want, 1e-4, 1e-5)
    assert compiled.check().ok
