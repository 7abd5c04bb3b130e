"""The command line: the commands put together, errors as sentences, exit status."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from glenside import __version__
from glenside.cli.commands import listings, programs
from glenside.cli.commands.extract import extract
from glenside.cli.commands.layout import layout
from glenside.cli.commands.optimize import INTERRUPTED, compare, optimize, tensorize
from glenside.cli.commands.sweep import sweep
from glenside.cli.commands.winograd import winograd
from glenside.ir.errors import GlensideError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Find the equal program that uses a machine best, and check that it is equal.",
)
BAD_INPUT = 2

for _command in (
    tensorize,
    compare,
    sweep,
    optimize,
    layout,
    extract,
    winograd,
    programs.run,
    programs.check,
    listings.models,
    listings.ops,
    listings.rules,
    listings.targets,
):
    app.command()(_command)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"glenside {__version__}")
        raise typer.Exit


def main() -> None:
    """The entry point: bad input is one sentence and status 2, Ctrl-C is 130, a closed pipe is no error."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except GlensideError as error:
        _fail(str(error))
    except typer.Exit as exit_:
        sys.exit(exit_.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("click", "typer") or not hasattr(error, "format_message"):
            raise
        _fail(error.format_message())


def _fail(message: str) -> None:
    print(f"glenside: error: {message}", file=sys.stderr)
    sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
