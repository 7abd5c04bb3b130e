"""`glenside layout`: what a network moves only to put data elsewhere, before and after."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from glenside.analysis.copies import total
from glenside.cli.options import (
    Iterations,
    JsonFile,
    Memory,
    NoCheck,
    Nodes,
    Opaque,
    OpenDims,
    Output,
    Parameters,
    Seconds,
    Seed,
    Shape,
    Shapes,
    Source,
    Weights,
)
from glenside.cli.output import save_program, writable, write_json
from glenside.cli.sources import limits_of, loader
from glenside.ir.names import one_line

if TYPE_CHECKING:
    from glenside.layout import LayoutReport

Addresses = Annotated[str, typer.Option(help="Which other orders are free: none, runs or all.")]


def layout(
    source: Source,
    unit: Annotated[str, typer.Option("--unit", help="What the unit takes: nhwc, nchw, nchw16c or any.")] = "nhwc",
    loads: Addresses = "all",
    stores: Addresses = "all",
    json_path: JsonFile = None,
    output: Output = None,
    shapes: Shapes = None,
    shape: Shape = None,
    dims: OpenDims = None,
    allow_opaque: Opaque = False,
    weights: Weights = None,
    parameters: Parameters = None,
    node_limit: Nodes = 2_000_000,
    time_limit: Seconds = 120.0,
    iter_limit: Iterations = 1_000,
    memory_limit: Memory = "8GB",
    seed: Seed = 0,
    no_check: NoCheck = False,
) -> None:
    """Find the layouts in which a network moves the fewest bytes, and list every copy before and after."""
    from glenside.cli.commands.optimize import INTERRUPTED, UNMAPPED
    from glenside.layout import arrange_layout
    from glenside.targets import ConvolutionUnit

    target = ConvolutionUnit(unit, loads=loads, stores=stores)
    writable(json_path, output)
    limits = limits_of(node_limit, time_limit, iter_limit, memory_limit)
    load = loader(source, shapes, shape, weights, parameters, seed, dims=dims, allow_opaque=allow_opaque)
    report = arrange_layout(load(), target, limits=limits, seed=seed, verify=not no_check)
    if json_path != "-":
        _print(report)
    if json_path is not None:
        write_json(report.as_dict(), json_path)
    if output is not None:
        save_program(report.program, output, seed)
    if report.stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if report.checked == "exact" or no_check else UNMAPPED)


def _print(report: LayoutReport) -> None:
    """Equal copies are one row, with how many there are before and after."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from glenside.cli.table import console

    out = console()
    title = Text(f"{one_line(report.name)} on {report.target}", style="table.title")
    table = Table(title=title, title_justify="left", box=box.SIMPLE, show_footer=True)
    table.pad_edge = False
    table.add_column("copy", "total", no_wrap=True)
    table.add_column("where", "", no_wrap=True)
    table.add_column("dims", "", overflow="fold")
    for found, when in ((report.before, "before"), (report.after, "after")):
        table.add_column(when, f"{len(found):,}", justify="right", no_wrap=True)
        table.add_column(f"bytes {when}", f"{total(found):,}", justify="right", no_wrap=True)
    counts = [Counter(found) for found in (report.before, report.after)]
    for movement in counts[0] | counts[1]:
        cells = []
        for count in (c[movement] for c in counts):
            cells += [f"{count:,}", f"{count * movement.bytes:,}"] if count else ["", ""]
        table.add_row(movement.what, movement.place, " x ".join(map(str, movement.dims)), *cells)
    out.print(table)
    inside = (f"{total(found, 'inside'):,} bytes" for found in (report.before, report.after))
    out.print(f"Inside the network, its own inputs and outputs aside: {' before, '.join(inside)} after.")
    out.print(
        f"Search: {report.e_nodes:,} e-nodes in {report.e_classes:,} e-classes after {report.iterations} iterations, "
        f"{report.seconds:.2f} s, stopped: {report.stopped}."
    )
    out.print(f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).", markup=False)
    if report.kept:
        out.print("Nothing that moves less was found: the program is kept as it is.")
