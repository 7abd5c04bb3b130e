"""Schedules loops within a memory budget: each step once if possible, else with the least recomputation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isqrt
from time import thread_time

from glenside.codegen.loop_ir.ir import Loops
from glenside.codegen.memory.buffer_arena import LINE, arena
from glenside.codegen.passes.rematerialization.greedy import small, within
from glenside.codegen.passes.rematerialization.initial_order import ordered
from glenside.codegen.passes.rematerialization.live_sets import Run, unfolded
from glenside.codegen.passes.rematerialization.mip import Retention
from glenside.codegen.passes.rematerialization.steps import Steps, rescheduled, steps_of

SECONDS = 20.0
"""Default limit on processor seconds for a plan; the integer program takes most of them."""
_OPTIMALITY_GAP = 1e-4
"""Optimality gap, as a fraction of all work, at which the search stops."""
_CUTS_PER_ROUND = 3
"""Cuts added in one round."""
_MAX_TRIES = 4
"""Attempts with budgets lowered by the arena's excess over the peak (fragmentation)."""
_LOWERING_DIVISOR = 200
"""A budget is lowered by at least 1/`_LOWERING_DIVISOR` of it."""
_BISECTIONS = 6
"""Bisections of the interval that contains the least feasible budget."""


@dataclass(frozen=True)
class Schedule:
    """An order of steps, its peak memory and its work.

    order       step numbers; a step that occurs twice is recomputed
    budget      requested bytes of temporaries
    peak        bytes of temporaries live at one time
    given       peak of the given order
    kept        peak of the best order found that runs each step once
    work        multiply-adds, and other operations on elements
    work_once   work of running each step once
    bound       lower bound on the work of any schedule within the budget with the same order of first runs
    least       lower bound on the bytes of such a schedule; on those of any order if `any_order` is set
    again       number of repeated steps
    seconds     processor seconds of the search
    """

    order: tuple[int, ...]
    budget: int
    peak: int
    given: int
    kept: int
    work: int
    work_once: int
    bound: float
    least: int
    any_order: bool
    again: int
    seconds: float

    @property
    def gap(self) -> float:
        """The optimality gap: how far `work` is above `bound`, as a fraction of `bound`."""
        return max(0.0, self.work - self.bound) / max(self.bound, 1)

    @property
    def holds(self) -> bool:
        """True if the peak is within the budget."""
        return self.peak <= self.budget

    def __str__(self) -> str:
        more = 100 * (self.work - self.work_once) / max(self.work_once, 1)
        lines = [
            f"Schedule: {self.peak:,} bytes needed at a time; each nest once needs {self.given:,} as they were, and"
            f" {self.kept:,} in the best order found."
        ]
        if self.again:
            lines.append(
                f"Computed again: {self.again} steps, {more:.2f} % more multiply-adds ({self.work:,} instead of"
                f" {self.work_once:,})."
            )
        if self.holds and self.again:
            lines.append(
                f"No schedule in this order within {self.budget:,} bytes takes fewer than {self.bound:,.0f}: a gap of"
                f" {100 * self.gap:.2f} %."
            )
        if not self.holds:
            whose = "no schedule takes" if self.any_order else "no schedule in this order takes"
            lines.append(
                f"A budget of {self.budget:,} bytes for temporaries cannot be held: {whose} less than {self.least:,}."
            )
        return f"{' '.join(lines)} Found in {self.seconds:.1f} s of the processor."


@dataclass
class _Found:
    """The best run within a budget, the run of the lowest peak, and the lower bound on the cost within the budget."""

    best: Run | None
    lowest: Run
    bound: float = 0.0

    def add(self, run: Run, most: int) -> None:
        if run.peak <= most and (self.best is None or run.cost < self.best.cost):
            self.best = run
        if (run.peak, run.cost) < (self.lowest.peak, self.lowest.cost):
            self.lowest = run


