"""Builds the page of a result: the request, the answer, the table, plots, each layer, and how it was checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from glenside.egraph.origins import Origins
from glenside.ir.names import one_line
from glenside.report.document import (
    Bars,
    Block,
    Cloud,
    Document,
    EGraph,
    Facts,
    Grid,
    Page,
    Picture,
    Points,
    Rules,
    Section,
    Steps,
    Tiles,
    Words,
    asked,
    fits,
)
from glenside.report.egraph_view import EGraphView
from glenside.report.network_picture import algebra_picture, is_drawn
from glenside.report.report import CHOSEN, Choice, LayerRow, Report
from glenside.report.text import Column, Table, amount, report_html, sentences, tables_of, times
from glenside.report.tile import Tile, baseline_tiles, instructions, tiles_of
from glenside.rewrites import RULES
from glenside.targets.base import Amounts, TracksMemory

if TYPE_CHECKING:
    from glenside.report.result import Result

_MOST_BARS = 400


def result_document(
    result: Result, *, compare: bool = False, more: Sequence[Section] = (), facts: Mapping[str, str] | None = None
) -> Document:
    """Returns the document of a result. `more` are sections of this run only, `facts` more values of the request. A
    cached answer is searched again, since its e-graph is shown.
    """
    report, view = result.report, EGraphView.of(result)
    drawn = fits(result.egraph.e_nodes)
    title = f"{one_line(report.program)} on {report.target}"
    lead, *others = sentences(report)
    how = report.how_checked or "not run"
    layers = _Layers(result, drawn)
    sections = [
        Section("The answer", [Words(others)]),
        Section("Layers" if layers.known else "Copies", [*_tables(report, compare), *_bars(report), *_copies(report)]),
        *([Section("Algebra between layers", _algebra(result))] if report.algebra else []),
        Section("Memory over time", _memory(result)),
        *more,
        Section("How it was checked", [Facts([("whole program", report.checked), ("how", how)])]),
        Section("The search", [*_search(report), *_egraph(result, drawn)]),
        asked([*_asked(result), *(facts or {}).items()]),
    ]
    pages = [layers.page(row) for row in report.layers] if layers.known else []
    return Document(title, lead, sections, pages, report_html(report), view.record if drawn else None)


def _algebra(result: Result) -> list[Block]:
    """Returns a table of the forms between layers that were priced, and the network before and after."""
    found = result.report.algebra
    columns = [
        Column("computed", [one.region for one in found], words=True),
        Column("in place of", [", ".join(one.products) for one in found], words=True, folds=True),
        Column("as written", [f"{one.given:,.0f}" for one in found]),
        Column("cost", [f"{one.cost:,.0f}" for one in found]),
        Column("times", [f"{one.given / one.cost:.2f}" if one.cost else "" for one in found]),
        Column("taken", ["yes" if one.taken else "no" for one in found], words=True),
        Column("equations", ["; ".join(one.equations) for one in found], words=True, folds=True),
    ]
    table = Grid("forms that were priced", Table(columns))
    changed = any(one.taken for one in found) and is_drawn(result.original)
    return [table, Picture(algebra_picture(result))] if changed else [table]


def _asked(result: Result) -> Iterator[tuple[str, str]]:
    target = result.target
    yield "program", one_line(result.original.name)
    yield "target", f"{target.name}: {' '.join(target.doc.split()).split('. ')[0].rstrip('.')}"
    yield "minimized", ", then ".join(target.objectives) or "nothing"
    if target.budget is not None:
        yield target.budget.what, f"{target.budget.most:,.0f} {target.budget.unit}"
    yield "seed", str(result.seed)


def _tables(report: Report, compare: bool) -> list[Block]:
    """Returns the tables of the terminal with a row for each layer; rows of the first one link to the layers' pages."""
    found = tables_of(report, compare=compare, every=True)
    copies = "copies" in report.sections
    first: list[Block] = [Grid("", found[0], [*range(len(report.layers))])] if len(found) > copies else []
    return [*first, *(Grid("Copies" if first else "", table) for table in found[len(first) :])]


def _bars(report: Report) -> list[Block]:
    """Draws the first measure of each layer for every baseline and for the answer, and the utilization."""
    first, rows = report.measures[0], report.layers[:_MOST_BARS]
    if not any(row.measures[first.name] for row in rows):
        return []
    series = [(which, [row.variants[which].measures[first.name] for row in rows]) for which in report.totals]
    names = [one_line(row.name) for row in rows]
    bars: list[Block] = [Bars(f"{first.name} of each layer", first.unit, names, series, [*range(len(rows))])]
    if len(report.layers) > len(rows):
        bars.append(Words([f"The first {len(rows)} of {len(report.layers):,} layers are drawn; the table has all."]))
    if report.peak is not None:
        shares = [
            (which, [_share(row, row.variants[which].measures, report.peak) for row in rows]) for which in report.totals
        ]
        bars.append(Bars("utilization of the multipliers", "%", names, shares, [*range(len(rows))]))
    return bars


