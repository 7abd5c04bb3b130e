"""Outputs of a command: files written whole or not at all, standard output, and the exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name

if TYPE_CHECKING:
    from glenside.ir.program import Program
    from glenside.report.result import Result

OK = 0
WRONG = 1
"""Exit status of an answer with something unmapped, unequal, above its budget, or missing."""
BAD_INPUT = 2
FAILED = 3
"""Exit status if a rule is wrong or a search process died: the answer, if there is one, is the checked baseline."""


def writable(*paths: str | None) -> None:
    """Raises BadInput for an output path that cannot be written, before hours of work."""
    for path in paths:
        if path is None or path == "-":
            continue
        folder = Path(path).parent
        try:
            if Path(path).is_dir():
                raise BadInput(f"cannot write {path}: it is a folder")
            if not folder.is_dir():
                raise BadInput(f"cannot write {path}: there is no folder {folder}")
            if not os.access(Path(path) if Path(path).exists() else folder, os.W_OK):
                raise BadInput(f"cannot write {path}: permission denied")
        except (OSError, ValueError) as error:  # a name that is too long or has an illegal character
            raise BadInput(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def save_program(program: Program, path: str, seed: int) -> None:
    """Writes a program and the values of its constants, in the format of the ending; - is standard output.

    An ONNX file needs the value of every constant: missing values are drawn from the seed, as in `glenside run`, and a
    note on standard error names them. Raises BadInput.
    """
    if path == "-":
        print(str(program), end="")
        return
    from glenside.formats import ending, save

    if ending(path) == ".onnx":
        drawn = [spelled_name(name) for name in program.constants_declared if name not in program.constants]
        if drawn:
            names = ", ".join(drawn[:3]) + (f" and {len(drawn) - 3} more" if len(drawn) > 3 else "")
            print(f"glenside: note: {path} has random values of seed {seed} for {names}", file=sys.stderr)
            program = program.seeded_constants(seed)
    said = save(program, path)
    if "not compared" in said:
        print(f"glenside: note: {path}: {said}", file=sys.stderr)


def write_json(content: Any, path: str) -> None:
    """Writes JSON; - is standard output. Raises BadInput."""
    print_or_write(json.dumps(content, indent=2) + "\n", path)


@contextmanager
def json_report(path: str | None) -> Iterator[dict[str, Any]]:
    """Yields the content of a JSON report, and writes it when the command ends; `-` prints it alone.

    Raises BadInput for a path that cannot be written, at once.
    """
    writable(path)
    content: dict[str, Any] = {}
    left: typer.Exit | None = None
    with redirect_stdout(StringIO()) if path == "-" else nullcontext():
        try:
            yield content
        except typer.Exit as exit_:
            left = exit_
    if path is not None:
        write_json(content, path)
    if left is not None:
        raise left


def print_or_write(text: str, path: str | None) -> None:
    """Writes a text to the path, or prints it if the path is - or None. Raises BadInput."""
    if path is None or path == "-":
        print(text, end="" if text.endswith("\n") else "\n")
        return
    from glenside.ir.files import write_text

    write_text(path, text)


def typed_text(program: Program) -> str:
    """Returns the program as text, with the type of each layer and of the result as comments."""
    lines = [f"; {name}: {term.type}" for name, term in program.layers.items()]
    return "\n".join([*lines, f"; result: {program.term.type}", str(program)])


def egraph_endings(output: str | None) -> None:
    """Raises BadInput, before the search, for a path to which no e-graph can be written."""
    from glenside.report.draw import require_ending

    writable(output)
    if output is not None:
        require_ending(output)


def emit_egraph(result: Result, output: str | None, layer: str | None = None) -> None:
    """Prints the e-graph, or the part of one layer, as DOT, or writes it as the ending says. Raises BadInput."""
    from glenside.report.draw import egraph_dot, write_egraph
    from glenside.report.egraph_view import EGraphView

    view = EGraphView.of(result, layer)
    if output is None:
        print(egraph_dot(view.snapshot, view.choice), end="")
        return
    left_out = write_egraph(view, output)
    if left_out:
        print(left_out, file=sys.stderr)


@contextmanager
def status_line(first: str) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a text in a status line on standard error, on a terminal only."""
    from glenside.report.progress import Event, shown

    with shown(first) as listener:
        yield lambda text: listener(Event(text))
