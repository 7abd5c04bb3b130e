"""Starts, ends and exchanges messages with child processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import IO, Any

_POLL = 0.1  # seconds
_SIZE = Struct("<Q")


def start(
    module: str, *words: str, errors: int | IO[bytes] = subprocess.DEVNULL, pipe_bytes: int = -1, **environment: str
) -> subprocess.Popen[bytes]:
    """Starts a module of Glenside as a process, with pipes to its input and from its output.

    The child finds modules where this process does, and in the current folder only if this process does too: a file
    `pickle.py` there is not ours. Ctrl-C reaches this process, which then ends the child.
    """
    path = os.pathsep.join(entry or "." for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, "PYTHONPATH": path, **environment},
        start_new_session=True,
        pipesize=pipe_bytes,
    )


def end(process: subprocess.Popen[Any]) -> None:
    """Kills the process and closes its pipes."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()


def how_ended(status: int) -> str:
    """Describes the end of a process by its status: `by SIGSEGV`, `by SIGKILL (out of memory?)` or `with status 1`."""
    if status >= 0:
        return f"with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"by {name}{' (out of memory?)' if -status == signal.SIGKILL else ''}"


def watch_parent() -> None:
    """Ends this process when its parent ends, also within a call that never sees the end of its input."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    os._exit(1)


def answers() -> IO[bytes]:
    """Reserves standard output for answers: output of libraries goes to standard error from now on."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


def send(stream: IO[bytes], content: Any, parts: Sequence[bytes | memoryview] = ()) -> None:
    """Writes a message: `content` as JSON, and `parts` as bytes."""
    views = [memoryview(part).cast("B") if memoryview(part).nbytes else memoryview(b"") for part in parts]
    head = json.dumps([content, [view.nbytes for view in views]]).encode()
    stream.write(_SIZE.pack(len(head)) + head)
    for view in views:
        stream.write(view)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[Any, list[bytearray]]:
    """Reads a message of `send`. Raises EOFError if the stream ends within the message."""
    (size,) = _SIZE.unpack(_read(stream, _SIZE.size))
    content, sizes = json.loads(_read(stream, size))
    return content, [_read(stream, size) for size in sizes]


def _read(stream: IO[bytes], size: int) -> bytearray:
    data = bytearray(size)
    left = memoryview(data)
    while left:
        count = stream.readinto(left)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        left = left[count:]
    return data
