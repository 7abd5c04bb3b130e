"""Places on chip that are taken again when what they hold is not needed any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice


@dataclass
class Slots:
    """Places of one size that are taken again when what they hold is not needed any more."""

    count: int
    held: dict[bytes, int] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)
    """Slot -> the last run that needs what it holds."""

    def take(
        self, key: bytes, run: int, now: int, suits: Callable[[int], bool] = lambda _: True, enough: int = 3
    ) -> tuple[int, bool] | None:
        """A slot for what a run needs, and whether it must be filled; None where all are needed from run `now` on, or
        where it is better to wait until one of those that suit is free, of which so many are enough to fill one while
        others are used.
        """
        if key in self.held:
            slot = self.held.pop(key)
            self.held[key] = slot  # the one that was needed last
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
        """The same of several at once, all different, which are kept: what is missing comes, as far as may be, to slots
        one behind the other, and next to those of its neighbours.
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
        """The first of so many slots side by side, or of as many as there are, and how many these are: of the quarter
        that was needed longest ago, near such ones if possible. So many were needed last, and are kept.
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
