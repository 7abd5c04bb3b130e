"""Processes that this one starts."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import Any


def end(process: subprocess.Popen[Any]) -> None:
    """End it now, whatever it does, and what leads to it and from it."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
