"""Controls a worker process from its parent."""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glenside.fuzzing.cases import Case, Outcome, Verdict
from glenside.fuzzing.doors import Door
from glenside.fuzzing.worker import OUT_OF_MEMORY, OUT_OF_TIME
from glenside.ir.child_processes import end, start

_START_SECONDS = 900.0
_LONGEST = 40
"""The maximum ratio of a worker's wall-clock time to its time limit, on a busy machine."""
_SERVED = 400
"""Cases after which a worker is replaced, so that memory and loaded libraries do not accumulate."""
_FRAME = re.compile(r'File "([^"]*/(?:glenside|rewrites|extract)/[^"]*)", line \d+ in (\w+)')


class Stopped(Exception):
    """The run ends: the worker received a request to stop."""


class Child:
    """A worker that is started when needed, and again after it ended.

    seconds  the limit of processor time of a case at a door
    memory   the limit of the worker's memory, in bytes
    cache    the folder in which compiled programs are kept
    """

    def __init__(self, seconds: float, memory: int, cache: Path) -> None:
        self.seconds, self.memory, self.cache = seconds, memory, cache
        self.process: subprocess.Popen[bytes] | None = None
        self.served = 0
        self.stopping = False
        self.buffer = b""

    def visit(self, case: Case, door: Door) -> Outcome:
        """Puts a case through a door. Raises Stopped."""
        if self.process is None or self.served >= _SERVED:
            self.end()
            self._start()
        began, stage = time.monotonic(), ""
        self.served += 1
        job = {**vars(case), "door": door.name, "module": door.run.__module__}
        try:
            assert self.process is not None
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
            used = self._processor_seconds()
            while True:
                message = self._line(time.monotonic() + self.seconds)
                if message is None:
                    late = time.monotonic() - began > _LONGEST * self.seconds
                    if late or self._processor_seconds() - used > self.seconds:
                        return self._ended(door.name, stage, began, hung=True)
                    continue
                if "stage" in message:
                    stage = message["stage"]
                    continue
                return Outcome(
                    door.name,
                    Verdict(message["verdict"]),
                    message["place"],
                    message["detail"],
                    tuple(message["notes"]),
                    time.monotonic() - began,
                )
        except (EOFError, BrokenPipeError):
            return self._ended(door.name, stage, began)

    def _start(self) -> None:
        if self.stopping:
            raise Stopped
        self.errors = tempfile.TemporaryFile()
        self.process = start(
            "glenside.fuzzing.worker",
            str(self.seconds),
            str(self.memory),
            errors=self.errors,
            OPENBLAS_NUM_THREADS="1",
            OMP_NUM_THREADS="1",
            GLENSIDE_CACHE=str(self.cache),
        )
        self.served, self.buffer = 0, b""
        try:
            if self._line(time.monotonic() + _START_SECONDS) is None:
                raise EOFError
        except EOFError:
            said = self._said()
            self.end()
            raise RuntimeError(f"a worker of the fuzzer does not start: {said[-300:]}") from None

    def _processor_seconds(self) -> float:
        """Returns the worker's own processor time, or the clock if the system does not report it."""
        assert self.process is not None
        try:
            words = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            return time.monotonic()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def _line(self, until: float) -> Mapping[str, Any] | None:
        """Returns the next message; None after `until`. Raises EOFError and Stopped."""
        assert self.process is not None
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if self.stopping:
                    raise Stopped
                if time.monotonic() > until:
                    return None
                if selector.select(0.2):
                    found = os.read(descriptor, 1 << 16)
                    if not found:
                        raise EOFError
                    self.buffer += found
        line, self.buffer = self.buffer.split(b"\n", 1)
        message: Mapping[str, Any] = json.loads(line)
        return message

    def _ended(self, door: str, stage: str, began: float, hung: bool = False) -> Outcome:
        """Returns the outcome of a case at which the worker ended."""
        assert self.process is not None
        if hung:
            end(self.process)
        status = self.process.wait()
        said, seconds = self._said(), time.monotonic() - began
        found = _FRAME.search(said)
        place = f"{Path(found[1]).parent.name}/{Path(found[1]).name} {found[2]}" if found else ""
        self.end()
        if self.stopping:
            raise Stopped
        if stage:  # other people's code
            return Outcome(door, Verdict.REFUSED, f"{stage} ended", f"{stage} ended the process", (), seconds)
        if hung or status == OUT_OF_TIME:
            detail = f"no answer after {self.seconds:.0f} s of processor time, in {place or 'native code'}"
            return Outcome(door, Verdict.HANG, place, detail, (), seconds)
        if status == OUT_OF_MEMORY:
            detail = f"more than {self.memory >> 20:,} MB of memory, in {place or 'native code'}"
            return Outcome(door, Verdict.HANG, f"memory {place}", detail, (), seconds)
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return Outcome(
            door, Verdict.CRASH, f"{how} in {place}", f"the process ended with {how} in {place}", (), seconds
        )

    def _said(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")

    def end(self) -> None:
        """Ends the worker, if there is one."""
        if self.process is not None:
            end(self.process)
            self.errors.close()
            self.process = None
