"""Places on chip that are taken again when what they hold is not needed any more."""

from __future__ import annotations

from collections.abc import Callable
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
            old = [k for k, s in self.held.items() if self.until[s] < now]
            if not old:
                return None
            free = next((k for k in old if suits(self.held[k])), None)
            if free is None and run > now and self._are(enough, suits):
                return None
            slot = self.held.pop(free or old[0])
        self.held[key], self.until[slot] = slot, run
        return slot, True

    def _are(self, enough: int, suits: Callable[[int], bool]) -> bool:
        """Whether so many suit."""
        return next(islice(filter(suits, self.held.values()), max(0, enough - 1), None), None) is not None

    def any(self, key: bytes) -> tuple[int, bool]:
        """The same where whoever needs what was there is queued already: there always is one."""
        found = self.take(key, 0, 1)
        assert found is not None, "nothing is needed later"
        return found
