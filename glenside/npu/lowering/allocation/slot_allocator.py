"""Allocates slots of on-chip memory, and reuses them when their contents are no longer needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush


@dataclass
class _Queue:
    """The slots of one kind, in two heaps. Entries are outdated once their use is no longer the last of the key.

    idle   (use, key) of slots that no run needs any more: the least recently used first
    busy   (last run that needs it, use, key) of the others
    count  the number of slots
    """

    idle: list[tuple[int, bytes]] = field(default_factory=list)
    busy: list[tuple[int, int, bytes]] = field(default_factory=list)
    count: int = 0


@dataclass
class Slots:
    """Slots of one size, reused when their contents are no longer needed.

    Slots have kinds, such as what remains of earlier contents. A search for a slot looks at kinds, not at slots.
    """

    count: int
    held: dict[bytes, int] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)
    """Slot -> the last run that needs its contents."""
    kinds: dict[int, Hashable] = field(default_factory=dict)
    """Slot -> its kind; None if it is missing."""
    _keys: dict[int, bytes] = field(default_factory=dict)
    _uses: dict[bytes, int] = field(default_factory=dict)
    """Key -> the number of its last use."""
    _queues: dict[Hashable, _Queue] = field(default_factory=dict)
    _next_use: int = 0

    def take(
        self, key: bytes, run: int, now: int, suits: Callable[[Hashable], bool] = lambda _: True, enough: int = 3
    ) -> tuple[int, bool] | None:
        """Returns a slot for a run and whether it must be filled; None if all slots are needed from run `now` on.

        Also None if it is better to wait for a slot of a kind that suits: if at least `enough` slots suit, one can be
        filled while others are used. `now` never decreases.
        """
        if key in self.held:
            slot = self.held[key]
            self._hold(key, slot, max(self.until[slot], run))
            return slot, False
        if len(self.held) < self.count:
            slot = len(self.held)
        else:
            idle = {kind: first for kind in self._queues if (first := self._first_idle(kind, now)) is not None}
            free = min((first for kind, first in idle.items() if suits(kind)), default=None)
            if not idle or (free is None and run > now and self._are(enough, suits)):
                return None
            slot = self.held[(free or min(idle.values()))[1]]
        self._hold(key, slot, run)
        return slot, True

    def mark(self, slot: int, kind: Hashable) -> None:
        """Sets the kind of a slot that is held."""
        key, old = self._keys[slot], self.kinds.get(slot)
        if kind != old:
            self._count(old, -1)
            self.kinds[slot] = kind
            self._count(kind, 1)
            heappush(self._queues[kind].busy, (self.until[slot], self._uses[key], key))

    def _hold(self, key: bytes, slot: int, until: int) -> None:
        """Makes a key the most recently used one, in place of the slot's old key."""
        kind, old = self.kinds.get(slot), self._keys.get(slot)
        if old is None:
            self._count(kind, 1)
        else:
            del self.held[old], self._uses[old]
        self.held[key], self.until[slot], self._keys[slot] = slot, until, key
        self._uses[key] = self._next_use
        heappush(self._queues[kind].busy, (until, self._next_use, key))
        self._next_use += 1

    def _count(self, kind: Hashable, change: int) -> None:
        queue = self._queues.setdefault(kind, _Queue())
        queue.count += change
        if not queue.count:
            del self._queues[kind]

    def _first_idle(self, kind: Hashable, now: int) -> tuple[int, bytes] | None:
        """Returns the use and key of the least recently used slot of a kind that no run needs from `now` on."""
        queue = self._queues[kind]
        while queue.busy and queue.busy[0][0] < now:
            _, use, key = heappop(queue.busy)
            heappush(queue.idle, (use, key))
        while queue.idle:
            use, key = queue.idle[0]
            if self._uses.get(key) == use and self.kinds.get(self.held[key]) == kind:
                return use, key
            heappop(queue.idle)
        return None

    def _are(self, enough: int, suits: Callable[[Hashable], bool]) -> bool:
        """True if that many slots suit."""
        return sum(queue.count for kind, queue in self._queues.items() if suits(kind)) >= max(1, enough)

    def any(self, key: bytes) -> tuple[int, bool]:
        """Takes a slot whose last user is queued already: there always is one."""
        found = self.take(key, 0, 1)
        assert found is not None, "nothing is needed later"
        return found

    def side_by_side(self, keys: Sequence[bytes]) -> list[tuple[int, bool]]:
        """Takes slots for several distinct keys, all kept. Missing contents go to consecutive slots if possible, next
        to the slots of neighbouring keys.
        """
        found = {key: self.any(key) for key in keys if key in self.held}
        begin = 0
        while begin < len(keys):
            end = next((n for n in range(begin, len(keys)) if keys[n] in found), len(keys))
            if begin < end:
                before = [found[keys[begin - 1]][0] + 1] if begin else []
                behind = [found[keys[end]][0] - (end - begin)] if end < len(keys) else []
                first, size = self._window(end - begin, {*before, *behind}, len(keys))
                end = begin + size
                for slot, key in enumerate(keys[begin:end], first):
                    self._put(key, slot)
                    found[key] = slot, True
            begin = max(end, begin + 1)
        return [found[key] for key in keys]

    def _window(self, size: int, near: set[int], kept: int) -> tuple[int, int]:
        """Returns the first and the number of consecutive slots: `size`, or as many as there are. They are taken from
        the least recently used quarter, next to the slots `near` if possible; the `kept` most recent slots are not
        taken.
        """
        age, free = [0] * self.count, self.count - len(self.held)
        for order, slot in enumerate(self.held.values(), free):
            age[slot] = order
        old = min(self.count // 4, self.count - kept)
        for number in range(size, 1, -1):
            last = {first: max(age[first : first + number]) for first in range(self.count - number + 1)}
            may = [first for first, latest in last.items() if latest < old and first <= len(self.held)]
            if may:
                return min(may, key=lambda first: (first not in near, last[first], first)), number
        return len(self.held) if free else next(iter(self.held.values())), 1

    def _put(self, key: bytes, slot: int) -> None:
        """Assigns a slot."""
        self._hold(key, slot, 0)
