"""Runs the rounds of a check, speculatively in a forked process too."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

import numpy as np

from glenside.check.branches import Branches, Missing
from glenside.check.comparison import Clock
from glenside.check.directed_inputs import beside, is_between, moved, near
from glenside.check.input_generators import further
from glenside.check.speculative import LEAST_SECONDS, possible
from glenside.check.trials import OWN, Trials, Turn
from glenside.ir.errors import OutOfBounds
from glenside.ir.forked_work import RoundWorker
from glenside.ir.operand import Array
from glenside.ir.types import Tensor
from glenside.semantics import Arithmetic

_PATIENCE = 8  # longest wait for the forked process, in times of the longest round of this process
_STEP = 2e-5  # least seconds of a step
_OFTEN, _SELDOM = 8, 8
_TIMES = 8  # attempts of directed input generation for each branch outcome
Move = Callable[[Missing, Tensor, Arithmetic, Mapping[str, Array], np.random.Generator], Array | None]


class Compared(Protocol):
    """The state of a comparison of programs."""

    clock: Clock
    results: set[bytes]
    steps: int
    """Terms that are evaluated in a round."""

    @property
    def settled(self) -> bool:
        """True if everything differs."""

    def says_little(self, trials: int) -> bool:
        """True if results repeat."""

    def marked(self) -> Any:
        """Returns a snapshot of the state that a round changes."""

    def equal_since(self, mark: Any) -> bool:
        """True if everything was equal in the one round since the snapshot."""

    def add_equal(self, results: Iterable[bytes]) -> None:
        """Records a round of another process in which everything was equal."""


class Turns:
    """The rounds of a check: where it pays, every second one runs speculatively in a forked process.

    done   the rounds so far
    own    whether constants have their own values in some rounds
    least  the least number of rounds
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
        self._ahead: RoundWorker | None = None
        self._seconds = _STEP * comparison.steps
        """The longest round of this process; before the first round, a lower bound of its time."""
        self._alone = False
        """True if all rounds run in this process."""
        self.least = next(turns for turns in count(2 if own else 1) if self._drawn(turns) >= trials.count)

    @property
    def enough(self) -> bool:
        """True if as many rounds ran as are required."""
        return self._are_enough(len(self.done))

    def _are_enough(self, turns: int) -> bool:
        little = turns < self.trials.longest and self.comparison.says_little(turns)
        return turns >= self.least and not little

    def _with_own(self, turns: int) -> int:
        """Returns the number of rounds, of the first `turns`, in which constants have their own values.

        These are every second of the first eight rounds, and every eighth after them. With drawn scales, results of a
        deep integer network hardly depend on its inputs.
        """
        return (min(turns, _OFTEN) // 2 + max(0, turns - _OFTEN) // _SELDOM) if self.own else 0

    def _drawn(self, turns: int) -> int:
        return turns - self._with_own(turns)

    def _number(self, turns: int) -> int:
        """Returns the number of the round that follows the first `turns` rounds."""
        own, drawn = self._with_own(turns), self._drawn(turns)
        if own < self._with_own(turns + 1):
            return OWN + own
        return further(drawn) if self._are_enough(turns) else drawn

    def take(self) -> None:
        """Runs the next round, or takes its outcome from the forked process."""
        turn, started = self._number(len(self.done)), time.perf_counter()
        trial, answered = self.trials.at(turn), self._forked_answer(turn)
        if answered is None:
            self._let_begin()
            self.compare(trial, self.draw(trial, turn))
            self._seconds = max(self._seconds, time.perf_counter() - started)
        else:
            results, sides, replaced = answered
            self.comparison.add_equal(map(bytes.fromhex, results))
            self.branches.add(sides)
            trial.numbers.replaced.update(replaced)
        self.done.append(trial)

    def aim(self, movable: Container[str]) -> None:
        """Runs rounds of directed inputs: inputs moved so that they reach branch outcomes that few rounds reached.

        Each outcome is reached in several rounds, since later terms may hide one of them. Further rounds have inputs
        near points at which two operands are equal. Only the `movable` tensors, by name, are moved.
        """
        self.end()
        if self.trials.aims:
            rare, between = self.branches.rare(), filter(is_between, self.branches.places())
            self._aim(moved, {goal: near(goal, movable) for goal in rare}, self.trials.aims // 2)
            self._aim(beside, {goal: near(goal, movable) for goal in between}, 0)

    def _aim(self, move: Move, ways: dict[Missing, Sequence[Tensor]], left: int) -> None:
        """Moves tensors for the goals in rotation, as long as more than `left` attempts are left."""
        goals = [*ways]
        for number, goal in enumerate(goal for _ in range(_TIMES) for goal in goals):
            if self.trials.aims <= left or self.comparison.settled:
                break
            ways[goal] = self._aim_at(move, goal, ways[goal], number)

    def _aim_at(self, move: Move, goal: Missing, tensors: Sequence[Tensor], number: int) -> Sequence[Tensor]:
        """Moves the first of the tensors that can reach the goal, and runs a round; returns that tensor, or none."""
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
        """Ends the forked process."""
        self._alone = True
        self._leave()

    def _leave(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.end()

    def _forked_answer(self, turn: int) -> Any:
        if self._ahead is None or self._ahead.turn is None:
            return None
        if self._ahead.turn != turn:  # the next number depends on rounds since the request
            self._leave()
            return None
        answered = self._ahead.answer(self.comparison.clock.look, _PATIENCE * self._seconds)
        if answered is None:
            self.end()
        return answered

    def _let_begin(self) -> None:
        """Starts the round after the next in the forked process, if such a round may follow and a process pays."""
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
            self._ahead = RoundWorker(self._tell)
            try:
                self._ahead.start()
            except OSError:  # no more processes, memory or files
                self.end()
                return
        self._ahead.ask(self._number(after))

    def _tell(self, turn: int, look: Callable[[], None]) -> Any:
        """Runs a round in the forked process; returns its results if everything is equal, else None."""
        comparison, trial = self.comparison, self.trials.at(turn)
        comparison.clock, comparison.results, before = Clock(0, None, lambda *_: look()), set(), comparison.marked()
        self.compare(trial, self.draw(trial, turn))
        if not comparison.equal_since(before):
            return None
        return [mark.hex() for mark in comparison.results], self.branches.counts(), [*trial.numbers.replaced]
