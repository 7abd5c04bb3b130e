"""The commands on a target that chooses the form of each layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from glenside.cli.output import emit_egraph, progress_line, save_program, write_json
from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from glenside.egraph.saturation import Limits
    from glenside.form_target import FormTarget
    from glenside.forms import FormResult
    from glenside.ir.program import Program

FAILED, INTERRUPTED = 1, 130


def run_forms(
    load: Callable[[], Program], on: FormTarget, *, limits: Limits | None, seed: int, verify: bool
) -> FormResult:
    """Load a program and choose the forms of its layers, with progress on a terminal."""
    from glenside.optimizing import optimize

    started = time.perf_counter()
    program = load()
    seconds = time.perf_counter() - started
    with ExitStack() as open_:
        listener = open_.enter_context(progress_line())
        return optimize(program, on, limits=limits, seed=seed, verify=verify, listener=listener, load_seconds=seconds)


def refuse(target: str, given: Mapping[str, bool]) -> None:
    """Raise BadInput for a flag that only arrays have."""
    wrong = next((flag for flag, is_given in given.items() if is_given), None)
    if wrong is not None:
        raise BadInput(f"{wrong} is for arrays: {target} chooses the form of each layer")


def refuse_pareto(target: str, pareto: bool, plot: str | None) -> None:
    """Raise BadInput for what only targets have that choose between forms."""
    if pareto or plot is not None:
        flag = "--pareto" if pareto else "--plot"
        raise BadInput(f"{flag} is for targets that choose between forms, as cpu:8MB; use compare --plot for {target}")


def emit_forms(result: FormResult, emit: str, output: str | None, seed: int) -> None:
    """Print or write one stage of `glenside optimize`."""
    if emit == "egraph":
        emit_egraph(result.egraph, {}, output)
    elif emit == "report":
        write_json(result.report.as_dict(), output or "-")
    else:
        if emit == "folded":
            from glenside.passes.constant_folding import fold

            save_program(fold(result.program), output or "-", seed)
        else:
            _save(result, output or "-", seed)


def _save(result: FormResult, path: str, seed: int) -> None:
    """Write the program; a function that a machine runs is what it is given, see `FormTarget.ready`."""
    from glenside.formats import ending

    program = result.target.ready(result.program, seed) if ending(path) == ".py" else result.program
    save_program(program, path, seed)


def show_forms(
    result: FormResult, *, json_path: str | None, output: str | None, plot: str | None, pareto: bool, seed: int
) -> None:
    """Print and write what was asked for."""
    from glenside.cli.form_table import print_forms, print_front

    if json_path != "-":
        if pareto:
            print_front(result.report)
        print_forms(result.report)
    if output is not None:
        _save(result, output, seed)
    if plot is not None:
        from glenside.report.plots import write_front_plot

        write_front_plot(result.report, plot)
    if json_path is not None:
        content: dict[str, Any] = result.report.as_dict()
        write_json(content, json_path)


def leave(result: FormResult, checked: bool) -> NoReturn:
    """The exit status: 130 interrupted, 1 something unequal or over its budget, 0 otherwise."""
    if result.stopped == "interrupted" or result.interrupted:
        raise typer.Exit(INTERRUPTED)
    report = result.report
    wrong = bool(report.notes) or (checked and not report.ok)
    raise typer.Exit(FAILED if wrong else 0)
