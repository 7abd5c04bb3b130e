"""`glenside sweep`: models x machines x objectives in parallel, one table, a plot."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from glenside.cli.options import Html, JsonFile, Opaque, OpenDims, Shape
from glenside.cli.output import FAILED, OK, WRONG, status_line, writable, write_json
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from rich.table import Table

    from glenside.sweep.cells import Cell, Row, Runner

    Finished = Sequence[tuple[Cell, Row]]


def sweep(
    sources: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Built-in models, and files of programs.")],
    arrays: Annotated[
        str, typer.Option("--arrays", metavar="RxC,..", help="Systolic arrays, such as 16x16,32x128.")
    ] = "",
    targets: Annotated[
        str,
        typer.Option(
            "--targets",
            metavar="A;B",
            help="Other machines, such as npu:32x32/64x64,bandwidth=16/32;npu.toml: all combinations of the values "
            "between slashes.",
        ),
    ] = "",
    objectives: Annotated[
        str,
        typer.Option(
            "--objectives",
            metavar="A;B",
            help="Lists of measures to minimize, such as cycles;bytes or bytes,cycles: one row for each list.",
        ),
    ] = "cycles",
    parameters: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the models.")
    ] = None,
    shapes: Annotated[
        str | None, typer.Option("--shapes", metavar="FILE.json", help="Shapes of tensors of the files, by name.")
    ] = None,
    shape: Shape = None,
    dims: OpenDims = None,
    allow_opaque: Opaque = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Maximum processes at a time; by default the number of CPUs.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE.jsonl", help="Keep finished rows in this file, to resume from."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Write a plot of cycles by array: .png, .svg or .pdf."),
    ] = None,
    json_path: JsonFile = None,
    pareto: Annotated[
        str | None,
        typer.Option(
            "--pareto",
            metavar="FILE",
            help="Write a plot of cycles against area, and against energy, of the machines: .png, .svg or .pdf.",
        ),
    ] = None,
    html: Html = None,
    quantize: Annotated[
        str,
        typer.Option(
            "--quantize",
            metavar="random",
            help="For npu: quantize each network, lower it to one program from inputs to results, and count its "
            "cycles.",
        ),
    ] = "",
    check: Annotated[bool, typer.Option("--check", help="Check that every answer is equal to its program.")] = False,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="tcp://HOST:PORT", help="The scheduler of a Dask cluster to run on."),
    ] = None,
) -> None:
    """Optimize every model on every machine for every objective, in parallel, and print one table."""
    from glenside.sweep.cells import cells
    from glenside.sweep.cells import sweep as run_sweep
    from glenside.sweep.history import History

    _refuse_paths(output, plot, json_path, pareto, html)
    _refuse_endings(plot, pareto, html=html)
    if scheduler is not None and jobs is not None:
        raise BadInput("--jobs is for processes of this machine; with --scheduler the cluster has its own")
    of_files: dict[str, Any] = {"shapes": shapes, "shape": shape or ()}
    of_files |= {"dims": dims or (), "allow_opaque": allow_opaque, "targets": targets}
    of_files |= {"quantize": quantize}
    wanted = cells(sources, arrays, objectives, parameters or (), check, **of_files)
    history = None if output is None else History(output)
    if history is not None and history.words():
        print(history.words(), file=sys.stderr)
    done = 0 if history is None else sum(history.row(cell) is not None for cell in wanted)
    counted = status_line(f"{done} of {len(wanted)} cells")
    with _runner(scheduler, jobs) as runner, _interruptible() as stop, counted as show:

        def on_row(cell: Cell, row: Row) -> None:
            nonlocal done
            done += 1
            what = "failed" if row.failed else f"{row.seconds:.1f} s"
            show(f"{done} of {len(wanted)} cells; {cell.model} {cell.array} {cell.objective}: {what}")

        rows = run_sweep(wanted, runner, history, stop=stop, on_row=on_row)
    finished = [(cell, row) for cell, row in zip(wanted, rows, strict=True) if row is not None]
    interrupted = len(finished) < len(wanted)
    if json_path is not None:
        write_json({"cells": [as_dict(cell, row) for cell, row in finished], "interrupted": interrupted}, json_path)
    if json_path != "-":
        _print(finished, len(wanted), check)
    if html is not None:
        from glenside.ir.files import write_text
        from glenside.sweep.page import sweep_document

        said = {"machines": "; ".join(filter(None, (arrays, targets))), "made least": objectives}
        said["checked"] = "every answer, exactly, layer by layer" if check else "no answer: --check does"
        write_text(html, sweep_document(finished, len(wanted), check, said).html())
    if interrupted:
        left_out = " The plots are left out." if plot or pareto else ""
        print(f"Interrupted: {len(finished)} of {len(wanted)} cells are finished.{left_out}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    _plot(finished, plot, pareto)
    failed = any(row.stopped.startswith("failed") for _, row in finished)
    raise typer.Exit(FAILED if failed else OK if all(row.ok for _, row in finished) else WRONG)


def _plot(finished: Finished, plot: str | None, pareto: str | None) -> None:
    from glenside.sweep.plots import write_pareto_plot, write_sweep_plot

    if plot is not None:
        write_sweep_plot(finished, plot)
    if pareto is not None:
        if not any(row.gates for _, row in finished):
            print("No machine of the sweep has an area that is known: the plot of --pareto is empty.", file=sys.stderr)
        write_pareto_plot(finished, pareto)


def _refuse_endings(*plots: str | None, html: str | None) -> None:
    """Raises BadInput."""
    from glenside.report.html_file import require_page
    from glenside.report.plots import plot_ending

    require_page(html)
    for path in plots:
        if path is not None:
            plot_ending(path)


def _runner(scheduler: str | None, jobs: int | None) -> AbstractContextManager[Runner]:
    if scheduler is not None:
        from glenside.sweep.cluster import on_cluster

        return on_cluster(scheduler)
    from glenside.sweep.processes import in_processes

    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return nullcontext(in_processes(cpus if jobs is None else jobs))


def _refuse_paths(*paths: str | None) -> None:
    writable(*paths)
    real = [os.path.realpath(path) for path in paths if path not in (None, "-")]
    if len(set(real)) < len(real):
        raise BadInput("the rows, the plots, the page and the JSON go to a file each, and two of them are one file")
    if paths[0] == "-":
        raise BadInput("the rows of a sweep go to a file, such as -o sweep.jsonl; --json - prints them")


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Turns Ctrl-C into a flag to poll, so that it never comes between a finished cell and its line in the file."""
    pressed = threading.Event()
    old = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, old)


