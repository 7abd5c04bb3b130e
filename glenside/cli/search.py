"""The steps of every command that optimizes: validate options, load, search, check, write, exit."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from glenside.check import is_equal
from glenside.cli.instructions import Instructions, is_code, require_code
from glenside.cli.output import FAILED, OK, WRONG, save_program, writable, write_json
from glenside.ir.errors import BadInput
from glenside.ir.files import write_text
from glenside.ir.interrupts import INTERRUPTED, answered, undisturbed, write_down

if TYPE_CHECKING:
    from glenside.check.onnxruntime import RuntimeReport
    from glenside.cli.options import Bounds, Results, Valued
    from glenside.ir.program import Program
    from glenside.report.result import Result
    from glenside.targets.base import Target, Way

CHECKS = ("exact", "onnxruntime")


def refuse(target: Target, *, pareto: bool, plot: str | None, compare: bool) -> None:
    """Raises BadInput for a list or plot that the target has no measures for, or a plot that cannot be written."""
    from glenside.targets.base import MovesLayouts

    writable(plot)
    if plot is not None and isinstance(target, MovesLayouts) and not compare:
        from glenside.report.network_picture import require_svg

        require_svg(plot)
        return
    if plot is not None:
        from glenside.report.plots import plot_ending

        plot_ending(plot)
    drawn = target.front is not None or (compare and target.peak is not None)
    for flag, wanted in (("--pareto", pareto and target.front is None), ("--plot", plot is not None and not drawn)):
        if wanted:
            other = f"; use compare --plot for {target.name}" if target.peak is not None else ""
            raise BadInput(f"{flag} is for targets whose variants trade one measure for another, as cpu:8MB{other}")


def _plot(result: Result, path: str, *, compare: bool) -> None:
    """Writes a picture of the copies if the target counts them, else a plot of the variants' measures."""
    from glenside.targets.base import MovesLayouts

    if isinstance(result.target, MovesLayouts) and not compare:
        from glenside.report.network_picture import layout_picture

        write_text(path, layout_picture(result))
        return
    from glenside.report.plots import write_report_plot

    write_report_plot(result.report, path)


def in_runtime(check: str) -> bool:
    """True if a check in onnxruntime is requested. Raises BadInput, also if its packages are missing."""
    if check not in CHECKS:
        raise BadInput(f"--check is one of {', '.join(CHECKS)}, got {check!r}")
    if check == "onnxruntime":
        from glenside.ir.packages import import_onnx, require_onnxruntime

        import_onnx()
        require_onnxruntime()
    return check == "onnxruntime"


def search(
    source: Valued,
    target: Target,
    bounds: Bounds,
    *,
    verify: bool,
    way: Way | None = None,
    on_answer: Callable[[Result], None] = lambda _: None,
    drawn: bool = False,
    code: Instructions | None = None,
) -> Result:
    """Loads a program and optimizes it, with progress on a terminal and, unless it is disabled, the cache.

    drawn  True: for a program that is compiled: draw values from the seed for constants that have none, and make
           recurrences loops
    code   instructions to make of the result: the quantized program is optimized, if there is one
    """
    from glenside.cache import Cache
    from glenside.driver import optimize
    from glenside.egraph.search import start_workers_early
    from glenside.passes.network import folding_ahead
    from glenside.report.progress import Event, shown
    from glenside.stages import rules_to_precompile, search_parts, with_step_loops
    from glenside.targets.base import Way

    limits, load = bounds.limits(), source.loader()
    how: dict[str, Any] = {} if way is None else {**way.choices(), "trace": way.trace}
    with ExitStack() as open_:
        listener = open_.enter_context(shown("load", quiet=bounds.quiet))
        keeps = target.repeatable and not bounds.no_cache
        quantized = code is not None and code.quantize is not None
        if not keeps or quantized:  # otherwise the cache may hold the answer
            start_workers_early(limits, *([folding_ahead] if quantized else []))
        started = time.perf_counter()
        program = load().seeded_constants(source.seed) if drawn else load()
        if quantized:
            parts = search_parts(program, target)
            start_workers_early(
                limits, partial(rules_to_precompile, program, target, way or Way()), behind=True, parts=parts
            )
        program = program if code is None else code.prepared(program, lambda text: listener(Event("load", text)))
        how["load_seconds"] = time.perf_counter() - started

        if drawn:
            better = partial(optimize, target=target, verify=verify, limits=limits, seed=source.seed)
            program = with_step_loops(program, target, lambda body: better(body).program)
        cache = open_.enter_context(Cache()) if keeps else None
        how |= {"cache": cache, "listener": listener, "limits": limits, "seed": source.seed, "on_answer": on_answer}
        how["meanwhile"] = code is not None and code.output is not None  # instructions take long to make
        return optimize(program, target, verify=verify, **how)


