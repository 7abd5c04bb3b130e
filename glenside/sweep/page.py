"""The table of a sweep, for terminals and pages, and its report page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glenside.ir.names import one_line
from glenside.report.document import Bars, Block, Cloud, Document, Grid, Points, Section, Words, asked
from glenside.report.text import Column, Table, table_html
from glenside.sweep.cells import Cell, Row
from glenside.sweep.plots import front

Finished = Sequence[tuple[Cell, Row]]

_COLUMNS = (
    *("model", "array", "objective", "layers mapped", "baseline cycles", "best cycles", "ratio"),
    *("util %", "gap %", "bytes", "seconds"),
)
_WORDS = 3  # columns that begin a row, and are no numbers
_PROGRAM = ("program's\ncycles", "DRAM\nbytes", "energy,\nuJ", "area,\nM gates")


def table_of(finished: Finished, check: bool) -> Table:
    """Returns one row for each cell, with a column of notes if there are any."""
    whole = any(row.program_cycles for _, row in finished)
    lines = [
        [
            *(cell.model, cell.array, cell.objective, *_numbers(row)),
            *([row.checked] if check else []),
            *(_of_program(row) if whole else []),
        ]
        for cell, row in finished
    ]
    names = [*_COLUMNS, *(["checked"] if check else []), *(_PROGRAM if whole else ())]
    words = {*_COLUMNS[:_WORDS], "checked"}
    columns = [
        Column(name, cells, words=name in words, folds=name in ("model", "checked"))
        for name, cells in zip(names, zip(*lines, strict=True), strict=True)
    ]
    if any(row.note() for _, row in finished):
        columns.append(Column("note", [row.note() for _, row in finished], words=True, folds=True))
    return Table(columns, frozenset(i for i, (_, row) in enumerate(finished) if not row.ok))


def _numbers(row: Row) -> list[str]:
    if row.failed:
        return ["failed", *[""] * 7]
    return [
        f"{row.mapped} of {row.layers}",
        f"{row.baseline_cycles:,}",
        f"{row.cycles:,}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        f"{100 * row.utilization:.2f}",
        f"{100 * row.gap / row.lower_bound:.2f}" if row.lower_bound else "",
        f"{row.bytes:,}",
        f"{row.seconds:.2f}",
    ]


def _of_program(row: Row) -> list[str]:
    """Returns the cycles, bytes and energy of the whole program, and the area of its machine."""
    if row.failed or not row.program_cycles:
        return [""] * len(_PROGRAM)
    energy = f"{row.picojoules / 1e6:,.2f}" if row.picojoules else ""
    return [f"{row.program_cycles:,}", f"{row.program_bytes:,}", energy, f"{row.gates / 1e6:,.2f}"]


def sweep_document(finished: Finished, wanted: int, check: bool, facts: Mapping[str, str]) -> Document:
    """Returns the document of the finished rows, out of `wanted` cells; `facts` describe the options."""
    models = [*dict.fromkeys(cell.model for cell, _ in finished)]
    failed = sum(bool(row.failed) for _, row in finished)
    said = [f"{failed} of {wanted:,} cells failed."] if failed else []
    if len(finished) < wanted:
        said.append(f"Interrupted: {len(finished):,} of {wanted:,} cells are finished.")
    table = table_of(finished, check) if finished else Table([])
    sections = [
        Section("Every cell", [*([Words(said)] if said else []), *([Grid("", table)] if finished else [])]),
        Section("Cycles by machine", [_bars(model, finished) for model in models]),
        Section("What machines cost for their cycles", [b for model in models for b in _trades(model, finished)]),
        asked(facts.items()),
    ]
    title = f"A sweep of {_some(models)}"
    return Document(title, _lead(finished, wanted), sections, plain=table_html(table))


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(one_line, names[:4]))
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown or "nothing"


def _lead(finished: Finished, wanted: int) -> str:
    """Describes for how many cells the result beats the baseline, and the largest improvement."""
    known = [(row.ratio, cell) for cell, row in finished if row.ratio is not None]
    if not known:
        return f"None of {wanted:,} cells has an answer to compare."
    ratio, cell = max(known, key=lambda item: item[0])
    fewer = sum(ratio > 1 for ratio, _ in known)
    where = f"{one_line(cell.model)} on {cell.array}"
    return (
        f"{fewer:,} of {wanted:,} cells take fewer cycles than their baseline mapping; "
        f"the most is {ratio:.2f} times fewer, of {where}."
    )


def _bars(model: str, finished: Finished) -> Bars:
    """Compares the baseline and the best for each objective, with machines ordered by their multipliers."""
    own = {(c.array, c.objective): row for c, row in finished if c.model == model and row.complete}
    sizes = {cell.array: cell.multipliers for cell, _ in finished if cell.model == model}
    arrays = sorted(sizes, key=lambda array: sizes[array])
    objectives = [*dict.fromkeys(cell.objective for cell, _ in finished)]
    baselines = {array: row.baseline_cycles for (array, _), row in own.items()}

    def best(objective: str) -> list[float | None]:
        return [None if (row := own.get((array, objective))) is None else row.cycles for array in arrays]

    baseline: list[float | None] = [baselines.get(array) for array in arrays]
    least = [(f"best mapping, least {objective.replace(',', ', then ')}", best(objective)) for objective in objectives]
    series = [("baseline mapping", baseline), *least]
    return Bars(one_line(model), "cycles", arrays, series)


def _trades(model: str, finished: Finished) -> list[Block]:
    """Plots cycles against area and energy, for machines that specify them."""
    own = [(c, row) for c, row in finished if c.model == model and row.complete and (row.program_cycles or row.cycles)]
    whole = any(row.program_cycles for _, row in own)
    costs = (
        ("area, million gates (NANDs of two inputs)", [(c, row, row.gates / 1e6) for c, row in own if row.gates]),
        ("energy, microjoules", [(c, row, row.picojoules / 1e6) for c, row in own if row.picojoules]),
    )
    found: list[Block] = []
    for name, cells in costs:
        points = [(cost, float(row.program_cycles or row.cycles), cell.array) for cell, row, cost in cells]
        if points:
            best = [points[number] for number in front([(x, y) for x, y, _ in points])]
            clouds = [Cloud("every machine", points), Cloud("no other is better in both", best, joined=True)]
            what = "cycles, input to result" if whole else "cycles of the array"
            found.append(Points(f"{one_line(model)}: {what} against {name}", name, what, clouds))
    return found
