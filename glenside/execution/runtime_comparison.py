"""Compares a compiled program with other runtimes on one model and its inputs: seconds, memory, differences of
results.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from glenside.codegen.c_library.export import built
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.execution.interleaved_runs import CannotRun, Entrant, Runner, busy, results, run_in_turn, started
from glenside.execution.peers import PEERS, load_all
from glenside.execution.peers.compiled import DESCRIPTION
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.files import write_arrays, write_text
from glenside.ir.interrupts import answered
from glenside.ir.operand import Array

_FEW = 3
"""Number of rounds of an entrant whose loops are not optimized; the last one counts."""


def peer_names() -> list[str]:
    """Returns the names of known runtimes, installed or not."""
    load_all()
    return list(PEERS)


@dataclass(frozen=True)
class Row:
    """An entrant with some threads.

    seconds     per round: the least of its consecutive runs
    ratio       the median over rounds of its seconds relative to the compiled program's in the same round
    first       the same for the first runs, which find others' data in the caches
    grown       peak growth of its process in bytes, from before it loaded the model; None if unknown
    difference  of its results, relative to the largest of the compiled program's
    """

    title: str
    threads: int
    seconds: Sequence[float]
    ratio: float
    first: float
    grown: int | None
    difference: float

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass
class Contest:
    """A comparison of compiled programs, by title, and a model for other runtimes, on inputs by name.

    programs     ratios are relative to the first one; plain loops run in few rounds
    notes        who does not take part, and why
    interrupted  True if Ctrl-C ended it: rows are of the rounds until then
    """

    programs: Mapping[str, Lowered]
    model: Path | None
    inputs: Mapping[str, Array]
    peers: Sequence[str]
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    def __enter__(self) -> Contest:
        self._open = ExitStack()
        self.folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        try:
            self.entrants = self._entrants()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _entrants(self) -> list[Entrant]:
        """Returns the entrants that can take part, after compiling ours."""
        write_arrays(self.folder / "inputs.npz", self.inputs)
        folders = [self.folder / name for name in self.programs]
        for folder, lowered in zip(folders, self.programs.values(), strict=True):
            folder.mkdir()
            write_text(folder / DESCRIPTION, json.dumps(_described(lowered)))
        made = zip(self.programs, built(list(self.programs.values()), _NAME, folders), strict=True)
        found = [
            Entrant(name, path, name) if self.programs[name].machine else Entrant(name, path, name, _FEW, 1)
            for name, path in made
        ]
        load_all()
        for name in self.peers if self.model is not None else ():
            if PEERS[name].missing:
                self.notes.append(PEERS[name].missing)
            else:
                found.append(Entrant(name, self.model or Path(), PEERS[name].title))
        return found

    def run(
        self, threads: int, rounds: int, beside: int = 0, show: Callable[[str], None] = lambda _: None
    ) -> list[Row]:
        """Runs all in turn, on `threads` threads, next to `beside` busy processes. Raises BadInput if ours does not
        run.
        """

        first = next(iter(self.programs))

        def fails(entrant: Entrant, error: CannotRun) -> None:
            if entrant.name == first:
                raise BadInput(f"the compiled program does not run: {error}")
            note = f"{entrant.title} does not run it: {error}"
            self.notes += [note] * (note not in self.notes)

        show(f"{threads} threads: load")
        try:
            with started(self.entrants, threads, self.folder, fails) as runners, busy(beside):
                try:
                    run_in_turn(runners, rounds, fails, lambda n: show(f"{threads} threads: round {n} of {rounds + 2}"))
                except KeyboardInterrupt:
                    if not runners or len(runners[0].seconds) < 1 or runners[0].entrant.name != first:
                        raise
                    answered()
                    self.interrupted = True
                return [self._row(runner, runners[0], threads) for runner in runners if runner.seconds]
        finally:
            for entrant in self.entrants:
                (self.folder / f"{entrant.name}.npz").unlink(missing_ok=True)

    def _row(self, runner: Runner, ours: Runner, threads: int) -> Row:
        difference = _difference(results(self.folder, runner.entrant), results(self.folder, ours.entrant))
        title, seconds = runner.entrant.title, tuple(runner.seconds)
        if runner.entrant.most <= _FEW:
            title, seconds = f"{title}, one thread", seconds[-1:]
        ratio, first = _ratio(seconds, ours.seconds), _ratio(runner.firsts[-len(seconds) :], ours.firsts)
        return Row(title, threads, seconds, ratio, first, runner.grown, difference)


def _ratio(seconds: Sequence[float], ours: Sequence[float]) -> float:
    """Returns the median of the ratios of rounds; a single round is relative to the median of ours."""
    if len(seconds) == 1:
        return seconds[0] / statistics.median(ours)
    return statistics.median(own / other for own, other in zip(seconds, ours, strict=False))


_NAME = "program"


def _described(lowered: Lowered) -> Mapping[str, object]:
    made = [(list(b.dims), RECORDS[b.dtype].numpy.name) for b in lowered.results]
    order = [lowered.results.index(b) for b in lowered.loops.results]
    return {"name": _NAME, "inputs": [b.name for b in lowered.inputs], "results": made, "order": order}


def _difference(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> float:
    """Returns the largest difference of all results, relative to the largest number of each; inf for other sizes."""
    if len(found) < len(wanted) or any(found[name].size != wanted[name].size for name in wanted):
        return float("inf")
    most = 0.0
    for name in wanted:
        a, b = (np.asarray(of[name], np.float64).ravel() for of in (found, wanted))
        most = max(most, float(np.abs(a - b).max(initial=0)) / max(float(np.abs(b).max(initial=0)), 1e-30))
    return most
