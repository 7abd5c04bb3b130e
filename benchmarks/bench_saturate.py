"""Measures how the search grows with tiles, layers and array shapes: tile loops and unrolled tiles.

    python -m benchmarks.bench_saturate

Writes results/bench_saturate.csv and .png. Seconds are medians of three runs in one process, and include taking the
program apart, declarations, insertion, saturation and the snapshot. Both ways alternate. Columns:

- `series`, `size`: what grows, and its value.
- `blocking`: `tile-loops` or `unrolled-tiles`, as `--blocking`.
- `e-nodes`, `e-classes`, `iterations`: size and length of the finished search.
"""

from __future__ import annotations

import csv
import os
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import glenside as gl
from glenside.analysis.layers import product_sizes
from glenside.builder import Builder
from glenside.egraph.encode import program_nodes
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.ir.program import Program
from glenside.passes.distinct_layers import distinct_layers
from glenside.rewrites import of_families
from glenside.targets.base import Way

RESULTS = Path(__file__).parent / "results"
RUNS = 3
WAYS = ("tile-loops", "unrolled-tiles")
UNROLLED_AT_MOST = 6_000  # tiles: more take minutes
MATMUL = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"

Figures = tuple[float, int, int, int]


def search(program: Program, rows: int, columns: int, way: str) -> Figures:
    """Returns (seconds, e-nodes, e-classes, iterations) of one saturation."""
    target, how = gl.SystolicArray(rows, columns), Way(blocking=way)
    started = time.perf_counter()
    if way == "tile-loops":
        layers = distinct_layers(program)
        nodes = program_nodes(*layers.body, *layers.products)
    else:
        nodes = program_nodes(program.term, *program.layers.values())
    request = Request.of(nodes, of_families(target.families(how, nodes)), target.rule_parameters(), Limits())
    run = Saturation(request)
    run.run()
    snapshot = run.snapshot(program.tensors)
    assert run.progress.stopped == "saturated"
    return time.perf_counter() - started, snapshot.e_nodes, snapshot.e_classes, run.progress.iterations


def tiles(program: Program, rows: int, columns: int) -> int:
    """Counts the tiles of the baseline mapping."""
    array = gl.SystolicArray(rows, columns).array
    found = [product_sizes(product) for product in program.layers.values()]
    return sum(int(array.tiled(s.groups, s.m, s.k, s.n).tiles) for s in found)


def cases() -> list[tuple[str, int, Program, int, int]]:
    """Yields (series, what grows, program, rows, columns)."""
    found = []
    for side in (1, 2, 4, 8, 16, 32, 64, 128):
        sizes = {"a": (49, 64 * side), "b": (64 * side, 64 * side)}
        found.append(("tiles of one layer", side * side, gl.parse(MATMUL, shapes=sizes), 64, 64))
    found += [("different layers in a chain", n, dense_chain(n, 8), 64, 64) for n in (1, 2, 4, 8, 16, 32, 64)]
    found += [("equal layers in a chain", n, dense_chain(n, 0), 64, 64) for n in (1, 2, 4, 8, 16, 32, 64)]
    network = gl.models.mobilenet_v1()
    for rows, columns in ((8, 8), (16, 16), (32, 32), (24, 40), (64, 64), (128, 32), (32, 128), (128, 128), (256, 256)):
        found.append((f"mobilenet-v1 on {rows}x{columns}", tiles(network, rows, columns), network, rows, columns))
    return found


def dense_chain(layers: int, step: int) -> Program:
    """Builds dense layers with separate weights, each `step` wider than the one before, with relu between them."""
    builder = Builder("chain")
    x = builder.input("x", (49, 512))
    for i in range(layers):
        k, n = 512 + step * i, 512 + step * (i + 1)
        x = builder.relu(builder.linear(x, builder.constant(f"w{i}", (n, k))))
    return builder.finish(x)


def main() -> None:
    """Measure, print and write the table and the plot."""
    table: list[tuple[str, int, str, float, int, int, int]] = []
    for series, size, program, rows, columns in cases():
        ways = [way for way in WAYS if way == "tile-loops" or tiles(program, rows, columns) <= UNROLLED_AT_MOST]
        runs: dict[str, list[Figures]] = {way: [] for way in ways}
        for _ in range(RUNS):
            for way in ways:
                runs[way].append(search(program, rows, columns, way))
        for way in ways:
            seconds = statistics.median(figures[0] for figures in runs[way])
            table.append((series, size, way, round(seconds, 3), *runs[way][0][1:]))
            print(f"{series:<30}{size:>8} {way:<7}{seconds:>8.3f} s{runs[way][0][1]:>9} e-nodes", flush=True)
    RESULTS.mkdir(exist_ok=True)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, egglog {version('egglog')}"
    with open(RESULTS / "bench_saturate.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["series", "size", "blocking", "median seconds", "e-nodes", "e-classes", "iterations", machine])
        writer.writerows(table)
    plot(table, machine)


def plot(table: list[tuple[str, int, str, float, int, int, int]], machine: str) -> None:
    """Plots seconds above, e-nodes below; one column for each growing quantity."""
    from matplotlib.figure import Figure

    names = ("tiles of one layer", "different layers in a chain", "equal layers in a chain")
    figure = Figure(figsize=(13, 6.5), layout="constrained")
    panels = figure.subplots(2, len(names), sharex="col")
    looks = {
        "tile-loops": {"marker": "o", "color": "black"},
        "unrolled-tiles": {"marker": "s", "color": "0.6", "linestyle": "--"},
    }
    for column, name in enumerate(names):
        for row, (place, what) in enumerate(((3, "seconds"), (4, "e-nodes"))):
            panel = panels[row][column]
            for way, look in looks.items():
                points = [(r[1], r[place]) for r in table if r[0] == name and r[2] == way]
                panel.plot([p[0] for p in points], [p[1] for p in points], label=way.replace("-", " "), **look)
            panel.set(ylabel=what, yscale="log", xscale="log" if column == 0 else "linear")
            panel.grid(color="0.88")
            if row:
                panel.set_xlabel(name)
    panels[0][0].legend()
    figure.suptitle(f"How the search grows on a 64x64 array ({machine})")
    figure.savefig(RESULTS / "bench_saturate.png", dpi=110)


if __name__ == "__main__":
    main()
