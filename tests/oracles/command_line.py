"""Runs the command line in this process."""

from __future__ import annotations

import sys

from glenside import cli


def run(*arguments: object) -> int:
    """The exit status of `glenside arguments`."""
    old, sys.argv = sys.argv, ["glenside", *map(str, arguments)]
    try:
        cli.main()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    finally:
        sys.argv = old
    return 0
