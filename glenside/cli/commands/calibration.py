"""`glenside calibrate`: measures the costs of a machine on this computer."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glenside.cli.options import Html, JsonFile
from glenside.cli.output import json_report, print_or_write, status_line, writable
from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import unless_stopped

if TYPE_CHECKING:
    from glenside.ir.program import Program

_MOST_RUNS = 1_000


def calibrate(
    target: Annotated[
        str, typer.Option("--target", help="The target to measure: cpu, cpu:avx2, mpc, or mpc:semi2k,field=128.")
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE.toml", help="Write the costs to this file, for --target FILE.toml."
        ),
    ],
    runs: Annotated[int | None, typer.Option("--runs", help="Runs of each measurement; the fastest counts.")] = None,
    html: Html = None,
    json_path: JsonFile = None,
) -> None:
    """Measure the costs of a machine and write them: this processor for compiled programs, or two parties in two local
    processes.
    """
    from glenside.report.html_file import require_page

    writable(html)
    require_page(html)
    if runs is not None:
        whole("the number of --runs", runs, 1, _MOST_RUNS)
    if not output.lower().endswith(".toml"):
        raise BadInput(f"costs are written as TOML, for --target FILE.toml, got {output}")
    name, _, machine = target.partition(":")
    with json_report(json_path) as content:
        if name == "cpu":
            _processor(machine or "native", output, runs, html, content)
        else:
            _parties(target, output, runs, html, content)


def _write_page(
    path: str | None, machine: str, timed: Sequence[tuple[str, float, float]], costs: str, rounds: int
) -> None:
    """Writes the measurements as a page, if `--html` is given. Raises BadInput."""
    if path is None:
        return
    from glenside.ir.files import write_text
    from glenside.report.measured_pages import calibration_document

    facts = {"machine": machine, "timed": f"{rounds} times each; the fastest counts"}
    write_text(path, calibration_document(machine, timed, costs, facts).html())


def _rows(timed: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    """Returns the measured and predicted seconds of each piece."""
    return [{"name": name, "seconds": seconds, "predicted": predicted} for name, seconds, predicted in timed]


def _processor(name: str, output: str, runs: int | None, html: str | None, content: dict[str, Any]) -> None:
    from glenside.codegen.processor.model import MACHINES, machine_of
    from glenside.driver import optimize
    from glenside.execution.background_load import MOST
    from glenside.execution.processor import ROUNDS, described
    from glenside.execution.processor import calibrate as measured
    from glenside.targets import CPU

    machine = machine_of(name)
    if machine is None or machine.name not in MACHINES:
        raise BadInput(f"calibration measures a native processor, {', '.join(MACHINES)}, got {name}")
    writable(output)
    rounds = ROUNDS if runs is None else runs

    def searched(program: Program) -> Program:
        found = optimize(program, CPU(machine=machine.name), verify=False).program
        unless_stopped()  # an interrupted search returns an answer that must not be measured
        return found

    with status_line("compile") as show:
        fit = measured(
            machine,
            searched,
            rounds,
            lambda done, of, what: show(f"{what}, step {done + 1} of {of}"),
        )
    costs = described(fit, machine.name, rounds)
    print_or_write(costs, output)
    prices = fit.machine.nanoseconds
    timed = [(f"{nest.program}: {nest.name}", nest.seconds, 1e-9 * nest.work.priced(prices)) for nest in fit.nests]
    _write_page(html, machine.name, timed, costs, rounds)
    errors = fit.errors
    content |= {"machine": machine.name, "rounds": rounds, "measured": _rows(timed), "errors": [*errors]}
    print(
        f"{len(errors)} nests of loops: prediction error {statistics.mean(errors):.0%} (mean), "
        f"{statistics.median(errors):.0%} (median)"
    )
    if fit.others > MOST:
        print(f"other programs took {fit.others:.1f} processors meanwhile: measure again when they have ended")


def _parties(target: str, output: str, runs: int | None, html: str | None, content: dict[str, Any]) -> None:
    from glenside.cli.commands.secure import MACHINE, parties_of
    from glenside.execution.spu.calibration import RUNS, described
    from glenside.execution.spu.calibration import calibrate as measured
    from glenside.targets import parse_target

    other = None if target == "mpc" else parse_target(target)
    if other is not None and other.machine != MACHINE:
        raise BadInput(f"{other.name} has no costs that are measured: give cpu, or two parties such as mpc:semi2k")
    parties = parties_of(target)
    writable(output)
    count = RUNS if runs is None else runs
    with status_line("SPU: compiling") as show:
        fit = measured(parties.protocol, count, lambda done, of: show(f"SPU: {done} of {of} runs"))
    costs = described(fit, parties.protocol, count)
    print_or_write(costs, output)
    timed = [(name, seconds, predicted) for name, (seconds, predicted) in fit.programs.items()]
    _write_page(html, parties.name, timed, costs, count)
    content |= {"machine": parties.name, "rounds": count, "measured": _rows(timed), "median error": fit.median_error}
    print(f"{len(fit.programs)} programs: prediction error {fit.median_error:.0%} (median)")
