"""The table of a report, for terminals and pages alike: what each layer takes, by every baseline and as chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.check import EXACT
from glenside.report.report import CHOSEN, LayerRow, Report
from glenside.targets.base import Amounts, Measure

ALWAYS = 9


@dataclass(frozen=True)
class Column:
    """One column: a cell for each row, then one between the rows and the total, where there is something to say.

    words  whether its cells are words, which stand at the left; folds: they are long, and may take several lines
    rank   when it is left out where there is no room: those of 1 first, those of `ALWAYS` never
    """

    name: str
    cells: Sequence[str]
    total: str = ""
    between: str = ""
    words: bool = False
    folds: bool = False
    rank: int = ALWAYS


@dataclass(frozen=True)
class Table:
    """Columns of equally many cells. `wrong` are the rows to look at; `between` names the last row, if there is one."""

    columns: Sequence[Column]
    wrong: frozenset[int] = frozenset()
    between: str = ""

    def without(self, rank: int) -> Table:
        """The table without the columns up to a rank."""
        return Table([column for column in self.columns if column.rank > rank], self.wrong, self.between)


def tables_of(report: Report, *, compare: bool = False) -> list[Table]:
    """The table of layers, where anything is known of a layer by itself, and that of copies, where they are counted.

    With `compare` the first says how far each layer is from its baseline and its bound.
    """
    copies = [_copies(report.sections["copies"])] if "copies" in report.sections else []
    known = any(n is not None for row in report.layers for n in row.measures.values())
    return [_layers(report, compare), *copies] if known or not copies else copies


def _layers(report: Report, compare: bool) -> Table:
    between = any(any(amounts.values()) for amounts in report.between_layers.values())
    wrong = (i for i, row in enumerate(report.layers) if not row.mapped or row.checked not in (EXACT, "not checked"))
    return Table(_columns(report, compare and not report.front), frozenset(wrong), "between layers" if between else "")


def _columns(report: Report, bounds: bool) -> list[Column]:
    """Words, then what every baseline takes, what the answer takes, and how that was found."""
    counted = report.peak is not None
    compared = [m.name for m in report.measures if m.name in report.compared] or [report.measures[0].name]
    others = [m.name for m in report.measures if m.shown == "amount" and m.name not in compared and _known(report, m)]
    baselines = [name for name in report.totals if name != CHOSEN] if report.compared or bounds else []

    def words(name: str, cell: Callable[[LayerRow], str], total: str = "", *, rank: int = ALWAYS) -> Column:
        folds = name not in ("operator", "checked")
        return Column(name, [cell(row) for row in report.layers], total, words=True, folds=folds, rank=rank)

    def numbers(name: str, cell: Callable[[LayerRow], str], total: str = "", *, rank: int = ALWAYS) -> Column:
        return Column(name, [cell(row) for row in report.layers], total, rank=rank)

    def taken(which: str, measure: str, rank: int = ALWAYS) -> Column:
        cells = [amount(row.variants[which].measures[measure]) for row in report.layers]
        known = report.between_layers.get(which, {})
        title = f"{which}\n{measure}" if baselines else measure
        return Column(
            title,
            cells,
            amount(report.totals[which][measure]),
            amount(known[measure]) if measure in known else "",
            rank=rank,
        )

    count = f"{len(report.layers)} layer{'' if len(report.layers) == 1 else 's'}"
    made = [words("layer", lambda row: row.name, "total"), words("operator", lambda row: row.operator, count, rank=1)]
    if counted and not bounds:
        made.append(numbers("groups x M x K x N", _sizes, f"{report.macs:,} MACs"))
    made += [taken(which, m, 3 if i else 4) for i, which in enumerate(baselines) for m in compared]
    made += [taken(CHOSEN, measure) for measure in compared]
    if bounds:
        made += _distances(report, compared[0], numbers)
    else:
        made += [taken(CHOSEN, measure, 2) for measure in others]
    if counted and not bounds:
        made.append(numbers("util %", _utilization, rank=2))
    mapped = f"{report.mapped} of {len(report.layers)} mapped" if counted else ""
    made.append(words("mapping" if counted else "variant", lambda row: row.label, mapped))
    return made if bounds else [*made, words("checked", lambda row: row.checked)]


def _known(report: Report, measure: Measure) -> bool:
    return not report.layers or any(row.measures[measure.name] is not None for row in report.layers)


def _distances(report: Report, measure: str, numbers: Callable[..., Column]) -> list[Column]:
    """How far the answer is from its bound and from the first baseline; how much more it takes of what may grow."""
    made = []
    if report.lower_bound is not None:
        made.append(numbers("lower bound", lambda row: amount(row.lower_bound), amount(report.lower_bound), rank=2))

    def fewer(baseline: Amounts, chosen: Amounts) -> str:
        return times(baseline[measure], chosen[measure])

    total = fewer(report.baseline, report.total)
    made.append(numbers("times\nfewer", lambda row: fewer(row.baseline, row.measures), total, rank=4))
    for grown in (m.name for m in report.measures if m.shown == "growth"):
        total = times(report.total[grown], report.baseline[grown])
        made.append(numbers(f"{grown}\nx", _growth_of(grown), total, rank=2))
    return made


def _growth_of(measure: str) -> Callable[[LayerRow], str]:
    return lambda row: times(row.measures[measure], row.baseline[measure])


def _sizes(row: LayerRow) -> str:
    return f"{row.groups} x {row.m} x {row.k} x {row.n}"


def _utilization(row: LayerRow) -> str:
    return "-" if row.utilization is None else f"{100 * row.utilization:.2f}"


def amount(number: int | None) -> str:
    """A number as tables have it."""
    return "unknown" if number is None else f"{number:,}"


def times(more: int | None, less: int | None) -> str:
    """How many times as much one amount is as another; - where that is no number."""
    return f"{more / less:.2f}" if more is not None and less else "-"


def _copies(section: Mapping[str, Any]) -> Table:
    """Equal copies are one row, with how many there are before and after."""
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