@dataclass
class Outcome:
    """A result with the program and instructions made of it, and the report of onnxruntime if it ran."""

    source: Valued
    result: Result
    program: Program
    runtime: RuntimeReport | None = None
    code: Instructions = field(default_factory=Instructions)

    def save(self, path: str) -> None:
        """Writes the program: a compiled function from `Target.ready`, a file of standard operators from
        `Result.standard`.
        """
        from glenside.formats import ending
        from glenside.targets.base import Prepares

        program, seed = self.program, self.source.seed
        if is_code(path):
            self.code.save(self.result, program, path)
            return
        if ending(path) == ".py":
            target = self.result.target
            program = target.ready(program, seed) if isinstance(target, Prepares) else program
        elif ending(path) == ".onnx" and program is self.result.program:
            program = self.result.standard
        save_program(program, path, seed)

    def run_in_onnxruntime(self, output: str | None) -> str:
        """Compares original and result in onnxruntime, unless Ctrl-C ended the search; returns the verdict as text.

        Runs the files themselves if both are ONNX, else exports of the programs.
        """
        if self.exit_status(checked=False) == INTERRUPTED:
            return ""
        from glenside.check.onnxruntime import check_onnxruntime
        from glenside.formats import ending

        path, result = self.source.source, self.result
        exported = output if output is not None and ending(output) == ".onnx" else None
        whole = ending(path) == ".onnx" and self.source.is_as_it_stands and self.code.integers is None
        replaced = exported is not None and os.path.realpath(path) == os.path.realpath(exported)
        original = path if whole and not replaced else result.original
        try:
            self.runtime = check_onnxruntime(original, self.program, seed=self.source.seed, exported=exported)
        except KeyboardInterrupt:
            answered()
            result.interrupted = True
            return ""
        if self.runtime.ok or not is_equal(result.report.checked):
            return str(self.runtime)
        why = ": it is of rounding, of random numbers, or of the files" if self.runtime.ran else ""
        return f"{self.runtime} The exact check finds no difference{why}."

    def tell_of_program(self) -> None:
        """Adds the predicted cycles of the instructions to the report, if there are any."""
        if self.code.made is not None:
            self.result.report.of_program = self.code.made.predicted

    def run(self) -> None:
        """Runs the instructions if requested, unless Ctrl-C ended the search. Raises BadInput."""
        try:
            if self.exit_status(checked=False) != INTERRUPTED:
                self.code.measure()
                self.code.run()
        except KeyboardInterrupt:
            answered()
            self.result.interrupted = True

    def write_json(self, path: str) -> None:
        """Writes the report as JSON, with the verdict of onnxruntime."""
        content = {**self.result.report.as_dict(), **self.code.as_dict()}
        write_json(content if self.runtime is None else {**content, "onnxruntime": self.runtime.as_dict()}, path)

    def page(self, *, compare: bool, facts: Mapping[str, str]) -> str:
        """Returns the report as an HTML page, with the cycles of the instructions, if any; skips empty `facts`."""
        from glenside.report.machine_page import machine_sections
        from glenside.report.report_page import result_document

        made, said = self.code.made, {**facts, "instructions": self.code.words()}
        sections = [] if made is None else machine_sections(made)
        known = {name: text for name, text in said.items() if text}
        return result_document(self.result, compare=compare, more=sections, facts=known).html()

    def exit_status(self, checked: bool) -> int:
        """Returns the exit status; `checked`: the answer had to be checked."""
        if self.result.stopped == "interrupted" or self.result.interrupted:
            return INTERRUPTED
        report = self.result.report
        if report.faults and (not checked or is_equal(report.checked)):
            return FAILED
        wrong = report.mapped < len(report.layers) or report.notes or (checked and not report.ok)
        ran = self.code.ran
        wrong = wrong or (self.code.output is not None and self.code.made is None)
        wrong = wrong or (self.runtime is not None and not self.runtime.ok) or (ran is not None and not ran.ok)
        return WRONG if wrong else OK

    def leave(self, checked: bool) -> NoReturn:
        """Exits with the exit status. A full cache is an error only here, after all output is written."""
        if self.result.not_kept is not None:
            raise self.result.not_kept
        for fault in self.result.report.faults:
            print(f"glenside: error: the search failed: {fault}", file=sys.stderr)
        raise typer.Exit(self.exit_status(checked))


