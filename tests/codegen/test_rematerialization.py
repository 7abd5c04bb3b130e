"""Tests rematerialization within a budget: same bits, least work among all schedules, and bounds."""

from __future__ import annotations

import heapq
import random
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.codegen.loop_ir.ir import Loops
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.passes.rematerialization.initial_order import ordered
from glenside.codegen.passes.rematerialization.live_sets import Run, unfolded
from glenside.codegen.passes.rematerialization.plan import in_blocks, planned, scheduled_within
from glenside.codegen.passes.rematerialization.steps import Step, Steps, rescheduled, steps_of
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import PLAIN, machine_of
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.scheduling import constant_packing
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.errors import BadInput
from glenside.ir.program import Program


def _chain(batch: int = 3) -> Program:
    """Convolutions one after the other, with a way around two of them."""
    b = gl.Builder("chain")
    x = b.input("x", (batch, 3, 12, 12))
    x = b.relu(b.conv(x, b.constant("a", (8, 3, 3, 3)), padding=1))
    for name in "bcd":
        x = b.relu(b.add(b.conv(x, b.constant(name, (8, 8, 3, 3)), padding=1), x))
    x = b.relu(b.conv(x, b.constant("e", (12, 8, 3, 3)), strides=2))
    return b.finish(b.linear(b.reshape(x, (batch, 300)), b.constant("f", (10, 300)))).seeded_constants(0)


def _joined() -> Program:
    """Builds a network in which an early result is concatenated with one computed from it."""
    b = gl.Builder("joined")
    x = b.input("x", (2, 4, 10, 10))
    x = b.relu(b.conv(x, b.constant("a", (6, 4, 3, 3)), padding=1))
    y = b.relu(b.conv(b.max_pool(x, 2, strides=2), b.constant("b", (6, 6, 3, 3)), padding=1))
    y = b.conv_transpose(y, b.constant("c", (6, 6, 2, 2)), strides=2)
    x = b.relu(b.conv(b.concatenate([x, y], 1), b.constant("d", (5, 12, 3, 3)), padding=1))
    return b.finish(b.reshape(x, (2, 500))).seeded_constants(1)


def _dense() -> Program:
    b = gl.Builder("dense")
    x = b.input("x", (64, 20))
    for name in "abcdef":
        x = b.tanh(b.linear(x, b.constant(name, (20, 20))))
    return b.finish(x).seeded_constants(2)


