"""`glenside tensorize`, `optimize` and `compare`: the pipeline, from flags to a table, a program or a plot."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from glenside.cli.commands.forms import emit_forms, leave, refuse, refuse_pareto, run_forms, show_forms
from glenside.cli.options import (
    ArraySize,
    Blocking,
    CheckIn,
    Explain,
    ExtractSeconds,
    Growth,
    Iterations,
    JsonFile,
    MappingName,
    MaxRows,
    Memory,
    Method,
    NetworkName,
    NoCache,
    NoCheck,
    Nodes,
    Objective,
    Opaque,
    OpenDims,
    Output,
    Parameters,
    Pareto,
    Plot,
    Seconds,
    Seed,
    Shape,
    Shapes,
    Source,
    TargetName,
    Weights,
    machine,
)
from glenside.cli.output import (
    emit_egraph,
    print_or_write,
    progress_line,
    save_program,
    typed_text,
    writable,
    write_json,
)
from glenside.cli.runtime import in_runtime, in_words, run_both
from glenside.cli.sources import limits_of, loader
from glenside.form_target import FormTarget
from glenside.ir.errors import BadInput
from glenside.report.plots import plot_ending

if TYPE_CHECKING:
    from glenside.check.onnxruntime import RuntimeReport
    from glenside.ir.program import Program
    from glenside.pipeline import Result
    from glenside.targets.base import Target

UNMAPPED, INTERRUPTED = 1, 130
STAGES = ("typed", "egraph", "extracted", "folded", "report")


def tensorize(
    source: Source,
    array: ArraySize = None,
    target: TargetName = None,
    objective: Objective = None,
    max_rows: MaxRows = None,
    max_weight_growth: Growth = None,
    network: NetworkName = None,
    json_path: JsonFile = None,
    output: Output = None,
    pareto: Pareto = False,
    plot: Plot = None,
    shapes: Shapes = None,
    shape: Shape = None,
    dims: OpenDims = None,
    allow_opaque: Opaque = False,
    weights: Weights = None,
    parameters: Parameters = None,
    blocking: Blocking = "loops",
    mapping: MappingName = "best",
    method: Method = "auto",
    extract_seconds: ExtractSeconds = 60.0,
    explain: Explain = False,
    node_limit: Nodes = 2_000_000,
    time_limit: Seconds = 120.0,
    iter_limit: Iterations = 1_000,
    memory_limit: Memory = "8GB",
    seed: Seed = 0,
    check: CheckIn = "exact",
    no_check: NoCheck = False,
    no_cache: NoCache = False,
) -> None:
    """Map the products of a program onto an array, or choose their forms, and print one row for each."""
    on = machine(array, target, objective, max_rows, max_weight_growth, network)
    writable(json_path, output, plot)
    if plot is not None:
        plot_ending(plot)
    twice = in_runtime(check)
    limits = limits_of(node_limit, time_limit, iter_limit, memory_limit)
    load = loader(source, shapes, shape, weights, parameters, seed, dims=dims, allow_opaque=allow_opaque)
    if isinstance(on, FormTarget):
        refuse(on.name, {"--blocking": blocking != "loops", "--mapping": mapping != "best", "--explain": explain})
        chosen = run_forms(load, on, limits=limits, seed=seed, verify=not no_check)
        show_forms(chosen, json_path=json_path, output=output, plot=plot, pareto=pareto, seed=seed)
        leave(chosen, not no_check)
    refuse_pareto(on.name, pareto, plot)
    how: dict[str, Any] = {"blocking": blocking, "mapping": mapping, "method": method, "explain": explain}
    how["extract_seconds"] = extract_seconds
    result = run(load, on, limits=limits, seed=seed, verify=not no_check, cached=not no_cache, **how)
    if json_path != "-":
        from glenside.cli.table import print_report

        print_report(result.report, explain=explain)
    if output is not None:
        save_program(result.program, output, seed)
    report = run_both(result, result.program, source, weights, output, seed) if twice and not ended(result) else None
    if report is not None and json_path != "-":
        print(in_words(report, result))
    if json_path is not None:
        write_json(_content(result, report), json_path)
    _finish(result, not no_check, report)


def optimize(
    source: Source,
    target: TargetName = None,
    array: ArraySize = None,
    objective: Objective = None,
    max_rows: MaxRows = None,
    max_weight_growth: Growth = None,
    network: NetworkName = None,
    emit: Annotated[str, typer.Option("--emit", help="typed, egraph, extracted, folded or report.")] = "extracted",
    output: Output = None,
    shapes: Shapes = None,
    shape: Shape = None,
    dims: OpenDims = None,
    allow_opaque: Opaque = False,
    weights: Weights = None,
    parameters: Parameters = None,
    blocking: Blocking = "loops",
    mapping: MappingName = "best",
    method: Method = "auto",
    extract_seconds: ExtractSeconds = 60.0,
    node_limit: Nodes = 2_000_000,
    time_limit: Seconds = 120.0,
    iter_limit: Iterations = 1_000,
    memory_limit: Memory = "8GB",
    seed: Seed = 0,
    check: CheckIn = "exact",
    no_cache: NoCache = False,
) -> None:
    """Optimize a program and print one stage of the pipeline."""
    if emit not in STAGES:
        raise BadInput(f"--emit must be one of {', '.join(STAGES)}, got {emit!r}")
    on = machine(array, target, objective, max_rows, max_weight_growth, network)
    writable(output)
    twice = in_runtime(check) and emit not in ("typed", "egraph")
    limits = limits_of(node_limit, time_limit, iter_limit, memory_limit)
    load = loader(source, shapes, shape, weights, parameters, seed, dims=dims, allow_opaque=allow_opaque)
    if emit == "typed":
        print_or_write(typed_text(load()), output)
        return
    if isinstance(on, FormTarget):
        refuse(on.name, {"--blocking": blocking != "loops", "--mapping": mapping != "best"})
        chosen = run_forms(load, on, limits=limits, seed=seed, verify=emit != "egraph")
        emit_forms(chosen, emit, output, seed)
        leave(chosen, emit != "egraph")
    how: dict[str, Any] = {
        "blocking": blocking,
        "mapping": mapping,
        "method": method,
        "extract_seconds": extract_seconds,
    }
    cached = not no_cache and emit != "egraph"
    result = run(load, on, limits=limits, seed=seed, verify=emit != "egraph", cached=cached, **how)
    if emit == "egraph":
        emit_egraph(result.egraph, result.choice, output)
        _finish(result, checked=False)
    program = result.program
    if emit == "folded":
        from glenside.passes.constant_folding import fold

        program = fold(program)
    if emit != "report":
        save_program(program, output or "-", seed)
    file = output if emit != "report" else None
    report = run_both(result, program, source, weights, file, seed) if twice and not ended(result) else None
    if emit == "report":
        write_json(_content(result, report), output or "-")
    elif report is not None:
        print(in_words(report, result), file=sys.stderr)
    _finish(result, True, report)


def compare(
    source: Source,
    array: ArraySize = None,
    target: TargetName = None,
    objective: Objective = None,
    max_rows: MaxRows = None,
    max_weight_growth: Growth = None,
    network: NetworkName = None,
    plot: Plot = None,
    json_path: JsonFile = None,
    shapes: Shapes = None,
    shape: Shape = None,
    dims: OpenDims = None,
    allow_opaque: Opaque = False,
    parameters: Parameters = None,
    seed: Seed = 0,
    no_check: NoCheck = False,
    no_cache: NoCache = False,
) -> None:
    """Print what the usual mapping takes against the best one, for each layer."""
    from glenside.report.plots import write_comparison_plot

    on = machine(array, target, objective, max_rows, max_weight_growth, network)
    writable(json_path, plot)
    if plot is not None:
        plot_ending(plot)
    load = loader(source, shapes, shape, None, parameters, seed, dims=dims, allow_opaque=allow_opaque)
    if isinstance(on, FormTarget):
        chosen = run_forms(load, on, limits=None, seed=seed, verify=not no_check)
        show_forms(chosen, json_path=json_path, output=None, plot=plot, pareto=True, seed=seed)
        leave(chosen, not no_check)
    result = run(load, on, seed=seed, verify=not no_check, cached=not no_cache)
    if json_path != "-":
        from glenside.cli.table import print_comparison

        print_comparison(result.report)
    if json_path is not None:
        write_json(result.report.as_dict(), json_path)
    if plot is not None:
        write_comparison_plot(result.report, plot)
    _finish(result, not no_check)


def run(load: Callable[[], Program], on: Target, *, cached: bool, seed: int, verify: bool, **how: Any) -> Result:
    """Load a program and run the pipeline on it, with progress on a terminal and the cache unless it is refused."""
    from glenside.cache import Cache
    from glenside.pipeline import optimize as run_pipeline

    started = time.perf_counter()
    program = load()
    seconds = time.perf_counter() - started
    with ExitStack() as open_:
        listener = open_.enter_context(progress_line())
        cache = open_.enter_context(Cache()) if cached else None
        return run_pipeline(
            program, on, seed=seed, verify=verify, cache=cache, listener=listener, load_seconds=seconds, **how
        )


def _content(result: Result, report: RuntimeReport | None) -> dict[str, Any]:
    """What JSON says of a result."""
    content = result.report.as_dict()
    return content if report is None else {**content, "onnxruntime": report.as_dict()}


def _finish(result: Result, checked: bool, report: RuntimeReport | None = None) -> NoReturn:
    """Leave with the exit status. A cache that could not keep the answer is an error, now that nothing is lost."""
    if result.not_kept is not None:
        raise result.not_kept
    raise typer.Exit(status(result, checked, report))


def ended(result: Result) -> bool:
    """Whether Ctrl-C ended the search or the check."""
    return result.stopped == "interrupted" or result.interrupted


def status(result: Result, checked: bool, report: RuntimeReport | None = None) -> int:
    """The exit status: 130 interrupted, 1 something unmapped or unequal, 0 otherwise."""
    if ended(result):
        return INTERRUPTED
    if not all(row.mapped for row in result.report.layers) or (report is not None and not report.ok):
        return UNMAPPED
    return 0 if result.report.ok or not checked else UNMAPPED
