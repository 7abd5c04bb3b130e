"""Formats the cycles and bytes of an npu program: a table of its layers, and sentences under it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from glenside.npu.analysis.critical_path import WRITES, Account, Ledger
from glenside.npu.program.program import Choices
from glenside.report.text import Column, Table

_SHOWN = 3
"""Causes of stalls that a layer's row names; the sentences name all."""
_MANY = 1_000_000
"""Number of choices from which only the power of ten is printed."""
_READ = ("weights", "parameters", "tables", "functions", "inputs")


def schedule_table(ledger: Ledger) -> Table:
    """Returns a row for each layer: cycles of compute, stalls and their causes, DMA cycles, bytes,
    where results are.
    """
    total, machine = ledger.total, ledger.machine
    rows = [own for own in ledger.layers if own.cycles or own.busy.total()]

    def column(name: str, cell: Callable[[Account], str], *, rank: int = 9, words: bool = False) -> Column:
        every = "" if name == "result" else cell(total)
        return Column(
            name, [cell(own) for own in rows], every, words=words, folds=words and name != "result", rank=rank
        )

    def utilization(own: Account) -> str:
        share = own.utilization(machine)
        return "-" if share is None else f"{100 * share:.2f}"

    def energy(own: Account) -> str:
        return f"{(own.energy(machine) or 0) / 1e6:,.2f}"

    names = [own.name for own in rows]
    made = [
        Column("layer", names, "total", words=True, folds=True, short=names),
        column("cycles", lambda own: f"{own.cycles:,}"),
        column("compute", lambda own: f"{own.compute:,}"),
        column("stall", lambda own: f"{own.stall:,}"),
        column("DMA\nbusy", lambda own: f"{own.busy['dma']:,}", rank=3),
        column("util %", utilization, rank=4),
    ]
    for cause in (*_READ, *WRITES):
        if total.moved[cause]:
            way = "out" if cause in WRITES else "in"
            made.append(column(f"bytes {way},\n{cause}", _moved(cause), rank=2 if cause in _READ[:-1] else 3))
    if machine.energy is not None:
        made.append(column("energy,\nuJ", energy, rank=3))
    made.append(column("result", lambda own: "on chip" if own.stays else "in DRAM", words=True, rank=4))
    return Table([*made, column("waits for", lambda own: causes(own.stalls, _SHOWN), words=True, rank=1)])


def _moved(cause: str) -> Callable[[Account], str]:
    return lambda own: f"{own.moved[cause]:,}" if own.moved[cause] else ""


def causes(stalls: Counter[str], most: int | None = None) -> str:
    """Lists causes with their cycles, most first, and the sum of the others."""
    found = [(name, count) for name, count in stalls.most_common() if count]
    shown = found if most is None else found[:most]
    rest = sum(count for _, count in found[len(shown) :])
    return ", ".join([*(f"{name} {count:,}" for name, count in shown), *([f"others {rest:,}"] if rest else [])])


def schedule_sentences(ledger: Ledger) -> list[str]:
    """Returns the sentences under the table, one per line."""
    total, machine, energy = ledger.total, ledger.machine, ledger.machine.energy
    share = "" if not total.cycles else f", {100 * total.compute / total.cycles:.1f} %"
    lines = [
        f"Of {total.cycles:,} cycles the array computes in {total.compute:,}{share}, and stalls in {total.stall:,}."
    ]
    if total.stall:
        lines.append(f"Causes of stalls: {causes(total.stalls)}.")
    lines.append(
        f"The busiest unit takes {ledger.bound:,} cycles: another order of these instructions saves at most"
        f" {100 * ledger.gap:.1f} %."
    )
    lines += [] if ledger.choices is None else [_chosen(ledger.choices, ledger.cycles)]
    waiting = (f"{unit} for {causes(counts)}" for unit, counts in total.waits.items() if counts.total())
    lines.append(f"Waits between units, in cycles: {'; '.join(waiting) or 'none does'}.")
    read = {cause: count for cause, count in total.moved.items() if cause not in WRITES}
    written = {cause: count for cause, count in total.moved.items() if cause in WRITES}
    lines += [
        f"{total.read:,} bytes from DRAM: {causes(Counter(read)) or 'none'}.",
        f"{total.written:,} bytes to DRAM: {causes(Counter(written)) or 'none'}.",
    ]
    stay = [own for own in ledger.layers if own.stays]
    lines.append(f"The results of {len(stay)} of {len(ledger.layers)} layers stay on chip.")
    if energy is not None:
        spent = {name: count * getattr(energy, name) for name, count in total.accesses.items()}
        whole = sum(spent.values())
        parts = ", ".join(f"{name.replace('_', ' ')}s {100 * e / whole:.1f} %" for name, e in spent.items() if whole)
        clock = "" if machine.clock is None or not total.cycles else _watts(whole, total.cycles / machine.clock)
        lines.append(f"{whole / 1e6:,.2f} uJ{clock}: {parts}. Energies are of {energy.source}.")
    return lines


def _chosen(own: Choices, cycles: int) -> str:
    """Compares the choice of mappings and resident tensors with the other ones."""
    if own.are_all_tried:
        every = "The one choice" if own.count == 1 else f"All {own.count:,} choices"
        return (
            f"{every} of the mappings that were found and of tensors that stay on chip, as lowered for this machine,"
            " were compared: none takes fewer cycles."
        )
    count = f"{own.count:,}" if own.count < _MANY else f"more than 10^{len(str(own.count - 1)) - 1}"
    compared = {0: "none was", 1: "one was"}.get(own.tried, f"{own.tried:,} were")
    return (
        f"Of {count} choices of mappings and of tensors that stay {compared} compared. Lower bound of all choices:"
        f" {own.least:,} cycles, DMA of weights, inputs and results included. Another choice saves at most"
        f" {100 * own.gap(cycles):.1f} %."
    )


def _watts(picojoules: float, seconds: float) -> str:
    return f" in {1e6 * seconds:,.1f} us, {picojoules / 1e12 / seconds:.3f} W"