def _step(network: Callable[[], Program]) -> tuple[Program, dict[str, Any]]:
    step = gl.training_step(network(), "squared-error", gl.Momentum("0.01"))
    draw = np.random.default_rng(0)
    given = {t.name: draw.standard_normal(t.dims).astype(t.dtype) for t in step.program.inputs.values()}
    return step.program, given


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    ("network", "machine"),
    quick([(_chain, "plain"), (_joined, "native"), (_dense, "plain")], 2, unpacked=True),
)
def test_bits_are_as_before_and_the_budget_is_held(network: Callable[[], Program], machine: str) -> None:
    program, given = _step(network)
    free = gl.compile(program, "none", machine=machine)
    whole = Lowered(free.program, free.machine)
    steps, beside = steps_of(whole.loops), whole.memory - whole.arena.size
    most = beside + (3 * ordered(steps).peak + steps.least) * 64 // 4
    held = gl.compile(program, "none", machine=machine, memory=most)
    schedule = held.report.schedule
    assert schedule is not None
    assert schedule.holds
    assert schedule.again
    assert held.report.arena.size + beside <= most < whole.memory
    assert "computed again" not in str(free.report)
    assert "Computed again" in str(held.report)
    assert f"State: {sum(a.nbytes for n, a in given.items() if n not in ('x', 'labels')):,} bytes" in str(held.report)
    want, got = free(given), held(given)
    assert len(want) == len(got) > 6
    for one, other in zip(want, got, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.needs_compiler
def test_what_is_computed_again_is_checked_exactly() -> None:
    program, _ = _step(_dense)
    free = Lowered(program, machine_of("native"))
    checked = gl.compile(program, "none", memory=free.memory * 2 // 3).check()
    assert checked.residues == "exact"
    assert not checked.faults


@pytest.mark.needs_compiler
def test_memory_that_is_told_is_what_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """By numpy, which says so, and as pages of the system."""
    pages: list[int] = []
    map_pages = constant_packing._mapped
    monkeypatch.setattr(constant_packing, "_mapped", lambda size: pages.append(size) or map_pages(size))
    program, given = _step(lambda: _chain(96))
    held = gl.compile(program, "none", machine=PLAIN, memory=Lowered(program, None).memory * 2 // 3)
    assert held.report.schedule is not None
    assert held.report.schedule.holds
    tracemalloc.start()
    results = held(given, threads=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    told = held.report.arena.bytes_of(1) + sum(np.asarray(r).nbytes for r in results)
    begins = 2 << 20  # at a large page
    assert abs(peak + sum(pages) - begins - told) <= told // 100


def test_a_budget_that_cannot_be_held_says_what_can() -> None:
    loops = lower(_step(_chain)[0], machine_of("native"))
    steps = steps_of(loops)
    made, schedule = scheduled_within(loops, 64)
    assert not schedule.holds
    assert schedule.any_order
    assert schedule.least == steps.least * 64 <= schedule.peak < schedule.kept
    assert f"no schedule takes less than {schedule.least:,}" in str(schedule)
    assert faults(made, arena(made)) == []


@pytest.mark.parametrize("memory", [0, -1, "much"])
def test_budgets_that_are_none(memory: int | str) -> None:
    with pytest.raises(BadInput, match="a memory budget is"):
        gl.compile(_dense(), "none", memory=memory)


def test_a_target_has_its_own_budget() -> None:
    with pytest.raises(BadInput, match="cpu:1MB has a budget of its own"):
        gl.compile(_dense(), gl.CPU("1MB"), memory="1MB")


@pytest.mark.parametrize(("network", "machine"), [(_chain, PLAIN), (_joined, "avx512")])
def test_any_order_of_steps_is_a_program(network: Callable[[], Program], machine: str) -> None:
    """Steps in a random valid order, with randomly dropped values, read what was written."""
    loops = lower(_step(network)[0], None if machine == PLAIN else machine_of(machine))
    steps, draw = steps_of(loops), random.Random(0)
    for _ in range(3):
        order = _any_order(steps, draw)
        values = [v for v in range(len(steps.values)) if steps.repeats(v)]
        dropped = {draw.randrange(len(order)): set(draw.sample(values, len(values) // 3)) for _ in range(3)}
        run = unfolded(steps, order, dropped)
        made = rescheduled(steps, run.order)
        assert any(run.again)
        assert faults(made, arena(made)) == []
        assert run.peak * 64 >= arena(made).bound  # steps of several nests free what they read at their end


def _any_order(steps: Steps, draw: random.Random) -> list[int]:
    done: list[int] = []
    left = set(range(len(steps.steps)))
    while left:
        ready = sorted(n for n in left if steps.steps[n].after <= set(done))
        done.append(draw.choice(ready))
        left.remove(done[-1])
    return done


def test_blocks_are_computed_again_at_once() -> None:
    steps = steps_of(lower(_step(_dense)[0], machine_of("native")))
    once, blocks = ordered(steps), in_blocks(steps, ordered(steps))
    assert blocks.peak < once.peak
    assert 1 < sum(blocks.again) < len(steps.steps)


# Small graphs, against every schedule.


def _drawn(seed: int) -> Steps:
    """Returns a chain that is read again in the other order, with some more reads, as a backward pass has them."""
    draw, length = random.Random(seed), random.Random(seed).choice([3, 4, 5])
    steps: list[Step] = []
    for number in range(2 * length):
        mirror = 2 * length - 1 - number
        reads = {number - 1, mirror} if number >= length else {number - 1}
        reads |= {draw.randrange(number)} if number and draw.random() < 0.3 else set()
        own = tuple(sorted(v for v in reads if 0 <= v < number))
        over = {number: tuple(draw.sample(own, 1)) if own and draw.random() < 0.3 else ()}
        after = frozenset(own)
        steps.append(Step((number,), own, (number,), after, draw.randint(1, 9), 0, number < length, over))
    sizes = [draw.randint(1, 6) for _ in steps]
    for number, step in enumerate(steps):  # in place of what has the same size
        steps[number] = step.__class__(**{**vars(step), "over": _same(step, sizes)})
    makers = tuple((number,) for number in range(len(steps)))
    nothing = cast(Loops, SimpleNamespace(nests=()))
    return Steps(nothing, tuple(steps), cast(Any, tuple(range(len(steps)))), tuple(sizes), makers)


def _same(step: Step, sizes: list[int]) -> dict[int, tuple[int, ...]]:
    return {v: tuple(u for u in below if sizes[u] == sizes[v]) for v, below in step.over.items()}


def _least_work(steps: Steps, order: tuple[int, ...], most: int) -> float:
    """Of every schedule in which steps run first in an order: by all that may be in memory, the cheapest first."""
    heap: list[tuple[float, int, frozenset[int]]] = [(0.0, 0, frozenset())]
    seen: set[tuple[int, frozenset[int]]] = set()
    while heap:
        cost, place, there = heapq.heappop(heap)
        if place == len(order):
            return cost
        if (place, there) in seen:
            continue
        seen.add((place, there))
        for value in there:
            heapq.heappush(heap, (cost, place, there - {value}))
        for number in {order[place], *(n for n in order[:place] if steps.steps[n].repeats)}:
            step = steps.steps[number]
            (own,) = step.writes
            if not there >= set(step.reads) or (own in there):
                continue
            new = number == order[place]
            paid = cost + (0 if new else step.cost)
            if sum(steps.sizes[v] for v in there | {own}) <= most:
                heapq.heappush(heap, (paid, place + new, there | {own}))
            for below in step.over[own]:
                if sum(steps.sizes[v] for v in (there | {own}) - {below}) <= most:
                    heapq.heappush(heap, (paid, place + new, (there | {own}) - {below}))
    return float("inf")


@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_for_every_schedule(seed: int) -> None:
    steps = _drawn(seed)
    once = ordered(steps)
    found = 0
    for most in range(steps.least - 1, once.peak + 1):
        least = _least_work(steps, once.order, most)
        told = planned(steps, most, seconds=5.0)
        own = sum(
            steps.steps[n].cost for n, again in zip(told.order, Run(steps, told.order).again, strict=True) if again
        )
        if told.holds:
            assert told.peak <= most * 64
            assert told.bound - steps.work <= least + 1e-6 <= own + 2e-6
            found += own <= least * 1.001 + 1e-4
        else:
            assert told.least > most * 64 or least == float("inf") or told.least <= told.peak
            if least < float("inf"):
                assert told.least <= most * 64
    assert found


def test_what_is_packed_is_no_work_of_its_own() -> None:
    """A product whose weights are packed at every step multiplies once."""
    b = gl.Builder("packed")
    x, w = b.input("x", (64, 48)), b.input("w", (48, 32))
    program = b.finish(b.relu(b.linear(b.relu(x), b.transpose(b.relu(w), (1, 0)))))
    loops = lower(program, machine_of("avx512"))
    of_products = 64 * 48 * 32 + 64 * 48 + 48 * 32 + 64 * 32
    assert steps_of(loops).work == of_products, str(loops)
    b = gl.Builder("convolution")
    x, w = b.input("x", (4, 16, 4, 4)), b.input("w", (32, 16, 3, 3))
    loops = lower(b.finish(b.conv(x, w, padding=1)), machine_of("avx512"))
    assert loops.packings
    assert steps_of(loops).work == 4 * 32 * 16 * 16 * 9
