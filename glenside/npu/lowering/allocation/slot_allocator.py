"""Allocates slots of on-chip memory, and reuses them when their contents are no longer needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice


@dataclass
class Slots:
    """Slots of one size, reused when their contents are no longer needed."""

    count: int
    held: dict[bytes, int] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)
    """Slot -> the last run that needs its contents."""

    def take(
        self, key: bytes, run: int, now: int, suits: Callable[[int], bool] = lambda _: True, enough: int = 3
    ) -> tuple[int, bool] | None:
        """Returns a slot for a run and whether it must be filled; None if all slots are needed from run `now` on.

        Also None if it is better to wait for a slot that suits: if at least `enough` slots suit, one can be filled
        while others are used.
        """
        if key in self.held:
            slot = self.held.pop(key)
            self.held[key] = slot  # most recently used
            self.until[slot] = max(self.until[slot], run)
            return slot, False
        if len(self.held) < self.count:
            slot = len(self.held)
        else:
            oldest = free = None
            for own, there in self.held.items():
                if self.until[there] < now:
                    oldest = own if oldest is None else oldest
                    if suits(there):
                        free = own
                        break
            if oldest is None or (free is None and run > now and self._are(enough, suits)):
                return None
            slot = self.held.pop(oldest if free is None else free)
        self.held[key], self.until[slot] = slot, run
        return slot, True

    def _are(self, enough: int, suits: Callable[[int], bool]) -> bool:
        """True if that many slots suit."""
        return next(islice(filter(suits, self.held.values()), max(0, enough - 1), None), None) is not None

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
        old = next((own for own, taken in self.held.items() if taken == slot), None)
        if old is not None:
            del self.held[old]
        self.held[key], self.until[slot] = slot, 0
