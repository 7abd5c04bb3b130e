"""The command-line application: registers the commands, prints errors, returns the exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from glenside import __version__
from glenside.cli.commands import bench, listings, native, npu, programs
from glenside.cli.commands.area import area
from glenside.cli.commands.calibration import calibrate
from glenside.cli.commands.extract import extract
from glenside.cli.commands.fuzz import fuzz
from glenside.cli.commands.optimize import compare, layout, optimize, tensorize
from glenside.cli.commands.sweep import sweep
from glenside.cli.commands.train import train
from glenside.cli.commands.winograd import winograd
from glenside.cli.completion import sort_into_panels
from glenside.cli.output import BAD_INPUT, OK
from glenside.ir.errors import GlensideError
from glenside.ir.option_hints import command_line

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Find the equal program that uses a machine best, and check that it is equal.",
)

for _command in (
    tensorize,
    compare,
    sweep,
    optimize,
    layout,
    extract,
    winograd,
    calibrate,
    npu.assemble,
    area,
    native.compile,
    bench.bench,
    train,
    programs.run,
    programs.check,
    fuzz,
):
    app.command()(_command)
for _command in (listings.models, listings.ops, listings.rules, listings.targets):
    app.command()(_command)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"glenside {__version__}")
        raise typer.Exit


@cache
def _reader() -> Any:
    """Returns the click command that parses the command line, memoized."""
    group: Any = typer.main.get_command(app)
    for command in group.commands.values():
        sort_into_panels(command)
    return group


def run() -> int:
    """Runs the command and returns the exit status.

    Bad input prints one sentence and returns 2; a closed pipe is no error. Raises KeyboardInterrupt.
    """
    try:
        with command_line():
            status = _reader()(_completed(sys.argv[1:]), standalone_mode=False) or OK
        sys.stdout.flush()
        return status
    except GlensideError as error:
        return _fail(str(error), error.status)
    except typer.Exit as exit_:
        return exit_.exit_code
    except MemoryError as error:
        return _fail(f"memory does not suffice{f': {error}' if str(error) else ''}")
    except BrokenPipeError:
        _give_up_output()
        return OK
    except OSError as error:
        _give_up_output()
        return _fail(f"cannot write standard output: {error.strerror or error}")
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("click", "typer") or not hasattr(error, "format_message"):
            raise
        return _fail(error.format_message())


def _completed(words: Sequence[str]) -> list[str]:
    """Returns the words of a command line with `-` for the file of a --json that names none."""
    command = _reader().commands.get(words[0]) if words else None
    if command is None or all("--json" not in p.opts or p.is_flag for p in command.params):
        return [*words]
    found: list[str] = []
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        alone = word == "--json" and after.startswith("-") and after != "-"
        found += [word, "-"] if alone else [word]
    return found


def _give_up_output() -> None:
    """Redirects standard output to the null device, so that flushing its buffer at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int = BAD_INPUT) -> int:
    print(f"glenside: error: {message}", file=sys.stderr)
    return status
