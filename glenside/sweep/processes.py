"""Runs cells of a sweep in processes of this machine, with one line of JSON to each and one back.

A process that dies, for example for lack of memory, only fails its own cell: the next cell gets a new process.
Processes have their own sessions, so that Ctrl-C reaches only the parent; without their parent they end themselves and
their searches. Run as `python -m glenside.sweep.processes`.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import asdict

from glenside.ir.child_processes import answers, end, how_ended, start, watch_parent
from glenside.ir.errors import BadInput
from glenside.ir.option_hints import command_line
from glenside.sweep.cells import Cell, Row, Runner, Stop, optimize_cell

POLL = 0.1  # seconds


class CellProcess:
    """A process that runs one cell at a time, until `end`."""

    def __init__(self) -> None:
        self._process = start("glenside.sweep.processes")
        self._buffer = bytearray()

    def fileno(self) -> int:
        """The file descriptor that is readable when part of an answer, or the end, has arrived."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def start(self, cell: Cell) -> None:
        """Sends a cell; a process that has died is detected when its answer is read."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(cell.as_dict()).encode() + b"\n")
            self._process.stdin.flush()

    def read(self) -> Row | None:
        """Reads what is ready: returns the row once it is complete, or a failure if the process has ended."""
        data = os.read(self.fileno(), 1 << 20)
        self._buffer += data
        if self._buffer.endswith(b"\n"):
            line = bytes(self._buffer)
            self._buffer.clear()
            return Row.of_dict(json.loads(line))
        return None if data else Row(failed=f"its process ended {how_ended(self._process.wait())}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Ends the process immediately."""
        end(self._process)


def in_processes(jobs: int) -> Runner:
    """Returns a runner that keeps up to `jobs` processes busy. Raises BadInput for less than one."""
    if jobs < 1:
        raise BadInput(f"--jobs must be at least 1, got {jobs}")

    def run(cells: Sequence[Cell], stop: Stop) -> Generator[tuple[int, Row], None, None]:
        left = list(range(len(cells)))
        processes: list[CellProcess] = []
        idle: list[CellProcess] = []
        with selectors.DefaultSelector() as busy:
            try:
                while (left or busy.get_map()) and not stop():
                    while left and len(busy.get_map()) < jobs:
                        if not idle:
                            idle.append(CellProcess())
                            processes.append(idle[-1])
                        process, number = idle.pop(), left.pop(0)
                        busy.register(process, selectors.EVENT_READ, number)
                        process.start(cells[number])
                    for key, _ in busy.select(POLL):
                        ready = key.fileobj
                        assert isinstance(ready, CellProcess)
                        row = ready.read()
                        if row is None:
                            continue
                        busy.unregister(ready)
                        if ready.alive:
                            idle.append(ready)
                        else:
                            processes.remove(ready)
                            ready.end()
                        yield key.data, row
            finally:
                for process in processes:
                    process.end()

    return run


def run_in_process(cell: Cell) -> Row:
    """Runs one cell in a process of its own and waits for it."""
    (answer,) = in_processes(1)([cell], lambda: False)
    return answer[1]


def main() -> None:
    """Serves cells from standard input until it ends."""
    watch_parent()
    out = answers()
    for line in sys.stdin.buffer:
        with command_line():
            row = optimize_cell(Cell.of_dict(json.loads(line)))
        out.write(json.dumps(asdict(row)).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
