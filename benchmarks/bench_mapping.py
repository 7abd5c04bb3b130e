"""Compares the chosen mappings of all built-in networks with the baseline mapping and with brute force.

    python -m benchmarks.bench_mapping

Brute force tries all window factors, pack sizes and operand orders of each layer, by formula
(`tests/oracles/mapping_oracle.py`); it finds numbers, not programs. Columns:

- `baseline`, `best`, `brute-force`: cycles of the network. `times-fewer`: baseline over best.
- `worse-layers`: layers whose mapping needs more cycles than brute force.
- `gap`: optimality gap. `weights-times`: mapped weight bytes over those of the baseline.
- `e-nodes`, `saturate`, `extract`, `brute-force-seconds`: size of the search, and seconds; saturation is measured in
  the search process.
"""

from __future__ import annotations

import csv
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import glenside as gl
from glenside.models import models
from glenside.targets.base import Amounts

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "oracles"))

import mapping_oracle as oracle

RESULTS = Path(__file__).parent / "results"
ARRAYS = ((8, 8), (16, 16), (32, 32), (64, 64), (128, 128), (256, 256), (32, 128), (24, 40))


def amounts(measures: Amounts) -> dict[str, int]:
    """Returns the measures as numbers, without unknown ones; an array target knows all of them."""
    return {name: amount for name, amount in measures.items() if amount is not None}


def main() -> None:
    """Measure, print and write the table."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, egglog {version('egglog')}"
    names = "network rows columns layers distinct baseline best times-fewer brute-force worse-layers gap weights-times"
    names += " e-nodes saturate extract brute-force-seconds"
    table: list[tuple[object, ...]] = []
    print(names)
    for name in models():
        program = gl.models.load(name)
        layers = list(oracle.layers_of(program).values())
        for rows, columns in ARRAYS:
            result = gl.optimize(program, gl.SystolicArray(rows, columns), verify=False)
            started = time.perf_counter()
            brute = [oracle.best(layer, rows, columns, crossing=True).cycles for layer in layers]
            seconds = time.perf_counter() - started
            report, taken, baseline = result.report, *map(amounts, (result.cost, result.report.baseline))
            worse = sum(
                amounts(row.measures)["cycles"] > least for row, least in zip(report.layers, brute, strict=True)
            )
            assert report.mapped == len(report.layers), (name, rows, columns)
            table.append(
                (
                    name,
                    rows,
                    columns,
                    len(report.layers),
                    report.distinct,
                    baseline["cycles"],
                    taken["cycles"],
                    f"{baseline['cycles'] / taken['cycles']:.2f}",
                    sum(brute),
                    worse,
                    report.gap,
                    f"{taken['weight bytes'] / baseline['weight bytes']:.2f}",
                    report.e_nodes,
                    f"{report.seconds['saturate']:.2f}",
                    f"{report.seconds['extract']:.2f}",
                    f"{seconds:.2f}",
                )
            )
            print(*table[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / "bench_mapping.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names.split(), machine])
        writer.writerows(table)


if __name__ == "__main__":
    main()
