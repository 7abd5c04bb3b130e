"""Runs the command line in this process."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from glenside.cli.application import run as run_command


def run(*arguments: object) -> int:
    """Returns the exit status of `glenside arguments`."""
    old, sys.argv = sys.argv, ["glenside", *map(str, arguments)]
    try:
        return run_command()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    finally:
        sys.argv = old


def completed(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs `glenside arguments` in a folder; returns the exit status and the output. It runs in this process: starting
    a process takes longer than most commands.
    """
    out, errors = io.StringIO(), io.StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(errors):
        status = run(*arguments)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())
