"""Extracts by two objectives that compose differently: time, which is a sum, and peak memory.

Each class keeps a Pareto front of entries: terms that no other term of the class dominates in time, peak and bytes held
by the result. The caller computes the cost of a node from entries of its children, since it knows which results are
views. Peaks are composed in the order of the operands: each is computed while the results of those before it are held.

The search may lose: entries beyond `limit` (least time, least peak and least held are always kept, the rest are spread
evenly over time); a choice that pays only because two operands share a term; and, of two entries that agree in all
three, the one that allocates more in all, although the layout of its result may suit its consumers better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any

from glenside.extract.graph import arrange
from glenside.extract.problem import Problem, postorder

LIMIT = 12
ROUNDS = 4
"""Maximum number of rounds over classes that need each other; each round allows one more pass through the cycle."""


class Storing(Enum):
    """The buffers in which a node may store its result."""

    NOWHERE = "in a buffer of its own"
    ANYWHERE = "in any buffer that is given"
    VIEW = "where its only operand is"
    GATHERS = "in any buffer that is given, its operands in parts of it"


@dataclass(frozen=True, slots=True)
class Step:
    """The cost of one node: `peak` is bytes beside those that its operands hold, `held` the bytes of each buffer of its
    result.
    """

    time: int
    moved: int
    peak: int
    held: Mapping[int, int]
    value: Any
    storing: Storing = Storing.NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A way to compute a class."""

    node: int
    parts: tuple[Entry, ...]
    value: Any
    time: int
    moved: int
    peak: int
    held: Mapping[int, int]
    used: Mapping[Entry, Step]
    """Entries below this one with a cost, itself included, and their own costs."""
    places: Mapping[int, int]
    """buffer -> the buffer that contains it, for the entries below this one."""
    can_be_placed: bool

    @property
    def order(self) -> tuple[int, ...]:
        """The sort key of entries. It includes all bytes allocated, which matter if the peak is elsewhere in the
        program.
        """
        allocated = sum(step.peak for step in self.used.values())
        return self.time, self.peak, sum(self.held.values()), allocated, self.moved, len(self.used)


Evaluate = Callable[[int, Sequence[Entry]], Step | None]
"""(node, entries of its children) -> its cost; None if the node cannot be used."""


def pareto(
    classes: Sequence[Sequence[int]],
    children: Sequence[Sequence[int]],
    root: int,
    step: Evaluate,
    limit: int = LIMIT,
) -> list[Entry]:
    """Returns the entries of the root, least time first."""
    kids = [tuple(own) for own in children]
    problem = Problem(tuple(map(tuple, classes)), tuple(kids), ((0,),) * len(kids), (root,))
    live = arrange(problem, problem.classes, [tuple(dict.fromkeys(own)) for own in kids])
    fronts: list[list[Entry]] = [[] for _ in classes]
    made: dict[tuple[int, tuple[Entry, ...]], Entry | None] = {}

    def renewed(eclass: int) -> list[Entry]:
        found = list(fronts[eclass])
        for node in live.nodes[eclass]:
            for parts in product(*(fronts[c] for c in kids[node])):
                if (node, parts) not in made:
                    made[node, parts] = entry = _entry(node, parts, step)
                    found += [entry] if entry is not None else []
        return _front(found, limit)

    for group in live.order:
        for _ in range(ROUNDS if len(group) > 1 else 1):
            before = len(made)
            for eclass in group:
                fronts[eclass] = renewed(eclass)
            if len(made) == before:
                break
    return fronts[root]


