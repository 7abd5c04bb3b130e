"""`glenside calibrate`: what a machine takes, measured here."""

from __future__ import annotations

import statistics
from typing import Annotated

import typer

from glenside.cli.output import print_or_write, status_line, writable
from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput

_MOST_RUNS = 1_000


def calibrate(
    target: Annotated[
        str, typer.Option("--target", help="What to measure: cpu, cpu:avx2, mpc, or mpc:semi2k,field=128.")
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE.toml", help="Where the costs go, for --target FILE.toml.")
    ],
    runs: Annotated[int | None, typer.Option("--runs", help="How often each is timed; the fastest counts.")] = None,
) -> None:
    """Measure what a machine takes, and write it: this processor for compiled programs, or two parties in two local
    processes.
    """
    if runs is not None:
        whole("the number of --runs", runs, 1, _MOST_RUNS)
    if not output.lower().endswith(".toml"):
        raise BadInput(f"costs are written as TOML, for --target FILE.toml, got {output}")
    name, _, machine = target.partition(":")
    if name == "cpu":
        _processor(machine or "native", output, runs)
    else:
        _parties(target, output, runs)


def _processor(name: str, output: str, runs: int | None) -> None:
    from glenside.codegen.machine import MACHINES, machine_of
    from glenside.driver import optimize
    from glenside.execution.processor import ROUNDS, described
    from glenside.execution.processor import calibrate as measured
    from glenside.targets import CPU

    machine = machine_of(name)
    if machine is None or machine.name not in MACHINES:
        raise BadInput(f"what is measured is native, {', '.join(MACHINES)}, got {name}")
    writable(output)
    rounds = ROUNDS if runs is None else runs
    with status_line("compile") as show:
        fit = measured(
            machine,
            lambda program: optimize(program, CPU(machine=machine.name), verify=False).program,
            rounds,
            lambda done, of, what: show(f"{what}, {done + 1} of {of}"),
        )
    print_or_write(described(fit, machine.name, rounds), output)
    errors = fit.errors
    print(
        f"{len(errors)} nests of loops: told {statistics.mean(errors):.0%} from what was measured (mean), "
        f"{statistics.median(errors):.0%} (median)"
    )


def _parties(target: str, output: str, runs: int | None) -> None:
    from glenside.cli.commands.secure import parties_of
    from glenside.execution.spu.calibration import RUNS, described
    from glenside.execution.spu.calibration import calibrate as measured

    parties = parties_of(target)
    writable(output)
    count = RUNS if runs is None else runs
    with status_line("SPU: compiling") as show:
        fit = measured(parties.protocol, count, lambda done, of: show(f"SPU: {done} of {of} runs"))
    print_or_write(described(fit, parties.protocol, count), output)
    print(f"{len(fit.programs)} programs: told {fit.median_error:.0%} from what was measured (median)")
