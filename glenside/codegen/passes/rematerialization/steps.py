"""Groups loop nests into steps that may run again, with reads, writes and cost; rebuilds loops from ordered steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from glenside.analysis.liveness import operations
from glenside.codegen.loop_ir.accesses import used_buffers
from glenside.codegen.loop_ir.ir import Buffer, Loops, Nest, Role
from glenside.codegen.loop_ir.substitute_buffers import with_buffers
from glenside.codegen.memory.buffer_arena import lines
from glenside.codegen.memory.inplace_reuse import may_overwrite


@dataclass(frozen=True)
class Step:
    """Nests that run one after the other: those that fill one buffer, if no other nest must run between them.

    nests    numbers of the nests
    reads, writes  numbers of values (temporaries)
    after    the steps that must have run before
    work     operations of its terms; a multiply-add counts as one
    stored   elements that it stores
    repeats  True if it may run again: it fills no result, and no other step fills its values
    over     written value -> read values that it may overwrite in place
    """

    nests: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: frozenset[int]
    work: int
    stored: int
    repeats: bool
    over: Mapping[int, tuple[int, ...]]

    @property
    def cost(self) -> float:
        """The cost of running it again: its work, and a little for each stored element, so that no step is free."""
        return self.work + 1e-3 * self.stored


@dataclass(frozen=True)
class Steps:
    """The steps of loops in the given order, and their values: the buffers of temporaries.

    sizes   cache lines of each value
    makers  steps that write each value; a value of several makers is never recomputed
    """

    loops: Loops
    steps: tuple[Step, ...]
    values: tuple[Buffer, ...]
    sizes: tuple[int, ...]
    makers: tuple[tuple[int, ...], ...]

    @cached_property
    def work(self) -> int:
        """The work of running each step once."""
        return sum(step.work for step in self.steps)

    def repeats(self, value: int) -> bool:
        """True if a value may be recomputed."""
        return self.steps[self.makers[value][0]].repeats

    def needed_by(self, step: Step) -> int:
        """Returns the lines that one step needs by itself: a lower bound for any schedule."""
        both = sum(self.sizes[v] for v in {*step.reads, *step.writes})
        return both - sum(self.sizes[v] for v, below in step.over.items() if below)

    @cached_property
    def least(self) -> int:
        """A lower bound on the lines of any schedule."""
        return max((self.needed_by(step) for step in self.steps), default=0)


def steps_of(loops: Loops) -> Steps:
    """Groups the nests of loops into steps."""
    touched = [list(dict.fromkeys(used_buffers(nest.body))) for nest in loops.nests]
    writers: dict[Buffer, list[int]] = {}
    for number, nest in enumerate(loops.nests):
        writers.setdefault(nest.buffer, []).append(number)
    before = [  # earlier writers, in the given order, of the buffers that it reads
        {w for b in touched[n] for w in writers.get(b, ()) if w < n and b is not nest.buffer}
        for n, nest in enumerate(loops.nests)
    ]
    groups = _groups(writers, before)
    of = {nest: number for number, group in enumerate(groups) for nest in group}
    values = tuple(b for b in writers if b.role is Role.TEMPORARY)
    packed = {packing.buffer for packing in loops.packings}  # whose nests only copy
    own = {nest.terms[0]: nest for nest in loops.nests if nest.terms and nest.buffer not in packed}
    numbers = {buffer: number for number, buffer in enumerate(values)}
    makers = tuple(tuple(dict.fromkeys(of[n] for n in writers[b])) for b in values)
    made = []
    for number, group in enumerate(groups):
        nests = [loops.nests[n] for n in group]
        writes = tuple(dict.fromkeys(numbers[n.buffer] for n in nests if n.buffer in numbers))
        reads = dict.fromkeys(numbers[b] for n in group for b in touched[n] if b in numbers)
        terms = {t for n in nests if n.buffer not in packed for t in n.terms if own.get(t, n) in nests}
        made.append(
            Step(
                tuple(group),
                tuple(v for v in reads if v not in writes),
                writes,
                frozenset(of[b] for n in group for b in before[n]) - {number},
                sum(map(operations, terms)),
                sum(values[v].dims.product() for v in writes),
                all(n.buffer in numbers for n in nests) and all(len(makers[v]) == 1 for v in writes),
                {v: tuple(_overwritable(loops, group, touched, values[v], numbers)) for v in writes},
            )
        )
    return Steps(loops, tuple(made), values, tuple(map(lines, values)), makers)


def _overwritable(
    loops: Loops, group: Sequence[int], touched: Sequence[list[Buffer]], buffer: Buffer, numbers: Mapping[Buffer, int]
) -> Iterator[int]:
    """Yields the values that the first nest to store a buffer may overwrite in place.

    No other nest of the step may read them.
    """
    first, *others = (n for n in group if buffer in touched[n])
    for other in touched[first]:
        if other in numbers and not any(other in touched[n] for n in (*others, *group) if n != first):
            if may_overwrite(loops.nests[first].body, buffer, other):
                yield numbers[other]


def _groups(writers: Mapping[Buffer, Sequence[int]], before: Sequence[set[int]]) -> list[list[int]]:
    """Groups nests that fill one buffer into a step, unless one of them depends on another through a nest outside."""
    groups = {n: [n] for n in range(len(before))}
    for own in writers.values():
        if len(own) > 1 and not _depends_on_itself(set(own), before):
            joined = sorted({n for w in own for n in groups[w]})
            groups |= dict.fromkeys(joined, joined)
    found = list({id(group): group for group in groups.values()}.values())
    return _sorted(found, before)


def _depends_on_itself(own: set[int], before: Sequence[set[int]]) -> bool:
    """True if nests of `own` depend, through nests outside `own`, on one of `own`."""
    stack, seen = [n for w in own for n in before[w] if n not in own], set[int]()
    while stack:
        at = stack.pop()
        if at in own:
            return True
        if at not in seen:
            seen.add(at)
            stack += [n for n in before[at] if n >= min(own)]
    return False


def _sorted(groups: list[list[int]], before: Sequence[set[int]]) -> list[list[int]]:
    """Sorts groups topologically, ties by first nest; if groups form a cycle, each nest becomes a group of its own."""
    of = {n: number for number, group in enumerate(groups) for n in group}
    waits = [{of[b] for n in group for b in before[n]} - {number} for number, group in enumerate(groups)]
    left, found = sorted(range(len(groups)), key=lambda g: groups[g][0]), list[list[int]]()
    done: set[int] = set()
    while left:
        at = next((g for g in left if waits[g] <= done), None)
        if at is None:  # two buffers that depend on each other
            apart = [[n] for group in groups for n in group]
            return sorted(apart)
        left.remove(at)
        done.add(at)
        found.append(groups[at])
    return found


def rescheduled(steps: Steps, order: Sequence[int]) -> Loops:
    """Returns the loops of an order of steps; a repeated step fills new buffers."""
    loops, now = steps.loops, dict[Buffer, Buffer]()
    nests: list[Nest] = []
    added: list[Buffer] = []
    count: dict[int, int] = {}
    for number in order:
        step = steps.steps[number]
        count[number] = count.get(number, 0) + 1
        if count[number] > 1:
            new = {b: replace(b, name=f"{b.name}.again{count[number]}") for b in (steps.values[v] for v in step.writes)}
            added += new.values()
            now |= new
        nests += [_with_buffers(loops.nests[n], now) for n in step.nests]
    return replace(loops, nests=tuple(nests), buffers=(*loops.buffers, *added))


def _with_buffers(nest: Nest, now: Mapping[Buffer, Buffer]) -> Nest:
    made = with_buffers(nest, now)
    return replace(made, what=f"{nest.what}, again") if nest.buffer in now else made
