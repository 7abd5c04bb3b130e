"""The table of forms: what each policy takes in each layer, what was chosen, and the lines under it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from glenside.cli.table import PIPED_WIDTH, console
from glenside.forms import CHOSEN, FormReport
from glenside.ir.names import one_line

_WIDEST = 10_000  # characters, to measure a table in
_NAME, _FORM = 24, 14  # characters to which names of layers and forms are folded at most, where there is no room


def form_table(report: FormReport, width: int = PIPED_WIDTH) -> Table:
    """One row for each layer, one for what is between them, totals in the footer.

    `width` is that of the terminal, in characters: on a narrow one, operators, measures that only the answer shows, and
    other policies, the first one last, are left out, in that order, until the rest fits.
    """
    others = [name for name in report.units if name not in report.compared]
    every = list(report.totals)
    ends = list(dict.fromkeys([every[0], CHOSEN]))
    columns = [_Columns(True, others, every), _Columns(False, others, every)]
    columns += [_Columns(False, [], every), _Columns(False, [], ends), least := _Columns(False, [], [CHOSEN])]
    fitting = filter(None, (_fitted(report, width, shown) for shown in columns))
    return next(fitting, None) or _table(report, least, (_NAME, _FORM))


class _Columns(NamedTuple):
    """Whether operators are shown, measures that only the answer shows, and policies."""

    operators: bool
    others: Sequence[str]
    policies: Sequence[str]


def _fitted(report: FormReport, width: int, columns: _Columns) -> Table | None:
    """Those columns, with words folded where they must be; None where they do not fit even so."""
    whole = _table(report, columns, (None, None))
    if _width(whole) <= width:
        return whole
    wide = max((len(row.chosen.form) for row in report.layers), default=0)
    room = wide - (_width(_table(report, columns, (_NAME, wide))) - width)
    return _table(report, columns, (_NAME, room)) if room >= min(wide, _FORM) else None


def _width(table: Table) -> int:
    wide = Console(width=_WIDEST)
    return Measurement.get(wide, wide.options, table).maximum


def _table(report: FormReport, columns: _Columns, folded: tuple[int | None, int | None]) -> Table:
    """`folded` are the most characters in the columns of layers and of forms."""
    operators, others, policies = columns
    names, forms = folded
    compared = [name for name in report.units if name in report.compared]
    shown = [(policy, name) for policy in policies for name in compared] + [(CHOSEN, name) for name in others]
    title = Text(f"{one_line(report.program)} on {report.target}", style="table.title")
    table = Table(title=title, title_justify="left", show_footer=True, box=box.SIMPLE)
    table.pad_edge = False
    count = f"{len(report.layers)} layer{'' if len(report.layers) == 1 else 's'}"
    table.add_column("layer", "total", overflow="fold", max_width=names)
    if operators:
        table.add_column("operator", count, no_wrap=True)
    for policy, name in shown:
        table.add_column(f"{policy}\n{name}", spelled(report.totals[policy][name]), justify="right", no_wrap=True)
    table.add_column("form", "" if operators else count, overflow="fold", max_width=forms)
    table.add_column("checked", no_wrap=True)
    for row in report.layers:
        taken = [spelled(row.choices[policy].measures[name]) for policy, name in shown]
        cells = (row.name, *([row.operator] if operators else []), *taken, row.chosen.form, row.checked)
        style = "yellow" if row.checked == "different" else None
        table.add_row(*(Text(one_line(cell)) for cell in cells), style=style)
    if any(any(amounts.values()) for amounts in report.rest.values()):
        between = [_amount(report.rest[policy], name) for policy, name in shown]
        table.add_row("between layers", *([""] if operators else []), *between, "", "")
    return table


def _amount(amounts: Mapping[str, float], name: str) -> str:
    """A measure that adds up; nothing where it does not."""
    return f"{amounts[name]:,}" if name in amounts else ""


def spelled(amount: float) -> str:
    """A measure in digits; what nothing bounds is unknown."""
    return "unknown" if amount == math.inf else f"{amount:,}"


def print_forms(report: FormReport) -> None:
    """The table, what was gained, what the search did, how it was checked."""
    out = console()
    out.print(form_table(report, out.width))
    for line in _gain(report):
        out.print(line, markup=False)
    out.print(_units(report.units))
    out.print(
        f"Search: {report.distinct} distinct layer{'' if report.distinct == 1 else 's'}, {report.e_nodes:,} e-nodes in "
        f"{report.e_classes:,} e-classes after {report.iterations} iterations, stopped: {report.stopped}."
    )
    out.print(f"Seconds: {', '.join(f'{name} {value:.2f} s' for name, value in report.seconds.items())}.")
    out.print(f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).", markup=False)
    for remark in (*report.remarks, *report.notes):
        out.print(f"Note: {remark}", markup=False)


def _gain(report: FormReport) -> list[str]:
    """How far the answer is under the best of the policies, in the measure that is made least; layers alone, too."""
    first = next(iter(report.units))
    totals = {name: amounts[first] for name, amounts in report.totals.items()}
    layers = {name: total - report.rest[name].get(first, 0) for name, total in totals.items()}
    lines = [f"{totals[CHOSEN]:,} {first} in all{_under(totals)}."]
    if layers != totals:
        lines.append(f"{layers[CHOSEN]:,} {first} in the layers{_under(layers)}.")
    return lines


def _under(amounts: Mapping[str, float]) -> str:
    others = {name: amount for name, amount in amounts.items() if name != CHOSEN and amount}
    if not others:
        return ""
    name, least = min(others.items(), key=lambda item: item[1])
    return f", {100 * (1 - amounts[CHOSEN] / least):.1f} % under {name}, the best of the same form everywhere"


def _units(units: Mapping[str, str]) -> str:
    described = (f"{name} in {unit}" for name, unit in units.items() if name != unit)
    return f"Units: {', '.join(described)}." if units else ""


def print_front(report: FormReport) -> None:
    """For each distinct layer the forms that no other beats in both measures of the front; the one chosen is bold."""
    out = console()
    shown: set[tuple[str, ...]] = set()
    for row in report.layers:
        front = row.front_of(report.axes)
        key = (row.operator, *(f"{choice}" for choice in front))
        if key in shown:
            continue
        shown.add(key)
        title = Text(f"{one_line(row.name)}, {row.operator}: {' against '.join(report.axes)}", style="table.title")
        table = Table(title=title, title_justify="left", box=box.SIMPLE)
        table.pad_edge = False
        table.add_column("form", overflow="fold")
        for name in row.chosen.measures:
            table.add_column(name, justify="right", no_wrap=True)
        for choice in front:
            chosen = choice == row.chosen
            cells = (
                f"{choice.form}{' (chosen)' if chosen else ''}",
                *(spelled(n) for n in choice.measures.values()),
            )
            table.add_row(*(Text(one_line(cell)) for cell in cells), style="bold" if chosen else None)
        out.print(table)
