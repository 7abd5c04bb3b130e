"""What every command that optimizes does: refuse what cannot be, load, search, check, write, leave."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from glenside.cli.exit_status import INTERRUPTED, status_of
from glenside.cli.output import progress_line, save_program, writable, write_json
from glenside.cli.runtime import in_runtime, in_words, run_both
from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from glenside.check.onnxruntime import RuntimeReport
    from glenside.cli.option_groups import Bounds, Results, Valued
    from glenside.ir.program import Program
    from glenside.report.result import Result
    from glenside.targets.base import Target, Way


def refuse(target: Target, *, pareto: bool = False, plot: str | None = None, compare: bool = False) -> None:
    """Raise BadInput for a list or a plot that the target has no measures for, or a plot that cannot be written."""
    from glenside.report.plots import plot_ending

    writable(plot)
    if plot is not None:
        plot_ending(plot)
    drawn = target.front is not None or (compare and target.peak is not None)
    for flag, wanted in (("--pareto", pareto and target.front is None), ("--plot", plot is not None and not drawn)):
        if wanted:
            other = f"; use compare --plot for {target.name}" if target.peak is not None else ""
            raise BadInput(f"{flag} is for targets whose variants trade one measure for another, as cpu:8MB{other}")


def search(source: Valued, target: Target, bounds: Bounds, *, verify: bool, way: Way | None = None) -> Result:
    """Load a program and optimize it, with progress on a terminal and the cache unless it is refused."""
    from glenside.cache import Cache
    from glenside.driver import optimize

    limits, load = bounds.limits(), source.loader()
    started = time.perf_counter()
    program = load()
    how: dict[str, Any] = {} if way is None else dict(vars(way))
    how["load_seconds"] = time.perf_counter() - started
    with ExitStack() as open_:
        listener = open_.enter_context(progress_line())
        cache = open_.enter_context(Cache()) if target.repeatable and not bounds.no_cache else None
        how |= {"cache": cache, "listener": listener, "limits": limits, "seed": source.seed}
        return optimize(program, target, verify=verify, **how)


@dataclass
class Outcome:
    """A result, and what onnxruntime found of it, where it was asked."""

    result: Result
    source: Valued
    runtime: RuntimeReport | None = None

    def save(self, path: str, program: Program | None = None) -> None:
        """Write the answer, or a program made of it; a function that a machine runs is made of `Target.ready`."""
        from glenside.formats import ending

        program = self.result.program if program is None else program
        if ending(path) == ".py":
            program = self.result.target.ready(program, self.source.seed)
        save_program(program, path, self.source.seed)

    def run_in_onnxruntime(self, output: str | None, program: Program | None = None) -> str:
        """Compare with the original in onnxruntime, unless Ctrl-C ended the search; what it found, in words."""
        if status_of(self.result, checked=False) == INTERRUPTED:
            return ""
        made, source = self.result.program if program is None else program, self.source
        self.runtime = run_both(self.result, made, source.source, source.weights, output, source.seed)
        return in_words(self.runtime, self.result)

    def write_json(self, path: str) -> None:
        """Write the report, with what onnxruntime found."""
        content = self.result.report.as_dict()
        write_json(content if self.runtime is None else {**content, "onnxruntime": self.runtime.as_dict()}, path)

    def leave(self, checked: bool) -> NoReturn:
        """End with the exit status. A cache that could not keep the answer is an error, now that nothing is lost."""
        if self.result.not_kept is not None:
            raise self.result.not_kept
        raise typer.Exit(status_of(self.result, checked, self.runtime))


def report(
    source: Valued,
    target: Target,
    bounds: Bounds,
    out: Results,
    *,
    way: Way | None = None,
    plot: str | None = None,
    pareto: bool = False,
    compare: bool = False,
) -> NoReturn:
    """Optimize, print the table, write what was asked for, and leave."""
    refuse(target, pareto=pareto, plot=plot, compare=compare)
    writable(out.json_path, out.output)
    twice = in_runtime(out.check)
    result = search(source, target, bounds, verify=not out.no_check, way=way)
    outcome = Outcome(result, source)
    printed = out.json_path != "-"
    if printed:
        from glenside.cli.table import print_front, print_report

        if pareto or (compare and target.front is not None):
            print_front(result.report)
        print_report(result.report, compare=compare, explain=way is not None and way.explain)
    if out.output is not None:
        outcome.save(out.output)
    if twice:
        words = outcome.run_in_onnxruntime(out.output)
        if words and printed:
            print(words)
    if plot is not None:
        from glenside.report.plots import write_report_plot

        write_report_plot(result.report, plot)
    if out.json_path is not None:
        outcome.write_json(out.json_path)
    outcome.leave(not out.no_check)
