"""Runs the command line in this process."""

from __future__ import annotations

import sys

from glenside.cli.application import run as run_command


def run(*arguments: object) -> int:
    """The exit status of `glenside arguments`."""
    old, sys.argv = sys.argv, ["glenside", *map(str, arguments)]
    try:
        return run_command()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    finally:
        sys.argv = old
