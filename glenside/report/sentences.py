"""The sentences under the table of a report: what was gained, what is proven, what the search and the check did."""

from __future__ import annotations

from collections.abc import Mapping

from glenside.report.columns import times
from glenside.report.report import CHOSEN, Report


def sentences(report: Report) -> list[str]:
    """All of them, one to a line."""
    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in report.seconds.items())
    since = "From the cache; seconds when it was found" if report.cached else "Seconds"
    counted = report.peak is not None or report.mapped < len(report.layers)
    return [
        *_gain(report),
        *_growth(report),
        *_copies(report),
        *_units(report),
        *_certificate(report),
        f"Search: {report.distinct} distinct layer{'' if report.distinct == 1 else 's'}, {report.e_nodes:,} e-nodes in "
        f"{report.e_classes:,} e-classes after {report.iterations} iterations, stopped: {report.stopped}.",
        f"{since}: {seconds}.",
        f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).",
        *([report.unmapped_sentence()] if counted else []),
        *(f"Note: {remark}" for remark in (*report.remarks, *report.notes)),
    ]


def _gain(report: Report) -> list[str]:
    """How far the answer is from the best baseline in the measure that is compared first; in the layers alone, too."""
    first = report.measures[0]
    what = f"bytes of {first.name}" if first.unit == "bytes" != first.name else first.name
    totals = {name: amounts[first.name] for name, amounts in report.totals.items()}
    if totals[CHOSEN] is None:
        return [f"How many {what} the answer takes is unknown."]
    lines = [f"{totals[CHOSEN]:,} {what} in all{_under(totals)}."]
    rest = {name: report.between_layers.get(name, {}).get(first.name) for name in totals}
    if any(rest.values()) and report.layers:
        layers = {name: None if n is None else n - (rest[name] or 0) for name, n in totals.items()}
        lines.append(f"{layers[CHOSEN]:,} {what} in the layers{_under(layers)}.")
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
    share = 100 * (1 - chosen / least)
    than = f"{abs(share):.1f} % {'above' if share < 0 else 'under'} {best}"
    return f", {than}, which takes {least:,}: {times(least, chosen)} times as many"


def _growth(report: Report) -> list[str]:
    """What grew for the sake of the rest."""
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
    if report.peak is None or bound is None or gap is None:
        return []
    if gap == 0 and report.stopped == "saturated":
        return [f"No mapping that the rules reach takes fewer {unit}: the bound is {bound:,}, the gap 0."]
    return [f"At least {bound:,} {unit} are needed; the gap of {gap:,} is not closed."]