def saver(source: Valued, output: str | None, code: Instructions | None = None) -> Callable[[Result], None]:
    """Returns a callback that writes an answer to the output file as soon as it is found."""
    made = Instructions(seed=source.seed) if code is None else code

    def save(result: Result) -> None:
        if output is not None and output != "-":
            outcome = Outcome(source, result, result.program, code=made)
            with nullcontext() if is_code(output) else undisturbed(then=True):  # instructions take long to make
                outcome.save(output)
                write_down(output)

    return save


def _print_account(result: Result, code: Instructions, passes: bool) -> None:
    """Prints the account of the instructions, if there are any, and the passes that made them."""
    from glenside.cli.table import print_npu_passes, print_schedule

    ledger = code.schedule()
    if ledger is not None:
        print_schedule(result.report.program, ledger)
    if passes:
        print_npu_passes(result.report.program, code.seconds)


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
    quantize: str | None = None,
    on: str | None = None,
    passes: bool = False,
) -> NoReturn:
    """Optimizes, prints the table, writes the outputs, runs the instructions if requested, and exits."""
    refuse(target, pareto=pareto, plot=plot, compare=compare)
    from glenside.report.html_file import require_page
    from glenside.report.progress import shown
    from glenside.targets.base import Way

    writable(out.json_path, out.output, out.html)
    require_page(out.html)
    require_code(target, out.output, quantize, on)
    twice = in_runtime(out.check)
    code = Instructions.of(quantize, out.output, source.seed, on, bounds.time_limit)

    if out.html is not None:
        way = replace(way or Way(), trace=True)
    on_answer = saver(source, out.output, code)
    with code:
        result = search(source, target, bounds, verify=not out.no_check, way=way, on_answer=on_answer, code=code)
        outcome = Outcome(source, result, result.program, code=code)
        words = outcome.run_in_onnxruntime(out.output) if twice else ""
        outcome.run()
    outcome.tell_of_program()
    with undisturbed():
        if out.json_path != "-":
            from glenside.cli.table import print_front, print_report

            if pareto or (compare and target.front is not None):
                print_front(result.report)
            explain = way is not None and way.explain
            print_report(result.report, compare=compare, explain=explain, every=out.every)
            _print_account(result, code, passes)
            for said in (code.words(), words):
                print(said, end="\n" if said else "")
        if out.output == "-":
            outcome.save(out.output)
        if plot is not None:
            _plot(result, plot, compare=compare)
        if out.json_path is not None:
            outcome.write_json(out.json_path)
    if out.html is not None:
        with shown("page", quiet=bounds.quiet):  # the e-graph of a cached answer is searched for again
            page = outcome.page(compare=compare, facts={**bounds.facts(), "onnxruntime": words})
        write_text(out.html, page)
    outcome.leave(not out.no_check)
