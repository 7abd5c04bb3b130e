"""`glenside bench`: times a program as C, by loop nest, and compared with other runtimes."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glenside.cli.commands.native import Chosen, MachineName, machines_for, prepared
from glenside.cli.options import Bounds, Compilable, Html, JsonFile, command
from glenside.cli.output import json_report, status_line, writable
from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import INTERRUPTED, unless_stopped, waited_for
from glenside.ir.names import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glenside.execution.runtime_comparison import Row


@command
def bench(
    source: Compilable,
    bounds: Bounds,
    machine: MachineName = None,
    target: Chosen = None,
    threads: Annotated[
        str, typer.Option("--threads", metavar="1,2", help="The numbers of threads to time, in turn.")
    ] = ("1"),
    rounds: Annotated[int, typer.Option("--rounds", help="Runs of each program, interleaved.")] = 20,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers", metavar="A,B", help="Runtimes to compare with, such as onnxruntime; none; by default all."
        ),
    ] = None,
    naive: Annotated[bool, typer.Option("--naive/--no-naive", help="Time plain loops of the same program too.")] = True,
    busy: Annotated[
        int, typer.Option("--busy", help="Number of background processes that each keep a processor busy.")
    ] = 0,
    every: Annotated[bool, typer.Option("--all", help="Print a row for each loop nest.")] = False,
    html: Html = None,
    json_path: JsonFile = None,
) -> None:
    """Time a program as C, by loop nest, and compare it with plain loops and, for an ONNX file, with other runtimes.
    Runs are interleaved, each in its own process.
    """
    from glenside.codegen.runtime.compiled_function import Compiled, Lowered, keeping
    from glenside.execution.interleaved_runs import RUNS
    from glenside.execution.runtime_comparison import Contest
    from glenside.report.html_file import require_page

    writable(html)
    require_page(html)
    whole("--rounds", rounds, 1, 100_000)
    whole("--busy", busy, 0, 1024)
    counts, names = _counts(threads), _named(peers)
    machines, wanted = machines_for(machine, target)
    if len(machines) > 1:
        raise BadInput(f"a benchmark is for one machine, got {machine}")
    (of,) = machines
    with json_report(json_path) as content:
        found = prepared(source, of, wanted, bounds, by_default=target is None)
        unless_stopped()  # the answer of an interrupted search must not be timed
        model = Path(source.source) if Path(source.source).suffix == ".onnx" else None
        with status_line("compile") as show:
            lowered = keeping(found.programs, of, found.most_bytes)
            compiled = Compiled(lowered, of)
            arrays = {b.name: array for b, array in zip(compiled.inputs, compiled.drawn(source.seed), strict=True)}
            programs = {"compiled": lowered}
            if naive and of is not None:
                programs["naive loops"] = Lowered(found.program, None)
            with Contest(programs, model, {**found.program.signature.values, **arrays}, names) as contest:
                what = f"medians of {rounds} rounds in turn, of each the least of {RUNS} runs"
                print(f"{one_line(compiled.program.name)}: milliseconds, {what}{_beside(busy)}")
                rows: list[Row] = []
                for count in counts:
                    own = contest.run(count, rounds, busy, show)
                    _print_rows(own)
                    rows += own
                    if contest.interrupted:
                        break
        _say(contest.notes if model is not None else ["other runtimes take ONNX files: save it as one, and bench that"])
        words = [f"milliseconds are {what}{_beside(busy)}.", *_COLUMNS]
        facts = {"program": one_line(source.source), "machine": "plain loops" if of is None else of.name}
        facts |= {
            "target": "none: as it is" if found.found is None else found.found.target.name,
            "seed": str(source.seed),
        }
        content |= {**facts, "program": compiled.program.name, "source": source.source, "rounds": rounds, "busy": busy}
        content |= {"rows": [{**asdict(row), "median": row.median} for row in rows], "notes": [*contest.notes]}
        content["interrupted"] = contest.interrupted
        if contest.interrupted:
            _write_page(
                html, compiled.program.name, rows, [], ["Interrupted: these are the rounds until then.", *words], facts
            )
            print("glenside: interrupted: these are the rounds until then", file=sys.stderr)
            raise typer.Exit(INTERRUPTED)
        print("\n".join(_COLUMNS))
        nests, predicted = waited_for(lambda: compiled.profile(arrays, threads=1)), compiled.predicted()
        _print_nests(nests, predicted, every)
        beside: Sequence[float | None] = predicted or [None] * len(nests)
        known = [(name, seconds, own) for (name, seconds), own in zip(nests, beside, strict=True)]
        content["nests"] = [dict(zip(("name", "seconds", "predicted"), nest, strict=True)) for nest in known]
        _write_page(html, compiled.program.name, rows, known, [*words, *contest.notes], facts)
        raise typer.Exit(found.status)


_COLUMNS = (
    "first: the first runs of rounds over ours, which find in the caches what others left there.",
    "MB: what a process grew by at most from before it loaded the model; not the inputs, nor the runtime's code.",
)


def _write_page(
    path: str | None,
    program: str,
    rows: Sequence[Row],
    nests: Sequence[tuple[str, float, float | None]],
    words: Sequence[str],
    facts: Mapping[str, str],
) -> None:
    """Writes the timings as a page, if `--html` is given. Raises BadInput."""
    if path is None:
        return
    from glenside.ir.files import write_text
    from glenside.report.measured_pages import bench_document

    write_text(path, bench_document(program, rows, nests, words, facts).html())


def _beside(busy: int) -> str:
    return f", beside {busy} busy process{'es' if busy > 1 else ''}" if busy else ""


def _named(peers: str | None) -> Sequence[str]:
    from glenside.execution.runtime_comparison import peer_names

    known = peer_names()
    if peers is None:
        return known
    found = [] if peers == "none" else [name.strip() for name in peers.split(",")]
    for name in found:
        if name not in known:
            raise BadInput(f"--peers are of {', '.join(known)}, or none, got {name!r}")
    return found


def _print_rows(rows: Sequence[Row]) -> None:
    from glenside.report.measured_pages import WRONG

    count = rows[0].threads
    head = f"{count} thread{'s' if count > 1 else ''}"
    print(f"\n  {head:24} {'median':>9} {'least':>9} {'over ours':>10} {'first':>6} {'MB':>8}  differs by")
    for row in rows:
        grown = "" if row.grown is None else f"{row.grown / 1e6:8.1f}"
        times = f"{1e3 * row.median:9.3f} {1e3 * min(row.seconds):9.3f} {row.ratio:10.2f} {row.first:6.2f}"
        wrong = "  and so computes something else" if row.difference > WRONG else ""
        print(f"  {row.title:24} {times} {grown:>8}  {row.difference:.1e}{wrong}")


def _say(notes: Sequence[str]) -> None:
    sys.stdout.flush()
    for note in notes:
        print(f"glenside: note: {one_line(note)}", file=sys.stderr)


def _print_nests(nests: list[tuple[str, float]], predicted: list[float], every: bool) -> None:
    """Prints the slowest loop nests on one thread, with their measured and predicted times."""
    total = sum(seconds for _, seconds in nests)
    beside = [f" {1e6 * own:12.1f}" for own in predicted] or [""] * len(nests)
    rows = [(name, seconds, own) for (name, seconds), own in zip(nests, beside, strict=True)]
    rows = rows if every else sorted(rows, key=lambda row: -row[1])[:12]
    what = "" if every else "; those that take longest"
    of_prices = f"; predicted {1e3 * sum(predicted):.3f} ms" if predicted else ""
    print(f"\nOn one thread, {1e3 * total:.3f} ms in {len(nests)} nests{of_prices}{what}")
    print(f"  {'us':>10}    {'share':>7}" + (f" {'predicted us':>12}" if predicted else "") + "  nest")
    for name, seconds, own in rows:
        print(f"  {1e6 * seconds:10.1f}    {100 * seconds / max(total, 1e-12):5.1f} %{own}  {name}")


def _counts(text: str) -> list[int]:
    found = [int(word) if word.strip().isdecimal() else 0 for word in text.split(",")]
    if not found or not all(1 <= count <= 1024 for count in found):
        raise BadInput(f"--threads are numbers from 1 on, such as 1,2, got {text!r}")
    return found