def _copies(report: Report) -> list[Block]:
    """Draws the bytes of each kind of copy, before and after."""
    if "copies" not in report.sections:
        return []
    bytes_: dict[str, list[float | None]] = {}
    for i, when in enumerate(("as written", CHOSEN)):
        for copy in report.sections["copies"][when]:
            kind = f"{copy['what']}, {copy['place']}, {' x '.join(map(str, copy['dims']))}"
            own = bytes_.setdefault(kind, [0, 0])
            own[i] = (own[i] or 0) + copy["bytes"]
    series = [(when, [own[i] for own in bytes_.values()]) for i, when in enumerate(("before", "after"))]
    return [Bars("Bytes of each kind of copy", "bytes", [*bytes_], series)] if bytes_ else []


def _share(row: LayerRow, amounts: Amounts, peak: int) -> float | None:
    cycles = amounts.get("cycles")
    return round(100 * row.macs / (cycles * peak), 2) if cycles else None


def _memory(result: Result) -> list[Block]:
    """Draws the bytes of live temporaries in each step, for the first baseline that was built and for the answer."""
    target, programs = result.target, {**dict([*result.baselines.items()][:1]), CHOSEN: result.program}
    if result.report.black_boxes or not isinstance(target, TracksMemory):  # the target counts nothing for black boxes
        return []
    known = {which: target.memory_over_time(program) for which, program in programs.items()}
    budget = target.budget
    limit = None if budget is None or budget.most == math.inf else (budget.what, float(budget.most))
    top = max((count for held in known.values() for *_, count in held), default=0)
    blocks: list[Block] = []
    for which, held in known.items():
        if held is not None:
            most = max((count for *_, count in held), default=0)
            blocks.append(
                Steps(
                    f"{which}: {most:,} bytes at most, of temporaries and results",
                    "steps of the interpreter, in order",
                    "bytes",
                    [*range(len(held) + 1)],
                    [("held", [count for *_, count in held])],
                    labels=[f"{one_line(layer)}: {what}" if layer else what for what, layer, _ in held],
                    spans=_spans([layer for _, layer, _ in held]),
                    top=top,
                    most=limit,
                )
            )
    return blocks


def _spans(layers: Sequence[str]) -> list[tuple[str, float, float]]:
    """Returns for each layer its steps: from the step after the layer before to its own last one."""
    found, first = list[tuple[str, float, float]](), 0
    for i, name in enumerate(layers):
        if name:
            found.append((one_line(name), first, i + 1))
            first = i + 1
    return found


def _search(report: Report) -> list[Block]:
    """Returns the table of rules that matched. Analyses run together, so they have no times of their own."""
    found = [(name, run) for name, run in report.rules.items() if run.matches]
    found.sort(key=lambda item: -item[1].matches)
    rules = [RULES.get(name) for name, _ in found]
    columns = [
        Column("rule", [name for name, _ in found], words=True),
        Column("family", ["" if rule is None else rule.family for rule in rules], words=True),
        Column("matches", [f"{run.matches:,}" for _, run in found]),
        Column("seconds", [f"{run.seconds:.4f}" if run.seconds else "" for _, run in found]),
        Column("what it says", ["" if rule is None else rule.equation for rule in rules], words=True),
    ]
    return [Grid("Rules that matched", Table(columns))] if found else []


def _egraph(result: Result, drawn: bool) -> list[Block]:
    if not result.egraph.e_nodes:
        return []
    if not drawn:
        return [
            Words(
                [
                    f"The e-graph of {result.egraph.e_nodes:,} e-nodes is too large to be in this page too: "
                    "`--emit egraph -o egraph.html` writes it as a page of its own."
                ]
            )
        ]
    roots = result.answer.roots
    start = roots[""] if "" in roots else next(iter(roots.values()), None)
    return [] if start is None else [EGraph(start)]