def _entry(node: int, parts: tuple[Entry, ...], step: Evaluate) -> Entry | None:
    own = step(node, parts)
    if own is None:
        return None
    peak, shared = 0, False
    held: dict[int, int] = {}
    used: dict[Entry, Step] = {}
    for i, part in enumerate(parts):
        if part in parts[:i]:
            continue
        shared |= not used.keys().isdisjoint(part.used)
        peak = max(peak, sum(held.values()) + part.peak)
        held.update(part.held)
        used.update(part.used)
    time = sum(s.time for s in used.values()) + own.time
    moved = sum(s.moved for s in used.values()) + own.moved
    peak = max(peak, sum(held.values()) + own.peak)
    places: Mapping[int, int] = {part: whole for p in parts for part, whole in p.places.items()}
    if own.storing is Storing.GATHERS:
        peak, places = _gathered(parts, used, own, places)
    elif shared or places:
        peak = _peak(parts, used, own, places)
    can_be_placed = own.storing in (Storing.ANYWHERE, Storing.GATHERS)
    can_be_placed |= own.storing is Storing.VIEW and all(p.can_be_placed for p in parts)
    entry = Entry(node, parts, own.value, time, moved, peak, own.held, used, places, can_be_placed)
    if own.time or own.moved or own.peak:
        used[entry] = own
    return entry


def _gathered(
    parts: Sequence[Entry], used: Mapping[Entry, Step], own: Step, places: Mapping[int, int]
) -> tuple[int, Mapping[int, int]]:
    """Returns the least peak and its in-place buffers: each operand from some position on is computed in the result."""
    (whole,) = own.held
    ways = []
    for first in range(len(parts) + 1):
        placed = [p for i, p in enumerate(parts) if i >= first and p.can_be_placed and parts.count(p) == 1]
        here = {**places, **{name: whole for p in placed if len(p.held) == 1 for name in p.held}}
        ways.append((_peak(parts, used, own, here), here))
    return min(ways, key=lambda way: way[0])


def _peak(parts: Sequence[Entry], used: Mapping[Entry, Step], own: Step, places: Mapping[int, int]) -> int:
    """Returns the peak in bytes if operands share entries or buffers: each entry is computed once, and held until its
    last read; a buffer inside another one counts as that one.
    """
    order = postorder(parts, lambda entry: entry.parts)
    reads = Counter(part for entry in order for part in entry.parts)
    reads.update(parts)
    held: Counter[int] = Counter()
    sizes = {name: size for step in (*used.values(), own) for name, size in step.held.items()}
    live = peak = 0

    def buffers(names: Mapping[int, int]) -> set[int]:
        return {_outermost(name, places) for name in names}

    def most(names: Mapping[int, int], peak: int) -> int:
        """Returns the bytes of a step with these results; results inside other buffers need no buffers of their own."""
        in_place = [name for name in names if name in places or held[name]]
        new = sum(sizes[name] for name in buffers(names) if in_place and not held[name])
        return live + new + peak - min(peak, sum(sizes[name] for name in in_place))

    for entry in order:
        if entry in used:
            peak = max(peak, most(entry.held, used[entry].peak))
        names = buffers(entry.held)
        live += sum(sizes.get(name, 0) for name in names if not held[name])
        held.update(names)
        for part in entry.parts:
            reads[part] -= 1
            if not reads[part]:
                names = buffers(part.held)
                held.subtract(names)
                live -= sum(sizes.get(name, 0) for name in names if not held[name])
    return max(peak, most(own.held, own.peak))


def _outermost(name: int, places: Mapping[int, int]) -> int:
    while name in places:
        name = places[name]
    return name


def _front(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """Returns the entries that no other dominates, at most `limit` of them."""
    kept: list[Entry] = []
    for entry in sorted(entries, key=lambda e: e.order):
        held = sum(entry.held.values())
        if not any(k.time <= entry.time and k.peak <= entry.peak and k.order[2] <= held for k in kept):
            kept.append(entry)
    if len(kept) <= limit:
        return kept
    always = {kept.index(min(kept, key=lambda e: e.order[part])) for part in range(3)}
    spread = [i * (len(kept) - 1) // (limit - 1) for i in range(limit)]
    chosen = [*always, *(i for i in spread if i not in always)][:limit]
    return [kept[i] for i in sorted(chosen)]
