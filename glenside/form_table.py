"""The table of forms: what each policy takes in each layer, what was chosen, and the lines under it."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.table import Table
from rich.text import Text

from glenside.forms import CHOSEN, FormReport
from glenside.ir.names import one_line
from glenside.table import console


def form_table(report: FormReport) -> Table:
    """One row for each layer, one for what is between them, totals in the footer."""
    compared = [name for name in report.units if name in report.compared]
    others = [name for name in report.units if name not in report.compared]
    policies = list(report.totals)
    title = Text(f"{one_line(report.program)} on {report.target}", style="table.title")
    table = Table(title=title, title_justify="left", show_footer=True, box=box.SIMPLE)
    table.pad_edge = False
    table.add_column("layer", "total", overflow="fold", vertical="bottom")
    table.add_column("operator", f"{len(report.layers)} layers", no_wrap=True)
    for policy in policies:
        for name in compared:
            table.add_column(f"{policy}\n{name}", f"{report.totals[policy][name]:,}", justify="right", no_wrap=True)
    for name in others:
        table.add_column(f"{CHOSEN}\n{name}", f"{report.totals[CHOSEN][name]:,}", justify="right", no_wrap=True)
    table.add_column("form", overflow="fold")
    table.add_column("checked", no_wrap=True)
    for row in report.layers:
        taken = [f"{row.choices[policy].measures[name]:,}" for policy in policies for name in compared]
        taken += [f"{row.chosen.measures[name]:,}" for name in others]
        cells = (row.name, row.operator, *taken, row.chosen.form, row.checked)
        style = "yellow" if row.checked == "different" else None
        table.add_row(*(Text(one_line(cell)) for cell in cells), style=style)
    if any(any(amounts.values()) for amounts in report.rest.values()):
        between = [_amount(report.rest[policy], name) for policy in policies for name in compared]
        between += [_amount(report.rest[CHOSEN], name) for name in others]
        table.add_row("between layers", "", *between, "", "")
    return table


def _amount(amounts: Mapping[str, int], name: str) -> str:
    """A measure that adds up; nothing where it does not."""
    return f"{amounts[name]:,}" if name in amounts else ""


def print_forms(report: FormReport) -> None:
    """The table, what was gained, what the search did, how it was checked."""
    out = console()
    out.print(form_table(report))
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


def _under(amounts: Mapping[str, int]) -> str:
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
            cells = (f"{choice.form}{' (chosen)' if chosen else ''}", *(f"{n:,}" for n in choice.measures.values()))
            table.add_row(*(Text(one_line(cell)) for cell in cells), style="bold" if chosen else None)
        out.print(table)
