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
"""After so many Python looks for cycles: of terms, of which there are as many, none are in any, and looking through
them took a tenth of a search and 2 % of a command that makes instructions.
"""

_BLAS = "OPENBLAS_NUM_THREADS"
"""What the BLAS of numpy's wheels reads when it is loaded."""

_SEARCHES = ("--no-cache", "--quantize")
"""Options of commands that then search, whatever answers are kept."""
_FOLDING = "glenside.passes.network:folding_ahead"
"""What says what rules a command that quantizes searches with first."""


def main() -> None:
    """The entry point. Ctrl-C is a sentence and status 130, from the first line on; SIGTERM is the same, with 143."""
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
            raise  # else native code made another exception of it, as numpy does of one that comes while it compares
        interrupts.ignore()
        path = interrupts.written()
        said = f"{path} holds the answer" if path else "there was no time for an answer"
        print(f"glenside: interrupted: {said}", file=sys.stderr)
        status = interrupts.INTERRUPTED
    interrupts.ignore()
    # Where an import of native code was interrupted, Python ends by SIGINT, whatever the status; and to free all that
    # goes with the process, part by part, takes a tenth of a second, of a large e-graph half of one.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(128 + interrupts.first() if status == interrupts.INTERRUPTED else status)


def _begin_search(words: Sequence[str]) -> None:
    """Start the search process of a command that will need one if it is right: that takes as long as all that is loaded
    here. The searches of a sweep start their own.
    """
    named = {word.split("=")[0] for word in words}
    if not named.isdisjoint(_SEARCHES) and named.isdisjoint(("--help", "sweep")):
        begin(_FOLDING if "--quantize" in named else None)


def _load_numpy() -> None:
    """With its BLAS on one thread, unless the user says otherwise: as many products run at a time as there are
    processors, each on one thread, and others would only spin while they wait. Other processes have their own.
    """
    given = os.environ.get(_BLAS)
    os.environ[_BLAS] = given or "1"
    import_module("numpy")
    if given is None:
        del os.environ[_BLAS]


def _open_streams() -> None:
    """A stream that is closed reads and writes nothing; else the next file that is opened would take its place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w"))
