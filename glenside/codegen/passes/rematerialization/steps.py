"""Loop nests as steps that may run again: what each reads, writes and costs; and the loops of an order of steps."""

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
    """Nests that run one after the other: those that fill one buffer, where nothing must come between.

    nests    their numbers
    reads, writes  values: temporaries, by number
    after    the steps that must have run
    work     operations of its terms, a multiplication that is added being one
    stored   elements that it stores
    repeats  whether it may run again: it gives no result, and fills what it writes by itself
    over     value that it writes -> those that it reads in whose place it may store that
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
        """What running it again costs: its work; movement costs a little, so that it is not for nothing."""
        return self.work + 1e-3 * self.stored


@dataclass(frozen=True)
class Steps:
    """The steps of loops in the order in which those have them, and their values: the buffers of temporaries.

    sizes   of each value, in lines of the cache
    makers  the steps that write each; those of several makers are never computed again
    """

    loops: Loops
    steps: tuple[Step, ...]
    values: tuple[Buffer, ...]
    sizes: tuple[int, ...]
    makers: tuple[tuple[int, ...], ...]

    @cached_property
    def work(self) -> int:
        """Of each step once."""
        return sum(step.work for step in self.steps)

    def repeats(self, value: int) -> bool:
        """Whether a value may be computed again."""
        return self.steps[self.makers[value][0]].repeats

    def needed_by(self, step: Step) -> int:
        """Lines that one step needs, whatever else is there: what no schedule takes less than."""
        both = sum(self.sizes[v] for v in {*step.reads, *step.writes})
        return both - sum(self.sizes[v] for v, below in step.over.items() if below)

    @cached_property
    def least(self) -> int:
        """Lines that no schedule takes less than."""
        return max((self.needed_by(step) for step in self.steps), default=0)


def steps_of(loops: Loops) -> Steps:
    """The steps of loops."""
    touched = [list(dict.fromkeys(used_buffers(nest.body))) for nest in loops.nests]
    writers: dict[Buffer, list[int]] = {}
    for number, nest in enumerate(loops.nests):
        writers.setdefault(nest.buffer, []).append(number)
    before = [  # what is read was written earlier in the order that is given
        {w for b in touched[n] for w in writers.get(b, ()) if w < n and b is not nest.buffer}
        for n, nest in enumerate(loops.nests)
    ]
    groups = _groups(writers, before)
    of = {nest: number for number, group in enumerate(groups) for nest in group}
    values = tuple(b for b in writers if b.role is Role.TEMPORARY)
    packed = {packing.buffer for packing in loops.packings}  # which are moved, for what computes
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
                {v: tuple(_below(loops, group, touched, values[v], numbers)) for v in writes},
            )
        )
    return Steps(loops, tuple(made), values, tuple(map(lines, values)), makers)


def _below(
    loops: Loops, group: Sequence[int], touched: Sequence[list[Buffer]], buffer: Buffer, numbers: Mapping[Buffer, int]
) -> Iterator[int]:
    """The values that are read by the first nest alone that stores a buffer, and in whose place it may."""
    first, *others = (n for n in group if buffer in touched[n])
    for other in touched[first]:
        if other in numbers and not any(other in touched[n] for n in (*others, *group) if n != first):
            if may_overwrite(loops.nests[first].body, buffer, other):
                yield numbers[other]


def _groups(writers: Mapping[Buffer, Sequence[int]], before: Sequence[set[int]]) -> list[list[int]]:
    """Nests by step: those that fill one buffer, where none needs another one by way of what is not among them."""
    groups = {n: [n] for n in range(len(before))}
    for own in writers.values():
        if len(own) > 1 and not _leads_back(set(own), before):
            joined = sorted({n for w in own for n in groups[w]})
            groups |= dict.fromkeys(joined, joined)
    found = list({id(group): group for group in groups.values()}.values())
    return _sorted(found, before)


def _leads_back(own: set[int], before: Sequence[set[int]]) -> bool:
    """Whether what some nests need, other than each other, needs one of them."""
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
    """Groups so that each comes after what it needs, otherwise by their first nests. Those in a cycle come apart."""
    of = {n: number for number, group in enumerate(groups) for n in group}
    waits = [{of[b] for n in group for b in before[n]} - {number} for number, group in enumerate(groups)]
    left, found = sorted(range(len(groups)), key=lambda g: groups[g][0]), list[list[int]]()
    done: set[int] = set()
    while left:
        at = next((g for g in left if waits[g] <= done), None)
        if at is None:  # two buffers that each need one of the other
            apart = [[n] for group in groups for n in group]
            return sorted(apart)
        left.remove(at)
        done.add(at)
        found.append(groups[at])
    return found


def rescheduled(steps: Steps, order: Sequence[int]) -> Loops:
    """The loops in which steps run in an order, some of them again: these fill buffers of their own."""
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
