"""The turns of a check, which two processes may share."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

import numpy as np

from glenside.check.ahead import LEAST_SECONDS, possible
from glenside.check.aimed import beside, is_between, moved, near
from glenside.check.branches import Branches, Missing
from glenside.check.comparison import Clock
from glenside.check.stimuli import further
from glenside.check.trials import OWN, Trials, Turn
from glenside.ir.copies import Ahead
from glenside.ir.errors import OutOfBounds
from glenside.ir.operand import Array
from glenside.ir.types import Tensor
from glenside.semantics import Arithmetic

_PATIENCE = 8  # times as long as this process takes, the other one may take
_STEP = 2e-5  # seconds that a step takes at least
_OFTEN, _SELDOM = 8, 8
_TIMES = 8  # that each side is aimed at
Move = Callable[[Missing, Tensor, Arithmetic, Mapping[str, Array], np.random.Generator], Array | None]


class Compared(Protocol):
    """What is known of programs that are compared."""

    clock: Clock
    results: set[bytes]
    steps: int
    """Terms that are evaluated in a turn."""

    @property
    def settled(self) -> bool:
        """Whether everything differs."""

    def says_little(self, trials: int) -> bool:
        """Whether results repeat."""

    def marked(self) -> Any:
        """What changes with a turn."""

    def equal_since(self, mark: Any) -> bool:
        """Whether everything was equal in the one turn since."""

    def add_equal(self, results: Iterable[bytes]) -> None:
        """A turn of another process, in which everything was equal."""


class Turns:
    """The turns of a check one after the other, every second one in a process that is ahead where that is worth it.

    done   their numbers so far
    own    whether constants have their own values in some
    least  how many turns there have to be
    """

    def __init__(
        self,
        trials: Trials,
        comparison: Compared,
        branches: Branches,
        draw: Callable[[Turn, int], dict[str, Array]],
        compare: Callable[[Turn, Mapping[str, Array]], None],
        own: bool,
    ) -> None:
        self.trials, self.comparison, self.branches = trials, comparison, branches
        self.draw, self.compare, self.own = draw, compare, own
        self.done: list[Turn] = []
        self._ahead: Ahead | None = None
        self._seconds = _STEP * comparison.steps
        """Of the longest turn of this process; before the first one, what it takes at least."""
        self._alone = False
        """Whether there is to be no process that is ahead."""
        self.least = next(turns for turns in count(2 if own else 1) if self._drawn(turns) >= trials.count)

    @property
    def enough(self) -> bool:
        """Whether numbers were drawn as often as they have to be."""
        return self._are_enough(len(self.done))

    def _are_enough(self, turns: int) -> bool:
        little = turns < self.trials.longest and self.comparison.says_little(turns)
        return turns >= self.least and not little

    def _with_own(self, turns: int) -> int:
        """How many of the first turns constants have their own values in: every second one, and after a few of those
        every eighth. A deep network of integers loses what it computes where its scales are drawn.
        """
        return (min(turns, _OFTEN) // 2 + max(0, turns - _OFTEN) // _SELDOM) if self.own else 0

    def _drawn(self, turns: int) -> int:
        return turns - self._with_own(turns)

    def _number(self, turns: int) -> int:
        """The turn after so many."""
        own, drawn = self._with_own(turns), self._drawn(turns)
        if own < self._with_own(turns + 1):
            return OWN + own
        return further(drawn) if self._are_enough(turns) else drawn

    def take(self) -> None:
        """The next turn: what was told of it, or by this process."""
        turn, started = self._number(len(self.done)), time.perf_counter()
        trial, told = self.trials.at(turn), self._told(turn)
        if told is None:
            self._let_begin()
            self.compare(trial, self.draw(trial, turn))
            self._seconds = max(self._seconds, time.perf_counter() - started)
        else:
            results, sides, replaced = told
            self.comparison.add_equal(map(bytes.fromhex, results))
            self.branches.add(sides)
            trial.numbers.replaced.update(replaced)
        self.done.append(trial)

    def aim(self, movable: Container[str]) -> None:
        """Take some more turns, of numbers that are moved to where they take a side that few took, and some with each
        that is taken so, as what follows may hide one; and of numbers about those where two operands are the same.
        Tensors of other names than the movable ones stay as they are drawn.
        """
        self.end()
        if self.trials.aims:
            rare, between = self.branches.rare(), filter(is_between, self.branches.places())
            self._aim(moved, {goal: near(goal, movable) for goal in rare}, self.trials.aims // 2)
            self._aim(beside, {goal: near(goal, movable) for goal in between}, 0)

    def _aim(self, move: Move, ways: dict[Missing, Sequence[Tensor]], left: int) -> None:
        """Move tensors for each of the goals in turn, again and again, as long as more than so many aims are left."""
        goals = [*ways]
        for number, goal in enumerate(goal for _ in range(_TIMES) for goal in goals):
            if self.trials.aims <= left or self.comparison.settled:
                break
            ways[goal] = self._aim_at(move, goal, ways[goal], number)

    def _aim_at(self, move: Move, goal: Missing, tensors: Sequence[Tensor], number: int) -> Sequence[Tensor]:
        """Move one of those tensors, the first of which that is a way there: that one, or none."""
        trial = self.trials.at(number)
        values = self.draw(trial, number) if tensors else {}
        for tensor in tensors:
            self.comparison.clock.look()
            self.trials.aims -= 1
            try:
                found = move(goal, tensor, trial.arithmetic, values, np.random.default_rng(number))
            except OutOfBounds:
                continue
            if found is not None:
                self.trials.aims -= 1
                self.comparison.clock.total += self.comparison.steps
                self.compare(trial, {**values, tensor.name: found})
                self.done.append(trial)
                return [tensor]
        return []

    def end(self) -> None:
        """End the process that is ahead."""
        self._alone = True
        self._leave()

    def _leave(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.end()

    def _told(self, turn: int) -> Any:
        if self._ahead is None or self._ahead.turn is None:
            return None
        if self._ahead.turn != turn:  # which follows on what came since it was asked
            self._leave()
            return None
        told = self._ahead.answer(self.comparison.clock.look, _PATIENCE * self._seconds)
        if told is None:
            self.end()
        return told

    def _let_begin(self) -> None:
        """Let a process that is ahead begin with the turn after the next, where there may be one."""
        after = len(self.done) + 1
        if self._alone or (self.done and self._seconds < LEAST_SECONDS):
            self._alone = True
            return
        if self._seconds < LEAST_SECONDS or (self._are_enough(after) and self.trials.more <= 0):
            return
        if self._ahead is None:
            if not possible(*self.branches.roots):
                self._alone = True
                return
            self._ahead = Ahead(self._tell)
            try:
                self._ahead.start()
            except OSError:  # of processes, memory or files there are no more
                self.end()
                return
        self._ahead.ask(self._number(after))

    def _tell(self, turn: int, look: Callable[[], None]) -> Any:
        """In the process that is ahead: what is found by a turn in which everything is equal."""
        comparison, trial = self.comparison, self.trials.at(turn)
        comparison.clock, comparison.results, before = Clock(0, None, lambda *_: look()), set(), comparison.marked()
        self.compare(trial, self.draw(trial, turn))
        if not comparison.equal_since(before):
            return None
        return [mark.hex() for mark in comparison.results], self.branches.told(), [*trial.numbers.replaced]
