"""Runs models in onnxruntime in another process, so that a crash of onnxruntime ends nothing else."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from threading import Lock, Timer
from typing import Any, NamedTuple

import numpy as np

from glenside.ir.child_processes import end, how_ended, receive, send, start
from glenside.ir.dtypes import RECORDS
from glenside.ir.interrupts import undisturbed
from glenside.ir.names import one_line, shortened
from glenside.ir.operand import Array
from glenside.ir.packages import require_onnxruntime
from glenside.ir.replacing import PathLike
from glenside.ir.types import Dims, Tensor

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
"""onnxruntime's levels of optimization. The first runs a model unchanged."""
_DTYPES = {f"tensor({record.onnx.lower()})": record.name for record in RECORDS.values()}
_LAST_BYTES = 4096
"""The last bytes of a process's standard error, which contain the reason of its end."""


class CannotRun(Exception):
    """onnxruntime refuses a model or its inputs, or crashes."""


class Ended(CannotRun):
    """The process of onnxruntime ended, or was killed after its time limit: its sessions are lost."""


class Entry(NamedTuple):
    """An input or an output of a model: sizes that the file leaves open are names or None."""

    name: str
    type: str
    shape: Sequence[int | str | None]

    @property
    def dtype(self) -> str | None:
        """Its dtype; None if it is not a tensor of numbers."""
        return _DTYPES.get(self.type)


class Session:
    """A model, by path or bytes, at one of onnxruntime's levels of optimization.

    what     the model in a message, such as "the original"
    threads  the number of threads, which do not spin after a run, so that they free the processors; None for
             onnxruntime's default
    seconds  the time limit of loading, and of each run; None for no limit
    """

    def __init__(
        self,
        model: PathLike | bytes,
        what: str,
        level: str = LEVELS[0],
        *,
        threads: int | None = None,
        seconds: float | None = None,
    ) -> None:
        require_onnxruntime()
        self.what, self.seconds = one_line(what), seconds
        parts = [model] if isinstance(model, bytes) else []
        path = None if isinstance(model, bytes) else os.path.abspath(model)
        self._number = next(_NUMBERS)
        request = {"load": self._number, "path": path, "level": level, "threads": threads}
        taken, made = _ONNXRUNTIME.load(request, parts, self.what, seconds)
        self.takes = [Entry(*entry) for entry in taken]
        self.makes = [Entry(*entry) for entry in made]

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            _ONNXRUNTIME.unused.append(self._number)

    def inputs(self, known: Mapping[str, Tensor]) -> list[Tensor]:
        """Returns the inputs of the model: known tensors, and others that no output depends on."""
        return [known.get(entry.name) or self._unused(entry) for entry in self.takes]

    def _unused(self, entry: Entry) -> Tensor:
        """Returns a tensor for an unused input, with size 1 where the file leaves it open."""
        if entry.dtype is None:
            raise CannotRun(f"the input {shortened(entry.name)} of {self.what} is a {entry.type}")
        return Tensor(entry.name, Dims(size if isinstance(size, int) else 1 for size in entry.shape), entry.dtype)

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array]:
        """Returns the outputs in order. Raises CannotRun."""
        request, parts = described([inputs[entry.name] for entry in self.takes])
        given = {"run": self._number, "names": [entry.name for entry in self.takes], "arrays": request}
        answer, found = _ONNXRUNTIME.run(given, parts, self.what, self.seconds)
        return [array_of(dtype, shape, data) for (dtype, shape), data in zip(answer, found, strict=True)]


class _Onnxruntime:
    """The process of onnxruntime, which is started at first use, and again after it ended.

    unused  numbers of deleted sessions, which are sent with the next request
    """

    def __init__(self) -> None:
        self.unused: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = Lock()
        self._loaded: set[int] = set()

    @property
    def _serves(self) -> bool:
        """True if the process lives and is ours: a forked process must not talk to its parent's."""
        return self._process is not None and self._owner == os.getpid() and self._process.poll() is None

    def load(self, request: Mapping[str, Any], parts: Sequence[bytes], what: str, seconds: float | None) -> Any:
        """Loads a model and returns its inputs and outputs. Raises CannotRun."""
        with self._lock:
            if not self._serves:
                self.end()
                self._start()
            entries, _ = self._ask(request, parts, ("does not load", "loaded"), what, seconds)
            self._loaded.add(request["load"])
            return entries

    def run(
        self, request: Mapping[str, Any], parts: Sequence[bytes | memoryview], what: str, seconds: float | None
    ) -> tuple[Any, list[bytearray]]:
        """Runs a loaded model and returns its outputs. Raises CannotRun."""
        with self._lock:
            if request["run"] not in self._loaded or not self._serves:
                raise Ended(f"onnxruntime's process has ended since it loaded {what}")
            return self._ask(request, parts, ("cannot run", "ran"), what, seconds)

    def end(self) -> None:
        """Ends the process if it is ours."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            end(process)
            self._errors.close()
        self._loaded.clear()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()
        self._owner = os.getpid()
        with undisturbed(then=True):  # start none without recording it
            self._process = start("glenside.importers.onnx.session_process", errors=self._errors)
        self._ask({}, [], ("does not", "started"), "", None)  # so that `seconds` does not include the start

    def _ask(
        self,
        request: Mapping[str, Any],
        parts: Sequence[bytes | memoryview],
        words: tuple[str, str],
        what: str,
        most: float | None,
    ) -> tuple[Any, list[bytearray]]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        (refuses, did), late = words, False

        def kill() -> None:
            nonlocal late
            late = True
            process.kill()

        timer = Timer(most or 0, kill)
        unused = [self.unused.pop() for _ in range(len(self.unused))]
        try:
            if most is not None:
                timer.start()
            with suppress(BrokenPipeError):  # it has ended, as its answer will say
                send(process.stdin, {**request, "unused": unused}, parts)
            answer, found = receive(process.stdout)
        except EOFError:
            how = f"was killed after {most:g} s" if late else f"ended {how_ended(process.wait())}"
            said = "" if late else self._last_words()
            self.end()
            raise Ended(f"onnxruntime's process {how} when it {f'{did} {what}'.rstrip()}{said}") from None
        except BaseException:  # Ctrl-C: its answer is of no use
            self.end()
            raise
        finally:
            timer.cancel()
        if "failed" in answer:
            raise CannotRun(f"onnxruntime {refuses} {what}: {answer['failed']}")
        return answer["found"], found

    def _last_words(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LAST_BYTES))
        lines = [line.strip() for line in self._errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return f": {lines[-1][:200]}" if lines else ""


def described(arrays: Sequence[Array]) -> tuple[list[tuple[str, list[int]]], list[memoryview]]:
    """Returns dtypes and shapes of arrays, and their bytes."""
    whole = [np.ascontiguousarray(array) for array in arrays]
    entries = [(array.dtype.name, list(np.shape(given))) for array, given in zip(whole, arrays, strict=True)]
    return entries, [array.reshape(-1).view(np.uint8).data for array in whole]


def array_of(dtype: str, shape: Sequence[int], data: bytearray) -> Array:
    """Returns an array over its bytes, without a copy."""
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape)


_NUMBERS = count()
_ONNXRUNTIME = _Onnxruntime()
atexit.register(_ONNXRUNTIME.end)
