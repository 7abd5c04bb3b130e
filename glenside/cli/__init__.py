"""The command line: commands, the options they share, tables, progress and exit status."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from glenside.egraph.process import begin

_ALLOCATIONS = 2_000_000
"""Allocations between two runs of Python's cycle collector. Terms form no cycles, and scanning them took a tenth of a
search and 2 % of a command that makes instructions.
"""

_BLAS = "OPENBLAS_NUM_THREADS"
"""The environment variable for threads that the BLAS of numpy's wheels reads when it is loaded."""

_SEARCHES = ("--no-cache", "--quantize")
"""Options with which a command always searches, even if an answer is cached."""
_FOLDING = "glenside.passes.network:folding_ahead"
"""module:function that returns the rules of the first search of a command that quantizes."""


def main() -> None:
    """The entry point. From the first line on, Ctrl-C prints one sentence and exits with 130, SIGTERM with 143."""
    _open_streams()
    gc.set_threshold(_ALLOCATIONS)
    from glenside.ir import interrupts

    try:
        interrupts.raise_until_answered()
        _begin_search(sys.argv[1:])
        _load_numpy()
        from glenside.cli.application import run

        status = run()
        if interrupts.unanswered():  # typer makes a status of KeyboardInterrupt
            raise KeyboardInterrupt
    except (KeyboardInterrupt, Exception) as error:
        if not (isinstance(error, KeyboardInterrupt) or interrupts.unanswered()):
            raise  # otherwise native code replaced KeyboardInterrupt by another exception, as numpy comparisons do
        interrupts.ignore()
        path = interrupts.written()
        said = f"{path} holds the answer" if path else "there was no time for an answer"
        print(f"glenside: interrupted: {said}", file=sys.stderr)
        status = interrupts.INTERRUPTED
    interrupts.ignore()
    # If an import of native code was interrupted, Python exits by SIGINT with any status. And freeing all objects
    # one by one takes 0.1 s, with a large e-graph 0.5 s.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(128 + interrupts.first() if status == interrupts.INTERRUPTED else status)


def _begin_search(words: Sequence[str]) -> None:
    """Starts the search process of a command that will need one: it starts while the modules are imported here.

    The searches of a sweep start their own processes.
    """
    named = {word.split("=")[0] for word in words}
    if not named.isdisjoint(_SEARCHES) and named.isdisjoint(("--help", "sweep")):
        begin(_FOLDING if "--quantize" in named else None)


def _load_numpy() -> None:
    """Imports numpy with its BLAS on one thread, unless the user has set the number of threads.

    Products run in parallel, one per processor, so that more BLAS threads would only spin. The setting is not passed
    on to child processes.
    """
    given = os.environ.get(_BLAS)
    os.environ[_BLAS] = given or "1"
    import_module("numpy")
    if given is None:
        del os.environ[_BLAS]


def _open_streams() -> None:
    """Opens closed standard streams on the null device, so that no file opened later gets their descriptors."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w"))
