"""Types of results that onnxruntime tells of one node: it knows operators that ONNX has no definition of.

It runs in a process of its own, as it may crash on a node that no program has written yet.
"""

from __future__ import annotations

import atexit
import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Lock, Timer
from typing import Any, BinaryIO

import numpy as np

from glenside.ir.dtypes import RECORDS

Told = Sequence[tuple[str, list[int]]]
"""The dtype and the dims of each output."""

SECONDS = 60
"""What one node may take."""

ELEMENTS = 1 << 26
"""What the inputs of a node may have in all, to be filled in."""


class Process:
    """onnxruntime in another process; a new one where the last has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    def ask(self, model: bytes) -> Told | None:
        """The types of the outputs of a model of one node, or None where onnxruntime does not tell."""
        with self._lock:
            return self._asked(model)

    def end(self) -> None:
        """Ends the process and closes its pipes."""
        if self._process is not None:
            self._process.kill()
            for pipe in filter(None, (self._process.stdin, self._process.stdout)):
                with suppress(OSError):  # what was left to write to a process that has ended
                    pipe.close()
            self._process.wait()
            self._process = None

    def _asked(self, model: bytes) -> Told | None:
        if self._process is None or self._process.poll() is not None:
            self.end()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        given, told = self._process.stdin, self._process.stdout
        assert given
        assert told
        timer = Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            given.write(struct.pack("<Q", len(model)) + model)
            given.flush()
            line = told.readline()
        except OSError:
            line = b""
        finally:
            timer.cancel()
        found = json.loads(line) if line.endswith(b"\n") else None
        return None if found is None else [(dtype, dims) for dtype, dims in found]


ONNXRUNTIME = Process()
atexit.register(ONNXRUNTIME.end)


def _told(model: bytes) -> Told | None:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs = [(out.type, out.shape) for out in session.get_outputs()]
    if all(isinstance(size, int) for _, shape in outputs for size in shape):
        return [(_dtype(kind), shape) for kind, shape in outputs]
    found = [[(value.dtype.name, list(value.shape)) for value in values] for values in _runs(session)]
    return found[0] if found and all(types == found[0] for types in found) else None


def _dtype(kind: str) -> str:
    """tensor(float) -> float32"""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return next((record.name for record in RECORDS.values() if record.onnx.lower() == name), name)


def _runs(session: Any) -> Iterator[list[np.ndarray[Any, Any]]]:
    """The outputs on zeros, ones and random numbers, as far as the node takes them: a size that depends on data may
    differ."""
    inputs, random = session.get_inputs(), np.random.default_rng(0)
    if sum(int(np.prod(formal.shape)) for formal in inputs) > ELEMENTS:
        return
    for fill in (np.zeros, np.ones, lambda dims: np.asarray(3 * random.random(dims))):
        with suppress(Exception):  # whatever onnxruntime raises: a value that the node does not take
            given = {formal.name: fill(formal.shape).astype(_dtype(formal.type)) for formal in inputs}
            yield session.run(None, given)


def _serve(given: BinaryIO, told: BinaryIO) -> None:
    while size := given.read(8):
        model = given.read(struct.unpack("<Q", size)[0])
        try:
            answer = _told(model)
        except Exception:  # onnxruntime's own have no common base
            answer = None
        told.write(json.dumps(answer).encode() + b"\n")
        told.flush()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