def scheduled_within(loops: Loops, most: int, seconds: float = SECONDS) -> tuple[Loops, Schedule]:
    """Returns loops whose temporaries take at most `most` bytes, or the least found; and their schedule."""
    steps, begin = steps_of(loops), thread_time()
    lines = max(0, most) // LINE
    plan = first = planned(steps, lines, seconds)
    made = rescheduled(steps, plan.order)
    best = arena(made).size, made, plan
    for number in range(_MAX_TRIES):
        above, left = best[0] - most, seconds - (thread_time() - begin)
        if above <= 0 or not plan.holds or left <= 0:
            break
        lines -= max(-(-above // LINE) * (number + 1), lines // _LOWERING_DIVISOR)
        plan = planned(steps, lines, left)
        made = rescheduled(steps, plan.order)
        best = min(best, (arena(made).size, made, plan), key=lambda one: one[0])
    _, made, plan = best
    kept = replace(plan, budget=first.budget, bound=first.bound, least=first.least, any_order=first.any_order)
    return made, replace(kept, seconds=thread_time() - begin)


def planned(steps: Steps, lines: int, seconds: float = SECONDS) -> Schedule:
    """Returns the schedule of least work within `lines` cache lines; of the lowest peak if none is found."""
    begin = thread_time()
    once = ordered(steps)
    found, least, any_order = _search(steps, once, lines, begin + seconds), steps.least, True
    if found.best is None:
        least, any_order = _lower_bound(steps, once, lines, found, begin + seconds)
    run = found.best or found.lowest
    given = Run(steps, tuple(range(len(steps.steps))))
    bound = min(float(run.work), steps.work + (0.0 if found.bound == inf else found.bound))
    return Schedule(
        run.order,
        lines * LINE,
        run.peak * LINE,
        given.peak * LINE,
        once.peak * LINE,
        run.work,
        steps.work,
        bound,
        least * LINE,
        any_order,
        sum(run.again),
        thread_time() - begin,
    )


def _lower_bound(steps: Steps, once: Run, lines: int, found: _Found, until: float) -> tuple[int, bool]:
    """Returns a lower bound on the lines of a schedule, and True if the bound holds for any order.

    Called if no schedule within the budget is known. Adds runs of less memory to `found`.
    """
    low, high = lines + 1 if found.bound == inf else 0, found.lowest.peak
    any_order = low <= steps.least
    low = max(low, steps.least)
    for _ in range(_BISECTIONS):
        if high - low <= high // 100 or thread_time() > until:
            break
        tried = (low + high) // 2
        part = _search(steps, once, tried, until)
        found.add(part.lowest, lines)
        if part.best is not None:
            found.add(part.best, lines)
            high = found.lowest.peak
        elif part.bound == inf:
            low, any_order = tried + 1, False
        else:
            break
    return low, any_order


def _search(steps: Steps, once: Run, most: int, until: float) -> _Found:
    """Searches runs within `most` lines: the integer program with ever more cuts, then greedy drops."""

    def is_late() -> bool:
        return thread_time() > until

    found = _Found(None, once)
    found.add(once, most)
    if once.peak <= most:
        return found
    if steps.least > most:
        found.bound = inf
    order = once.order
    run, _ = within(steps, order, most, is_late)
    found.add(run, most)
    program = Retention(steps, order, most, small(steps, most))
    cuts, spare = [once.place(once.needed.index(once.peak))], dict[int, int]()
    while not is_late() and found.bound < inf:
        left = max(0.1, until - thread_time())
        hint = None if spare else found.best
        choice = program.solved(cuts, spare, left, _OPTIMALITY_GAP, hint)
        if not spare:
            found.bound = max(found.bound, choice.bound)
        if choice.dropped is None:
            break
        run = unfolded(steps, order, choice.dropped)
        found.add(run, most)
        found.add(within(steps, order, most, is_late, choice.dropped)[0], most)
        if run.peak <= most or (found.best and found.best.cost - found.bound <= _OPTIMALITY_GAP * steps.work):
            break
        _add_cuts(run, most, cuts, spare)
    return found


def _add_cuts(run: Run, most: int, cuts: list[int], spare: dict[int, int]) -> None:
    """Adds cuts where a run exceeds the budget; where cuts exist already, reserves space for the steps that rerun."""
    over = sorted((t for t, n in enumerate(run.needed) if n > most), key=lambda t: -run.needed[t])
    added: list[int] = []
    for time in over:
        place = run.place(time)
        near = [place, place - 1] if run.again[time] else [place]
        if not any(abs(p - q) <= _CUTS_PER_ROUND for p in near for q in added):
            added += [p for p in near if p >= 0 and p not in cuts]
        if len(added) >= _CUTS_PER_ROUND:
            break
    if added:
        cuts[:] = sorted({*cuts, *added})
        return
    time = over[0]
    for place in {run.place(time), run.place(time) - 1} & set(cuts):
        spare[place] = spare.get(place, 0) + run.needed[time] - most


def in_blocks(steps: Steps, once: Run, count: int | None = None) -> Run:
    """Applies the usual checkpointing policy (the baseline): cuts the steps before the peak into blocks.

    Default: as many blocks as the square root of the number of steps there. Only values that pass from one block to a
    later one are kept; each block is recomputed as a whole.
    """
    peak_place = once.place(once.kept.index(max(once.kept)))
    large = [
        p for p in range(peak_place) if any(v not in small(steps, once.peak) for v in steps.steps[once.order[p]].writes)
    ]
    blocks = count or max(1, isqrt(len(large)))
    ends = [large[len(large) * k // blocks - 1] for k in range(1, blocks)]
    kept = _values_between_blocks(steps, once.order, peak_place, ends)
    tiny = small(steps, once.peak)
    dropped = {v for v in range(len(steps.values)) if v not in kept and v not in tiny}
    return unfolded(steps, once.order, {peak_place: dropped})


def _values_between_blocks(steps: Steps, order: Sequence[int], peak_place: int, ends: Sequence[int]) -> set[int]:
    """Returns the values made in one block and read in a later one before the peak, and those of the last block."""
    first: dict[int, int] = {}
    found: set[int] = set()
    for place, number in enumerate(order[: peak_place + 1]):
        for value in steps.steps[number].reads:
            if any(first[value] <= end < place for end in ends):
                found.add(value)
        for value in steps.steps[number].writes:
            first[value] = place
            if not ends or place > ends[-1]:
                found.add(value)
    return found