def as_dict(cell: Cell, row: Row) -> dict[str, Any]:
    """Returns a row for JSON: the cell and all its numbers."""
    about = {"model": cell.model, "parameters": dict(cell.parameters), "array": cell.array, "objective": cell.objective}
    return {**about, **asdict(row), "ratio": row.ratio}


def sweep_table(finished: Finished, check: bool) -> Table:
    """Returns the table for a terminal; rows with faults are yellow."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from glenside.sweep.page import table_of

    content = table_of(finished, check)
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in content.columns:
        width = 20 if column.name == "note" else 0 if column.folds else max(map(len, column.cells))  # no number is cut
        justify: Literal["left", "right"] = "left" if column.words else "right"
        table.add_column(column.name, justify=justify, min_width=width, overflow="fold")
    for number, line in enumerate(content.rows()):
        table.add_row(*map(escape, line), style="yellow" if number in content.wrong else None)
    return table


def _print(finished: Finished, wanted: int, check: bool) -> None:
    from glenside.cli.table import console

    out = console()
    if finished:
        table = sweep_table(finished, check)
        # Where a terminal is narrower than that, its lines wrap.
        out.width = max(out.width, out.measure(table, options=out.options.update(max_width=1_000)).minimum)
        out.print(table)
    failed = sum(bool(row.failed) for _, row in finished)
    if failed:
        out.print(f"{failed} of {wanted} cells failed.")
