"""Formats a report for terminals and pages: its tables, and the sentences under them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from glenside.check import is_equal
from glenside.report.report import CHOSEN, LayerRow, Report
from glenside.targets.base import Amounts, Measure

ALWAYS = 9


@dataclass(frozen=True)
class Column:
    """One column: a cell for each row, one for the row between the rows and the total, and the total.

    words    True if its cells are words, aligned left
    folds    True if long cells may wrap
    short    shorter cells, used if the table is too wide
    rank     columns of rank 1 are the first to be left out of a wide table; those of `ALWAYS` never are
    """

    name: str
    cells: Sequence[str]
    total: str = ""
    between: str = ""
    words: bool = False
    folds: bool = False
    short: Sequence[str] = ()
    rank: int = ALWAYS


@dataclass(frozen=True)
class Table:
    """Columns of equal length. `wrong` are the rows to highlight; `between` names the last row, if there is one."""

    columns: Sequence[Column]
    wrong: frozenset[int] = frozenset()
    between: str = ""

    def rows(self) -> list[tuple[str, ...]]:
        """Returns the cells of each row, then of the row between the layers and the total, if there is one."""
        between = [(self.between, *(column.between for column in self.columns[1:]))] if self.between else []
        return [*zip(*(column.cells for column in self.columns), strict=True), *between]

    def without(self, rank: int) -> Table:
        """Returns the table without the columns up to a rank."""
        return Table([column for column in self.columns if column.rank > rank], self.wrong, self.between)


def tables_of(report: Report, *, compare: bool = False, every: bool = False) -> list[Table]:
    """Returns the table of layers, if a measure is known per layer, and the table of copies, if they are counted.

    With `compare` the first one shows the distance of each layer to its baseline and its bound. Equal layers are one
    row with their number and the measures of one of them, unless `every` is set.
    """
    copies = [_copies_table(report.sections["copies"])] if "copies" in report.sections else []
    known = any(n is not None for row in report.layers for n in row.measures.values())
    return [_layers(report, compare, every), *copies] if known or not copies else copies


def _layers(report: Report, compare: bool, every: bool) -> Table:
    between = any(any(amounts.values()) for amounts in report.between_layers.values())
    alike = _alike(report.layers, every)
    wrong = (
        i
        for i, (row, *_) in enumerate(alike)
        if not (row.mapped and (is_equal(row.checked) or row.checked == "not checked"))
    )
    columns = _columns(report, alike, compare and not report.front, every)
    return Table(columns, frozenset(wrong), "between layers" if between else "")


Alike = Sequence[Sequence[LayerRow]]
"""Groups of layers with the same problem and answer, each in the order of the program."""


def _alike(rows: Sequence[LayerRow], every: bool) -> Alike:
    if every:
        return [[row] for row in rows]
    found: dict[str, list[LayerRow]] = {}
    for row in rows:
        found.setdefault(str(replace(row, name="", rules=(), details={})), []).append(row)
    return [*found.values()]


def _names(alike: Alike, every: bool, total: str) -> list[Column]:
    """Returns the column of names, and a column of counts if a row has several layers."""
    first, counts = [row.name for row, *_ in alike], [len(rows) for rows in alike]
    cells = [f"{name}, and {n - 1} more" if n > 1 else name for name, n in zip(first, counts, strict=True)]
    made = [Column("layer", cells, total, words=True, folds=True, short=() if every else first)]
    return [*made, Column("count", [f"x {n}" for n in counts])] if max(counts, default=1) > 1 else made


def _columns(report: Report, alike: Alike, bounds: bool, every: bool) -> list[Column]:
    """Returns the columns: words, measures of every baseline, measures of the answer, and the verdict."""
    counted = report.peak is not None
    compared = [m.name for m in report.measures if m.name in report.compared] or [report.measures[0].name]
    others = [m.name for m in report.measures if m.shown == "amount" and m.name not in compared and _known(report, m)]
    beside = report.compared or bounds or report.parts[1:]
    baselines = [name for name in report.totals if name != CHOSEN] if beside else []

    def column(
        name: str, cell: Callable[[LayerRow], str], total: str = "", *, words: bool = False, rank: int = ALWAYS
    ) -> Column:
        folds = words and name not in ("operator", "checked")
        return Column(name, [cell(row) for row, *_ in alike], total, words=words, folds=folds, rank=rank)

    def taken(which: str, measure: str, rank: int = ALWAYS) -> Column:
        known, name = report.between_layers.get(which, {}), measure
        total = amount(report.totals[which][measure])
        if report.uncounted and measure == report.measures[0].name:  # the total is of the program, where there is one
            name = f"{measure},\nmapping alone"
            total = total if report.of_program is None else amount(report.of_program) if which == CHOSEN else ""
        made = column(
            f"{which}\n{name}" if baselines else name,
            lambda row: amount(row.variants[which].measures[measure]),
            total,
            rank=rank,
        )
        return replace(made, between=amount(known[measure]) if measure in known else "")

    count = f"{len(report.layers)} layer{'' if len(report.layers) == 1 else 's'}"
    made = _names(alike, every, "total" if report.of_program is None else "the program")
    made.append(column("operator", lambda row: row.operator, count, words=True, rank=1))
    if counted and not bounds:
        made.append(column("groups x M x K x N", _sizes, f"{report.macs:,} MACs", rank=5))
    made += [taken(which, m, 3 if i else 4) for i, which in enumerate(baselines) for m in compared]
    made += [taken(CHOSEN, measure) for measure in compared]
    if bounds:
        made += _distances(report, compared[0], column)
    else:
        made += [taken(CHOSEN, measure, 2) for measure in others]
    if counted and not bounds:
        made.append(column("util %", _utilization, rank=2))
    mapped = report.mapped_words if counted else ""
    made.append(column("mapping" if counted else "variant", lambda row: row.label, mapped, words=True))
    rank = 2 if len({row.checked for row in report.layers}) == 1 else ALWAYS  # one sentence under the table states it
    return made if bounds else [*made, column("checked", lambda row: row.checked, words=True, rank=rank)]


def _known(report: Report, measure: Measure) -> bool:
    return not report.layers or any(row.measures[measure.name] is not None for row in report.layers)


def _distances(report: Report, measure: str, column: Callable[..., Column]) -> list[Column]:
    """Returns columns with the distance to the bound and to the first baseline, and the growth of measures that may
    grow.
    """
    made = []
    if report.lower_bound is not None:
        made.append(column("lower bound", lambda row: amount(row.lower_bound), amount(report.lower_bound), rank=2))

    def fewer(baseline: Amounts, chosen: Amounts) -> str:
        return times(baseline[measure], chosen[measure])

    total = fewer(report.baseline, report.total)
    made.append(column("times\nfewer", lambda row: fewer(row.baseline, row.measures), total, rank=4))
    for grown in (m.name for m in report.measures if m.shown == "growth"):
        total = times(report.total[grown], report.baseline[grown])
        made.append(column(f"{grown}\nx", _growth_of(grown), total, rank=2))
    return made


def _growth_of(measure: str) -> Callable[[LayerRow], str]:
    return lambda row: times(row.measures[measure], row.baseline[measure])


def _sizes(row: LayerRow) -> str:
    return f"{row.groups} x {row.m} x {row.k} x {row.n}"


def _utilization(row: LayerRow) -> str:
    return "-" if row.utilization is None else f"{100 * row.utilization:.2f}"


def amount(number: int | None) -> str:
    """Formats a measure for a table."""
    return "unknown" if number is None else f"{number:,}"


def times(more: int | None, less: int | None) -> str:
    """Formats the ratio of two amounts; "-" if it is undefined."""
    return f"{more / less:.2f}" if more is not None and less else "-"


def _copies_table(section: Mapping[str, Any]) -> Table:
    """Returns the table of copies: equal copies are one row, with their number before and after."""
    found = (section["as written"], section["chosen"])
    counts = [Counter((c["what"], c["place"], " x ".join(map(str, c["dims"])), c["bytes"]) for c in f) for f in found]
    kinds = list(counts[0] | counts[1])
    names = ("copy", "where", "dims")
    columns = [
        Column(name, [kind[i] for kind in kinds], "" if i else "total", words=True, folds=name != "where")
        for i, name in enumerate(names)
    ]
    for when, count, copies in zip(("before", "after"), counts, found, strict=True):
        moved = [f"{count[kind] * kind[3]:,}" if count[kind] else "" for kind in kinds]
        columns.append(Column(when, [f"{count[kind]:,}" if count[kind] else "" for kind in kinds], f"{len(copies):,}"))
        columns.append(Column(f"bytes {when}", moved, f"{sum(copy['bytes'] for copy in copies):,}"))
    return Table(columns)


def sentences(report: Report) -> list[str]:
    """Returns the sentences under the tables, one per line."""
    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in report.seconds.items())
    since = "From the cache; seconds when it was found" if report.cached else "Seconds"
    counted = report.peak is not None or report.mapped < len(report.layers)
    return [
        *_gain(report),
        *_parts(report),
        *_growth(report),
        *_copies(report),
        *_units(report),
        *_certificate(report),
        f"Search: {report.distinct} distinct layer{'' if report.distinct == 1 else 's'}, {report.e_nodes:,} e-nodes in "
        f"{report.e_classes:,} e-classes after {report.iterations} iterations, stopped: {report.stopped}.",
        f"{since}: {seconds}.",
        f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).",
        *([report.unmapped_sentence()] if counted else []),
        *filter(None, [report.black_boxes_sentence()]),
        *(f"Algebra: {candidate}" for candidate in report.algebra),
        *(f"Note: {remark}" for remark in (*report.remarks, *report.notes)),
        *("Note: the search failed, and this is the best answer without what it found." for _ in report.faults[:1]),
    ]


def _gain(report: Report) -> list[str]:
    """Compares the answer with the best baseline in the first measure: the whole program, then the layers alone."""
    first = report.measures[0]
    what = f"bytes of {first.name}" if first.unit == "bytes" != first.name else first.name
    what = f"{first.unit} of {what}" if what == "time" else what
    totals = {name: amounts[first.name] for name, amounts in report.totals.items()}
    if totals[CHOSEN] is None:
        return [f"The {what} of the answer are unknown."]
    if report.of_program is not None:
        return [f"The program takes {report.of_program:,} {what}, {report.uncounted} included."]
    if report.uncounted:
        alone = f"{totals[CHOSEN]:,} {what} of the layers by mapping alone{_under(totals)}."
        return [
            alone,
            f"Of these {report.uncounted} are not counted: -o NAME.bin makes the program, which counts them.",
        ]
    lines = [f"{totals[CHOSEN]:,} {what} in all{_under(totals)}."]
    rest = {name: report.between_layers.get(name, {}).get(first.name) for name in totals}
    if any(rest.values()) and report.layers:
        layers = {name: None if n is None else n - (rest[name] or 0) for name, n in totals.items()}
        lines.append(f"{layers[CHOSEN]:,} {what} in the layers{_under(layers)}.")
    return lines


def _parts(report: Report) -> list[str]:
    """States the first measure of each part of a training step."""
    measure, lines = report.measures[0].name, []
    for part in report.parts if report.parts[1:] else ():
        rows = [row for row in report.layers if row.part == part]
        taken = {
            which: sum(n for row in rows if (n := row.variants[which].measures[measure]) is not None)
            for which in report.totals
        }
        lines.append(f"{part}, {len(rows)} layers: {taken[CHOSEN]:,} {measure}{_under(taken)}.")
    return lines


def _under(amounts: Mapping[str, int | None]) -> str:
    baselines = {name: amount for name, amount in amounts.items() if name != CHOSEN and amount}
    chosen = amounts[CHOSEN]
    if not baselines or chosen is None:
        return ""
    name, least = min(baselines.items(), key=lambda item: item[1])
    best = (
        f"{name}, the best baseline"
        if len(amounts) > 2
        else f"the baseline {name}".replace("baseline baseline", "baseline")
    )
    if chosen == least:
        return f", as many as {best}{',' * (len(amounts) > 2)} takes"
    share = 100 * (1 - chosen / least)
    than = f"{abs(share):.1f} % {'above' if share < 0 else 'under'} {best}"
    return f", {than}, which takes {least:,}: {times(least, chosen)} times as many"


def _growth(report: Report) -> list[str]:
    """States the growth of measures that may grow."""
    lines = []
    for name in (m.name for m in report.measures if m.shown == "growth"):
        grown, before = report.total[name], report.baseline[name]
        if grown is not None and before:
            lines.append(f"The {name} grow {times(grown, before)} times, to {grown:,}.")
    return lines


def _copies(report: Report) -> list[str]:
    if "copies" not in report.sections:
        return []
    copies = report.sections["copies"]
    inside = [copies["bytes"][when]["inside"] for when in ("as written", CHOSEN)]
    line = (
        f"Inside the network, its own inputs and outputs aside: {inside[0]:,} bytes before, {inside[1]:,} bytes after."
    )
    kept = ["Nothing that moves less was found: the program stays as it is."] if copies["kept"] else []
    return [line, *kept]


def _units(report: Report) -> list[str]:
    shown = (m for m in report.measures if m.shown == "amount" and "copies" not in report.sections)
    described = [f"{m.name} in {m.unit}" for m in shown if m.name != m.unit]
    return [f"Units: {', '.join(described)}."] if described else []


def _certificate(report: Report) -> list[str]:
    bound, gap, unit = report.lower_bound, report.gap, report.objectives[0]
    if report.peak is None or bound is None or gap is None or report.of_program is not None:
        return []
    if report.uncounted:
        return [
            f"The array alone takes at least {bound:,} {unit} for these layers; {report.uncounted} are not counted."
        ]
    if gap == 0 and report.stopped == "saturated":
        return [f"No mapping that the rules reach takes fewer {unit}: the bound is {bound:,}, the gap 0."]
    return [f"At least {bound:,} {unit} are needed; the gap of {gap:,} is not closed."]


def report_html(report: Report) -> str:
    """Returns the tables of a report, with totals, and the sentences under them, as HTML."""
    said = "<br>".join(map(escape, sentences(report)))
    return f"{''.join(map(table_html, tables_of(report)))}<p>{said}</p>"


def table_html(table: Table) -> str:
    """Returns a table as escaped HTML, with totals."""
    head, foot = [column.name for column in table.columns], [column.total for column in table.columns]
    body = "".join(_html_line(line, "td") for line in (*table.rows(), foot))
    return f"<table>{_html_line(head, 'th')}{body}</table>"


def _html_line(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