class _Layers:
    """Pages of layers."""

    def __init__(self, result: Result, drawn: bool) -> None:
        self.result, self.report, self.drawn = result, result.report, drawn
        self.origins = Origins(result.egraph)
        self.known = len(tables_of(self.report)) > ("copies" in self.report.sections)

    def page(self, row: LayerRow) -> Page:
        first = self.report.measures[0]
        before, after = row.baseline[first.name], row.measures[first.name]
        against = ""
        counted = self.report.units[first.name] == first.name
        if before and after and after < before:
            against = f", {times(before, after)} times {'fewer' if counted else 'less'} than its baseline"
        elif before and after and after > before:
            against = f", {times(after, before)} times as {'many' if counted else 'much'} as its baseline"
        taken = f"{amount(after)} {first.name}" if counted else f"{first.name} of {amount(after)} {first.unit}"
        off = "" if row.mapped else f" It stays off the machine: {row.nearest_miss}."
        lead = f"{row.label}: {taken}{against}.{off}"
        sections = [
            Section("", [self._facts(row), self._measures(row)]),
            Section("In the array", self._tiles(row)),
            Section("Trade-off of its variants", self._front(row)),
            Section("Rules applied", self._rules(row)),
            Section("Its e-graph", self._egraph(row)),
        ]
        return Page(one_line(row.name), lead, sections)

    def _facts(self, row: LayerRow) -> Facts:
        pairs = [("operator", row.operator)]
        if row.macs:
            pairs += [("groups x M x K x N", f"{row.groups:,} x {row.m:,} x {row.k:,} x {row.n:,}")]
            pairs += [("multiply-adds", f"{row.macs:,}")]
        pairs += [("variant", row.label)]
        if (plan := row.details.get("plan")) and (sizes := plan.get("matrices")):
            product = " x ".join(f"{sizes[key]:,}" for key in ("groups", "m", "k", "n"))
            pairs += [("as mapped on the array", f"{product}, groups x M x K x N")]
        if row.utilization is not None:
            pairs += [("utilization of the multipliers", f"{100 * row.utilization:.2f} %")]
        if row.lower_bound is not None:
            above = "reached" if row.gap == 0 else f"the answer is {row.gap:,} above it" if row.gap is not None else ""
            gap = above and f"; {above}"
            unit = self.report.units.get(self.report.objectives[0], self.report.objectives[0])
            pairs += [("lower bound", f"{row.lower_bound:,} {unit}{gap}")]
        return Facts([*pairs, ("checked", row.checked)])

    def _measures(self, row: LayerRow) -> Grid:
        """Returns the table of measures of each baseline and of the answer."""
        names = [m.name for m in self.report.measures if row.measures[m.name] is not None]
        which = [*row.variants]
        columns = [
            Column("", [*which], words=True),
            Column("variant", [row.variants[w].label for w in which], words=True),
            *(Column(self._unit(name), [amount(row.variants[w].measures[name]) for w in which]) for name in names),
        ]
        return Grid("Baseline and best", Table(columns))

    def _unit(self, name: str) -> str:
        unit = self.report.units[name]
        return name if name.endswith(unit) else f"{name}, {unit}"

    def _tiles(self, row: LayerRow) -> list[Block]:
        """Draws the array with the baseline's weights beside the array with the best mapping's."""
        layer, product = self.result.program.layers.get(row.name), self.result.prepared.layers.get(row.name)
        if layer is None or product is None or not row.mapped:
            return []
        best = tiles_of(layer)
        if not best:
            return []
        rows, columns = best[0].rows, best[0].columns
        made = [("baseline", tile) for tile in baseline_tiles(product, rows, columns)] + [("best", t) for t in best]
        pictures = [(f"{which}: {_of(tile)}", tile) for which, tile in made]
        more = len(instructions(layer)) - 1
        said = [f"{more} more instruction{'s' * (more > 1)} of this layer hold other tiles."] if more else []
        return [Tiles(pictures), *([Words(said)] if said else [])]

    def _front(self, row: LayerRow) -> list[Block]:
        """Plots all variants, the Pareto front, and the chosen variant."""
        report = self.report
        if not report.front or not row.front:
            return []
        first, second = report.front[0], report.front[1]
        front = row.front_of(report.front)

        def points(choices: Sequence[Choice]) -> list[tuple[float, float, str]]:
            known = [(c.measures[second], c.measures[first], c.label) for c in choices]
            return [(float(x), float(y), label) for x, y, label in known if x is not None and y is not None]

        plane = row.front_of((first, second))
        clouds = [
            Cloud("every variant", points(row.front)),
            Cloud("no other is better in both", points(plane), joined=True),
            Cloud("chosen", points([row.chosen])),
        ]
        columns = [
            Column("variant", [c.label + (" (chosen)" if c == row.chosen else "") for c in front], words=True),
            *(Column(self._unit(name), [amount(c.measures[name]) for c in front]) for name in row.measures),
        ]
        title = f"{first} against {second}"
        return [Points(title, self._unit(second), self._unit(first), clouds), Grid("The front", Table(columns))]

    def _rules(self, row: LayerRow) -> list[Block]:
        extracted = self.result.answer.layers.get(row.name)
        if extracted is None:
            return []
        names = () if extracted.cone is None else extracted.cone.rules
        if not names:
            own = Choice(row.label, row.measures)
            chosen = (v.term for v in extracted.variants if Choice(v.label, v.measures) == own and v.term is not None)
            names = next(map(self.origins.of, chosen), ())
        return [Rules(names)] if names else [Words(["None: the layer is unchanged."])]

    def _egraph(self, row: LayerRow) -> list[Block]:
        start = self.result.answer.roots.get(row.name)
        return [EGraph(start)] if self.drawn and start is not None else []


def _of(tile: Tile) -> str:
    places = tile.rows * tile.columns
    return (
        f"tile {tile.number:,} of {tile.count:,}; {tile.used:,} of {places:,} places hold an element, "
        f"{100 * tile.used / places:.1f} %, {places - tile.used:,} stay empty"
    )
