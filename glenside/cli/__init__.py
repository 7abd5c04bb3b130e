"""The command line: commands, the options they share, tables, progress and exit status."""

from glenside.cli.main import main

__all__ = ["main"]
