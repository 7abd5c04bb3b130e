"""`glenside tensorize`, `compare`, `layout` and `optimize`: a program and a target, from options to an answer."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from glenside.cli.instructions import Instructions, is_code, require_code
from glenside.cli.options import Bounds, CheckIn, Machine, Output, Plot, Results, Trained, Valued, Ways, command
from glenside.cli.output import egraph_endings, emit_egraph, print_or_write, status_line, typed_text, writable
from glenside.cli.search import Outcome, in_runtime, report, saver, search
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion

if TYPE_CHECKING:
    from glenside.targets.base import Target, Way

STAGES = ("typed", "egraph", "egglog", "extracted", "folded", "report")
TABLES = ("table", "passes", "egraph", "egglog")
_LAYER = typer.Option("--layer", metavar="NAME", help="With --emit egraph: only the part that this layer needs.")
_ORDERS = "none, runs (orders that keep runs of elements contiguous) or all"


@command
def tensorize(
    source: Trained,
    machine: Machine,
    out: Results,
    bounds: Bounds,
    ways: Ways,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the rules that led to each chosen variant.")
    ] = False,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="List the Pareto front of each layer, such as time against memory.")
    ] = False,
    plot: Plot = None,
    quantize: Annotated[
        str | None,
        typer.Option(
            "--quantize",
            metavar="random|FILE.npz",
            help="For an npu: quantize a float network to integers, calibrated on random numbers or on samples by "
            "input; -o NAME.bin is then one program from inputs to results.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="simulator|rtl",
            help="For an npu: run the program of -o NAME.bin, and compare its results with the network's and its "
            "cycles with the predicted ones.",
        ),
    ] = None,
    emit: Annotated[
        str,
        typer.Option(
            "--emit",
            help="table; passes: also the passes that made -o NAME.bin, with times; egraph: write the e-graph instead, "
            "to -o; or egglog: the search as egglog text, to -o.",
        ),
    ] = "table",
    layer: Annotated[str | None, _LAYER] = None,
) -> None:
    """Find the best variant of every layer on a target, such as its mapping onto an array, and print a table."""
    if emit not in TABLES:
        raise BadInput(f"--emit must be one of {', '.join(TABLES)}, got {emit!r}{suggestion(emit, TABLES)}")
    _of_egraph(emit, layer)
    if emit == "passes" and not is_code(out.output):
        raise BadInput("--emit passes lists the passes that make npu instructions: give -o NAME.bin")
    if emit not in ("table", "passes") and on is not None:
        raise BadInput(f"--on runs instructions, and --emit {emit} makes none: give one of them")
    if source.train and quantize is not None:
        raise BadInput("--train makes a step in floats, and --quantize a network of integers: give one of them")
    bounds.start_workers_early()
    target = machine.parsed()
    way = ways.way(target, explain=explain)
    if emit == "egraph":
        _emit_egraph(source, target, bounds, way, out.output, layer)
    if emit == "egglog":
        _emit_egglog(source, target, bounds, way, out.output)
        return
    passes = emit == "passes"
    report(source, target, bounds, out, way=way, plot=plot, pareto=pareto, quantize=quantize, on=on, passes=passes)


@command
def compare(source: Trained, machine: Machine, out: Results, bounds: Bounds, plot: Plot = None) -> None:
    """Compare the cost of each layer in a baseline, such as the baseline mapping, with the best variant found."""
    report(source, machine.parsed(), bounds, out, plot=plot, compare=True)


@command
def layout(
    source: Valued,
    out: Results,
    bounds: Bounds,
    unit: Annotated[str, typer.Option("--unit", help="The layout of the unit: nhwc, nchw, nchw16c or any.")] = "nhwc",
    loads: Annotated[
        str, typer.Option(help=f"Other axis orders in which the unit reads an operand at no cost: {_ORDERS}.")
    ] = "all",
    stores: Annotated[
        str, typer.Option(help=f"Other axis orders in which the unit stores a result at no cost: {_ORDERS}.")
    ] = "all",
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot", metavar="FILE.svg", help="Write a picture: the network with every copy, before and after."
        ),
    ] = None,
) -> None:
    """Find the layouts in which a network moves the fewest bytes, and list every copy before and after."""
    from glenside.targets import ConvolutionUnit

    report(source, ConvolutionUnit(unit, loads=loads, stores=stores), bounds, out, plot=plot)


@command
def optimize(
    source: Valued,
    machine: Machine,
    bounds: Bounds,
    ways: Ways,
    emit: Annotated[str, typer.Option("--emit", help=f"The stage to print: {', '.join(STAGES)}.")] = "extracted",
    layer: Annotated[str | None, _LAYER] = None,
    output: Output = None,
    check: CheckIn = "exact",
) -> None:
    """Optimize a program and print it, or an earlier stage."""
    _refuse(emit, check)
    _of_egraph(emit, layer)
    target = machine.parsed()
    way = ways.way(target)
    writable(output)
    require_code(target, output)
    twice = in_runtime(check)
    if emit == "egglog":
        _emit_egglog(source, target, bounds, way, output)
        return
    if emit == "typed":
        print_or_write(typed_text(source.loader()()), output)
        return
    early = output if emit == "extracted" else None
    code = Instructions.of(None, early, source.seed, most=bounds.time_limit)
    if emit == "egraph":
        _emit_egraph(source, target, bounds, way, output, layer)
    result = search(source, target, bounds, verify=True, way=way, on_answer=saver(source, early, code), code=code)
    outcome = Outcome(source, result, result.program, code=code)
    if emit == "folded":
        from glenside.passes.constant_folding import fold

        outcome.program = fold(result.program)
    if emit != "report" and early in (None, "-"):
        outcome.save(output or "-")
    words = outcome.run_in_onnxruntime(output if emit != "report" else None) if twice else ""
    outcome.tell_of_program()
    if emit == "report":
        outcome.write_json(output or "-")
    else:
        for said in (code.words(), words):
            print(said, file=sys.stderr, end="\n" if said else "")
    outcome.leave(checked=True)


def _of_egraph(emit: str, layer: str | None) -> None:
    """Raises BadInput if --layer is given without --emit egraph."""
    if layer is not None and emit != "egraph":
        raise BadInput("--layer is the part of an e-graph to write: give --emit egraph too")


def _emit_egraph(
    source: Valued, target: Target, bounds: Bounds, way: Way, output: str | None, layer: str | None
) -> NoReturn:
    """Searches, writes the e-graph, and exits without a check."""
    egraph_endings(output)
    result = search(source, target, bounds, verify=False, way=replace(way, trace=True))
    emit_egraph(result, output, layer)
    Outcome(source, result, result.program).leave(checked=False)


def _emit_egglog(source: Valued, target: Target, bounds: Bounds, way: Way, output: str | None) -> None:
    """Searches, and writes the search as egglog text."""
    from glenside.driver import export_egglog

    writable(output)
    load = source.loader()
    with status_line("saturate"):
        text = export_egglog(load(), target, limits=bounds.limits(), way=way, seed=source.seed)
    print_or_write(text, output)


def _refuse(emit: str, check: str) -> None:
    """Raises BadInput for an unknown stage, or a stage without an optimized program to check."""
    if emit not in STAGES:
        raise BadInput(f"--emit must be one of {', '.join(STAGES)}, got {emit!r}{suggestion(emit, STAGES)}")
    if check == "onnxruntime" and emit in ("typed", "egraph", "egglog"):
        raise BadInput(
            f"--check onnxruntime compares an optimized program with its original, and --emit {emit} has none"
        )
