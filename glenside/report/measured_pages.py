"""Builds pages of measurements: runtimes in alternation, SPU runs beside predictions, fitted costs, area."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from glenside.ir.names import one_line
from glenside.report.document import Bars, Block, Cloud, Code, Curves, Document, Grid, Points, Section, Words, asked
from glenside.report.text import Column, Table, table_html

if TYPE_CHECKING:
    from glenside.execution.runtime_comparison import Row
    from glenside.execution.spu.comparison import Comparison
    from glenside.execution.spu.comparison import Row as Part
    from glenside.npu.rtl.synthesis import Area

WRONG = 1e-3
"""Difference from which a runtime is reported as computing something else, or in another dtype."""
_MOST_BARS = 60


def bench_document(
    program: str,
    rows: Sequence[Row],
    nests: Sequence[tuple[str, float, float | None]],
    words: Sequence[str],
    facts: Mapping[str, str],
) -> Document:
    """Returns the page of a benchmark of compiled C against other runtimes. `rows` has for every number of threads ours
    first; `nests` are (nest, seconds, predicted seconds) on one thread.
    """
    table = _bench_table(rows)
    sections = [
        Section("In turn", [Grid("", table), _medians(rows), *_rounds(rows), Words(words)]),
        Section("Nests of loops, on one thread", _nests(nests)),
        asked(facts.items()),
    ]
    return Document(f"{one_line(program)} as native code", _bench_lead(rows), sections, plain=table_html(table))


def _bench_lead(rows: Sequence[Row]) -> str:
    said = []
    for threads in dict.fromkeys(row.threads for row in rows):
        ours, *others = (row for row in rows if row.threads == threads)
        beside = ", ".join(f"{one_line(row.title)} {row.ratio:.2f} times as long" for row in others)
        on = f"{threads} thread{'s' if threads > 1 else ''}"
        said.append(f"{1e3 * ours.median:.3f} ms on {on}{f' ({beside})' if beside else ''}")
    return f"It takes {'; '.join(said)}."


def _bench_table(rows: Sequence[Row]) -> Table:
    columns = [
        Column("runtime", [row.title for row in rows], words=True, folds=True),
        Column("threads", [str(row.threads) for row in rows]),
        Column("median, ms", [f"{1e3 * row.median:,.3f}" for row in rows]),
        Column("least, ms", [f"{1e3 * min(row.seconds):,.3f}" for row in rows]),
        Column("over ours", [f"{row.ratio:.2f}" for row in rows]),
        Column("first runs, over ours", [f"{row.first:.2f}" for row in rows]),
        Column("MB", ["" if row.grown is None else f"{row.grown / 1e6:,.1f}" for row in rows]),
        Column("differs by", [f"{row.difference:.1e}" for row in rows]),
    ]
    return Table(columns, frozenset(i for i, row in enumerate(rows) if row.difference > WRONG))


def _medians(rows: Sequence[Row]) -> Bars:
    titles = [*dict.fromkeys(row.title for row in rows)]
    series = []
    for threads in dict.fromkeys(row.threads for row in rows):
        own = {row.title: 1e3 * row.median for row in rows if row.threads == threads}
        series.append((f"{threads} thread{'s' if threads > 1 else ''}", [own.get(title) for title in titles]))
    return Bars("Median of the rounds", "ms", titles, series)


def _rounds(rows: Sequence[Row]) -> list[Block]:
    """Draws every round of each number of threads, which shows the spread around the medians."""
    blocks: list[Block] = []
    for threads in dict.fromkeys(row.threads for row in rows):
        own = [row for row in rows if row.threads == threads and len(row.seconds) > 1]
        count = max((len(row.seconds) for row in own), default=0)
        series = [(row.title, [1e3 * n for n in row.seconds] + [None] * (count - len(row.seconds))) for row in own]
        title = f"Each round, {threads} thread{'s' if threads > 1 else ''}"
        blocks += [Curves(title, "round", "ms", [*range(1, count + 1)], series)] if series else []
    return blocks


def _nests(nests: Sequence[tuple[str, float, float | None]]) -> list[Block]:
    if not nests:
        return []
    total = sum(seconds for _, seconds, _ in nests)
    predicted = any(own is not None for *_, own in nests)
    columns = [
        Column("nest", [name for name, *_ in nests], words=True, folds=True),
        Column("us", [f"{1e6 * seconds:,.1f}" for _, seconds, _ in nests], f"{1e6 * total:,.1f}"),
        Column("share, %", [f"{100 * seconds / max(total, 1e-12):.1f}" for _, seconds, _ in nests]),
    ]
    if predicted:
        known = [own for *_, own in nests]
        sums = f"{1e6 * sum(own or 0 for own in known):,.1f}"
        columns.append(Column("predicted, us", ["" if own is None else f"{1e6 * own:,.1f}" for own in known], sums))
    most = sorted(nests, key=lambda nest: -nest[1])[:_MOST_BARS]
    series: list[tuple[str, list[float | None]]] = [("measured", [1e6 * seconds for _, seconds, _ in most])]
    series += [("predicted", [None if own is None else 1e6 * own for *_, own in most])] if predicted else []
    title = "The slowest ones" if len(most) < len(nests) else "Each nest"
    return [Grid("", Table(columns)), Bars(title, "us", [one_line(name) for name, *_ in most], series)]


def spu_document(
    program: str, target: str, found: Comparison, words: Iterable[str], facts: Mapping[str, str]
) -> Document:
    """Returns the page of a program between two parties: predictions for each layer beside measurements."""
    parts = [*found.layers, found.between()]
    table = parties_table(found)
    names = [one_line(part.names[0]) for part in parts]
    drawn = [
        Bars(title, unit, names, [("predicted", [n for n, _ in own]), ("measured", [n for _, n in own])])
        for title, unit, own in (
            (
                "Milliseconds of each layer",
                "ms",
                [(1e3 * p.predicted.seconds, 1e3 * p.measured.seconds) for p in parts],
            ),
            ("Bytes of each layer", "bytes", [(p.predicted.bytes, p.measured.bytes) for p in parts]),
        )
    ]
    whole, predicted = found.whole.measured, found.whole.predicted
    lead = (
        f"It takes {whole.seconds:.3f} s, {whole.bytes:,} bytes and {whole.messages:,} messages of each party; "
        f"predicted: {predicted.seconds:.3f} s, {predicted.bytes:,} bytes and {predicted.messages:,} messages."
    )
    sections = [Section("Layers", [Grid("", table), *drawn]), Section("How it was run", [Words([*words])])]
    title = f"{one_line(program)} on {target}, in SPU"
    return Document(title, lead, [*sections, asked(facts.items())], plain=table_html(table))


def parties_table(found: Comparison) -> Table:
    """Returns a row for each layer and one for the terms between layers; the total is the whole program run at once."""
    parts = [*found.layers, found.between()]
    lines, whole = [_cells(part) for part in parts], _cells(found.whole)
    names = [f"{what} {how}" for what in ("bytes", "messages", "ms") for how in ("predicted", "measured")]
    first = [part_name(part) for part in parts]
    columns = [
        Column(name, cells, total) for name, cells, total in zip(names, zip(*lines, strict=True), whole, strict=True)
    ]
    return Table([Column("part", first, "the whole, run as one", words=True, folds=True), *columns])


def part_name(part: Part) -> str:
    """Names the layers of a row."""
    more = f", and {len(part.names) - 1} more, each" if len(part.names) > 1 else ""
    return f"{one_line(part.names[0])}{more}"


def _cells(part: Part) -> list[str]:
    predicted, measured = part.predicted, part.measured
    return [
        *(f"{predicted.bytes:,}", f"{measured.bytes:,}", f"{predicted.messages:,}", f"{measured.messages:,}"),
        *(f"{1e3 * predicted.seconds:,.1f}", f"{1e3 * measured.seconds:,.1f}"),
    ]


def calibration_document(
    machine: str, timed: Sequence[tuple[str, float, float]], costs: str, facts: Mapping[str, str]
) -> Document:
    """Returns the page of a calibration: (name, measured seconds, predicted seconds) of each timing; costs as text."""
    errors = [abs(predicted / seconds - 1) for _, seconds, predicted in timed]
    columns = [
        Column("timed", [name for name, *_ in timed], words=True, folds=True),
        Column("measured, us", [f"{1e6 * seconds:,.1f}" for _, seconds, _ in timed]),
        Column("predicted, us", [f"{1e6 * predicted:,.1f}" for *_, predicted in timed]),
        Column("error, %", [f"{100 * error:.1f}" for error in errors]),
    ]
    points = [(1e6 * seconds, 1e6 * predicted, one_line(name)) for name, seconds, predicted in timed]
    clouds = [Cloud("measured", [(x, x, name) for x, _, name in points]), Cloud("predicted", points)]
    table = Table(columns)
    lead = (
        f"{len(timed)} timed; prediction error {100 * statistics.mean(errors):.0f} % (mean), "
        f"{100 * statistics.median(errors):.0f} % (median)."
    )
    sections = [
        Section("Predicted and measured", [Points("", "us measured", "us predicted", clouds), Grid("", table)]),
        Section("The costs", [Code(costs)]),
        asked(facts.items()),
    ]
    return Document(f"Costs of {machine}", lead, sections, plain=table_html(table))


def area_table(found: Area) -> Table:
    """Returns the table of a machine's parts, largest first, with their sum."""
    parts = sorted(found.parts.items(), key=lambda named: -named[1].gates)
    every = [*parts, ("one element of the array, included above", found.element)]
    names = ("gates", "flip-flops", "bits of RAM", "bits of registers")
    lines = [[f"{n:,.0f}" for n in asdict(part).values()] for _, part in every]
    whole = [f"{n:,.0f}" for n in asdict(found.total).values()]
    columns = [
        Column(name, cells, total) for name, cells, total in zip(names, zip(*lines, strict=True), whole, strict=True)
    ]
    return Table([Column("part", [name for name, _ in every], "all", words=True), *columns])


def area_document(found: Area, words: Sequence[str], facts: Mapping[str, str]) -> Document:
    """Returns the page of a machine's gates, part by part."""
    total, table = found.total, area_table(found)
    parts = sorted(found.parts.items(), key=lambda named: -named[1].gates)
    gates = Bars("Gates of each part", "gates", [n for n, _ in parts], [("gates", [p.gates for _, p in parts])])
    stored = [(n, p) for n, p in parts if p.ram or p.registers]
    bits = Bars(
        "Bits of memory of each part",
        "bits",
        [n for n, _ in stored],
        [("of RAM", [p.ram for _, p in stored]), ("of registers", [p.registers for _, p in stored])],
    )
    lead = (
        f"{total.gates:,.0f} gates, {total.flipflops:,} flip-flops among them, {total.ram:,} bits of RAM and "
        f"{total.registers:,} bits of registers."
    )
    sections = [
        Section("Parts", [Grid("", table), Words(words), gates, *([bits] if stored else [])]),
        asked(facts.items()),
    ]
    return Document(f"The area of {found.machine}", lead, sections, plain=table_html(table))
