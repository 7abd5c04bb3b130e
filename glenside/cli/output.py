"""Where results go: files that are whole or not there, and standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name

if TYPE_CHECKING:
    from glenside.driver import Event, Listener
    from glenside.egraph.snapshot import Snapshot
    from glenside.ir.program import Program


def writable(*paths: str | None) -> None:
    """Refuse an output path before hours of work. Raises BadInput."""
    for path in paths:
        if path is None or path == "-":
            continue
        folder = Path(path).parent
        if Path(path).is_dir():
            raise BadInput(f"cannot write {path}: it is a folder")
        if not folder.is_dir():
            raise BadInput(f"cannot write {path}: there is no folder {folder}")
        if not os.access(Path(path) if Path(path).exists() else folder, os.W_OK):
            raise BadInput(f"cannot write {path}: permission denied")


def save_program(program: Program, path: str, seed: int) -> None:
    """Write a program and the values of its constants, in the format of the ending; - is standard output.

    An ONNX file has the value of every constant: those that nobody gave are drawn by the seed, as in `glenside run`,
    and a note on standard error says which. Raises BadInput.
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
    save(program, path)


def write_json(content: Any, path: str) -> None:
    """Write JSON; - is standard output. Raises BadInput."""
    text = json.dumps(content, indent=2) + "\n"
    print_or_write(text, None if path == "-" else path)


def print_or_write(text: str, path: str | None) -> None:
    """Write a text, or print it where there is no path. Raises BadInput."""
    if path is None or path == "-":
        print(text, end="" if text.endswith("\n") else "\n")
        return
    from glenside.ir.files import write_text

    write_text(path, text)


def typed_text(program: Program) -> str:
    """The program, and for each layer and the result its type, as comments."""
    lines = [f"; {name}: {term.type}" for name, term in program.layers.items()]
    return "\n".join([*lines, f"; result: {program.term.type}", str(program)])


def emit_egraph(egraph: Snapshot, choice: Mapping[int, int], output: str | None) -> None:
    """Print the e-graph as DOT, or write it as the ending of the path says. Raises BadInput."""
    from glenside.report.draw import egraph_dot, write_egraph

    if output is None:
        print(egraph_dot(egraph, choice), end="")
        return
    left_out = write_egraph(egraph, output, choice)
    if left_out:
        print(left_out, file=sys.stderr)


@contextmanager
def progress_line() -> Iterator[Listener]:
    """A line on standard error that says what is being done, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as line:

        def show(event: Event) -> None:
            share = "" if event.fraction is None else f" ({100 * event.fraction:.0f} %)"
            line.update(f"{event.stage}: {event.detail}{share}")

        yield show
