"""`glenside layout`: what a network moves only to put data elsewhere, before and after."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from glenside.commands.options import (
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
from glenside.commands.output import save_program, writable, write_json
from glenside.ir.names import one_line
from glenside.sources import limits_of, loader

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
    from glenside.commands.optimize import INTERRUPTED, UNMAPPED
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
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from glenside.table import console

    out = console()
    title = Text(f"{one_line(report.name)} on {report.target}", style="table.title")
    table = Table(title=title, title_justify="left", box=box.SIMPLE, show_footer=True)
    table.pad_edge = False
    before, after = report.totals["before"], report.totals["after"]
    table.add_column("copy", f"{len(report.before)} before, {len(report.after)} after", no_wrap=True)
    table.add_column("where", "", overflow="fold")
    table.add_column("dims", "", overflow="fold")
    table.add_column("before, bytes", f"{sum(before.values()):,}", justify="right", no_wrap=True)
    table.add_column("after, bytes", f"{sum(after.values()):,}", justify="right", no_wrap=True)
    for found, side in ((report.before, 0), (report.after, 1)):
        for movement in found:
            cells = ["", ""]
            cells[side] = f"{movement.bytes:,}"
            place = Text(one_line(movement.place))  # no name is taken for markup
            table.add_row(movement.what, place, " x ".join(map(str, movement.dims)), *cells)
    out.print(table)
    inside = f"{before['inside']:,} bytes before, {after['inside']:,} after"
    out.print(f"Inside the network, its own inputs and outputs aside: {inside}.")
    out.print(
        f"Search: {report.e_nodes:,} e-nodes in {report.e_classes:,} e-classes after {report.iterations} iterations, "
        f"{report.seconds:.2f} s, stopped: {report.stopped}."
    )
    out.print(f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).")
    if report.kept:
        print("Nothing better than the program itself was found: it is kept as it is.", file=sys.stderr)
