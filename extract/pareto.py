"""Extraction where two things count that do not add up alike: time, which is a sum, and the most memory at a time.

Each class keeps a set of entries, terms that no other of the class beats in time, peak and bytes held by the result.
What a node makes of entries of its children is told by the caller, who knows what is a view of what; peaks are put
together as the operands are computed: in order, each while the results of those before it are held.

What may be lost: entries beyond `limit` (least time, least peak and least held are always kept, the rest are spread
evenly over time); a choice that pays only because two operands share a term; of two entries that agree
in all three the one stays that allocates less in all, although its result may lie in memory in a worse order for what
follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from extract.graph import arrange
from extract.problem import Problem, postorder

LIMIT = 12
ROUNDS = 4
"""How often classes that need each other are gone through at most; each round allows one more way around."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one node takes by itself: `peak` are bytes beside what its operands hold, `held` the buffers of its result,
    by name, with their bytes.
    """

    time: int
    moved: int
    peak: int
    held: Mapping[int, int]
    value: Any


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
    """Every entry under it that takes anything, itself included, with what it takes by itself."""

    @property
    def order(self) -> tuple[int, ...]:
        """What is compared, the first first; all that is ever allocated matters where the true peak is elsewhere."""
        allocated = sum(step.peak for step in self.used.values())
        return self.time, self.peak, sum(self.held.values()), allocated, self.moved, len(self.used)


Evaluate = Callable[[int, Sequence[Entry]], Step | None]
"""(node, entries of its children) -> what it takes; None for what cannot be used."""


def pareto(
    classes: Sequence[Sequence[int]],
    children: Sequence[Sequence[int]],
    root: int,
    step: Evaluate,
    limit: int = LIMIT,
) -> list[Entry]:
    """The entries of the root, least time first."""
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
    if shared:
        peak = _peak(parts, used, own)
    entry = Entry(node, parts, own.value, time, moved, peak, own.held, used)
    if own.time or own.moved or own.peak:
        used[entry] = own
    return entry


def _peak(parts: Sequence[Entry], used: Mapping[Entry, Step], own: Step) -> int:
    """The most bytes held where operands share entries: each is computed once, and held until it is read last."""
    order = postorder(parts, lambda entry: entry.parts)
    reads = Counter(part for entry in order for part in entry.parts)
    reads.update(parts)
    held: Counter[int] = Counter()
    sizes: dict[int, int] = {}
    live = peak = 0
    for entry in order:
        peak = max(peak, live + (used[entry].peak if entry in used else 0))
        sizes.update(entry.held)
        live += sum(size for name, size in entry.held.items() if not held[name])
        held.update(entry.held.keys())
        for part in entry.parts:
            reads[part] -= 1
            if not reads[part]:
                held.subtract(part.held.keys())
                live -= sum(size for name, size in part.held.items() if not held[name])
    return max(peak, live + own.peak)


def _front(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """Those that no other beats, at most `limit` of them."""
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
