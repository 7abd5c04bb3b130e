"""`glenside fuzz`: runs random programs and models through every entry point of the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glenside.cli.options import Json
from glenside.cli.output import OK, WRONG, status_line
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import INTERRUPTED
from glenside.ir.names import one_line

if TYPE_CHECKING:
    from glenside.fuzzing.report import FuzzReport

_REFUSALS = 12
"""Kinds of refusals that are listed."""


def fuzz(
    minutes: Annotated[float, typer.Option("--minutes", help="Minutes after which no new case starts.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="The seed of all cases.")] = 0,
    doors: Annotated[
        str | None,
        typer.Option(
            "--doors", metavar="A,B", help="The entry points to test, such as compile,onnx; an unknown name lists all."
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            "--corpus",
            metavar="DIR",
            help="A folder of programs to mutate; programs with new coverage, and failures as tests, are kept there.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Number of processes.")] = 1,
    cases: Annotated[
        int | None, typer.Option("--cases", help="Maximum cases; with it and one job a run is repeatable.")
    ] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on a terminal.")] = False,
) -> None:
    """Run random programs and models through every entry point; print shrunk failures: status 1 if there are any."""
    from glenside.fuzzing import fuzz as fuzzed

    if corpus is not None and Path(corpus).exists() and not Path(corpus).is_dir():
        raise BadInput(f"--corpus must be a folder, got {corpus}")

    with status_line("fuzz") as show:

        def listen(report: FuzzReport) -> None:
            if not quiet:
                show(f"{report.sentence()}, {report.reached:,} combinations reached")

        report = fuzzed(minutes, seed, doors, corpus=corpus, jobs=jobs, cases=cases, listener=listen)
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _print(report)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(OK if report.ok else WRONG)


def _print(report: FuzzReport) -> None:
    from rich import box
    from rich.table import Table

    from glenside.cli.table import console

    out = console()
    table = Table(box=box.SIMPLE, title=f"Doors, seed {report.seed}", title_justify="left")
    table.add_column("door")
    for name in ("cases", "passed", "refused", "failed", "s a case"):
        table.add_column(name, justify="right")
    for name, own in report.doors.items():
        seconds = f"{own.seconds / own.cases:.2f}" if own.cases else ""
        table.add_row(name, *(f"{n:,}" for n in (own.cases, own.passed, own.refused, own.failed)), seconds)
    out.print(table)
    if report.refusals:
        out.print("Refusals, by their sentences without numbers and names:")
        for (door, sentence), count in report.refusals.most_common(_REFUSALS):
            out.print(f"  {count:,} x {door}: {one_line(sentence)}", markup=False)
        left = len(report.refusals) - _REFUSALS
        if left > 0:
            out.print(f"  and {left} more; --json lists all")
    for number, failure in enumerate(report.failures, 1):
        again = f" ({failure.count} cases)" if failure.count > 1 else ""
        out.print(f"\nFailure {number}{again}: {one_line(str(failure))}", markup=False)
        out.print(failure.case.text.rstrip(), markup=False)
        again = f'glenside.fuzzing.visited(text, "{failure.outcome.door}", seed={failure.case.seed})'
        out.print(f"Again: {again}{f', or pytest {failure.test}' if failure.test else ''}", markup=False)
    out.print(f"\n{report.sentence()}; {report.reached:,} combinations of operator, dtype, shape and door reached.")
