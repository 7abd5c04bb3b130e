"""Serves a runtime in its own process: loads a model, reports success, and runs it on request.

  python -m glenside.execution.peers.serve NAME MODEL THREADS FOLDER

FOLDER holds the inputs, `inputs.npz`, and gets the results, NAME.npz. NAME is a peer runtime, or `ours` for Glenside;
modules that it imports are loaded before memory is measured. Each input line is a number of consecutive runs; each
answer is a line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from glenside.execution.peers import PEERS, load_all
from glenside.execution.peers.compiled import load as load_compiled
from glenside.execution.peers.peer import Run
from glenside.ir.files import read_arrays, write_arrays

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serves until the input ends, or the parent process does."""
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of the runtime is not an answer
    name, model, threads, folder = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    try:
        run = _loaded(name, model, threads, folder, answers)
    except Exception as error:  # a runtime may raise anything
        words = " ".join(str(error).split()) or type(error).__name__
        _say(answers, {"failed": words if len(words) <= 200 else f"{words[:200]}.."})
        return
    for line in sys.stdin:
        _say(answers, {"seconds": [_seconds(run) for _ in range(int(line))], "bytes": _memory()})


def end_with_parent() -> None:
    """Lets the system kill this process when its parent ends, since a stopped process does not see its input end.

    It does nothing outside of Linux.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _seconds(run: Run) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _loaded(name: str, model: Path, threads: int, folder: Path, answers: IO[str]) -> Run:
    load_all()
    inputs = read_arrays(folder / "inputs.npz")
    load = PEERS[name].load if name in PEERS else load_compiled
    for package in PEERS[name].packages if name in PEERS else ():
        import_module(package)
    _forget_peak()
    before = _memory()
    run = load(model, inputs, threads)
    found = [np.asarray(array) for array in run()]
    write_arrays(folder / f"{name}.npz", {str(number): array for number, array in enumerate(found)})
    _say(answers, {"before": before})
    return run


def _say(answers: IO[str], content: Any) -> None:
    print(json.dumps(content), file=answers, flush=True)


def _forget_peak() -> None:
    """Resets the peak of resident memory, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        pass


def _memory() -> dict[str, int]:
    """Returns resident bytes and their peak; empty if unknown."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    rows = dict(line.split(":", 1) for line in lines)
    return {key: int(rows[row].split()[0]) << 10 for key, row in (("now", "VmRSS"), ("peak", "VmHWM")) if row in rows}


if __name__ == "__main__":
    main()
