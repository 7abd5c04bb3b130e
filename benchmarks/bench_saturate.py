"""How the search grows: seconds and e-nodes against the number of layers, of tiles, and over array shapes.

Run from the root of the repository: python -m benchmarks.bench_saturate. Writes results/bench_saturate.csv and .png.
Each figure is the median of three runs in this process: declarations, insertion, saturation and snapshot together.
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
from glenside.builder import Builder
from glenside.egraph.encode import program_nodes
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.ir.program import Program
from rewrites import of_families

RESULTS = Path(__file__).parent / "results"
RUNS = 3
MATMUL = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"


def measured(program: Program, rows: int, columns: int) -> tuple[float, int, int, int]:
    """(median seconds, e-nodes, e-classes, iterations) of one saturation."""
    target = gl.SystolicArray(rows, columns)
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        request = Request.of(
            program_nodes(program.term), of_families(target.families["slices"]), target.rule_parameters(), Limits()
        )
        search = Saturation(request)
        search.run()
        snapshot = search.snapshot(program.tensors)
        seconds.append(time.perf_counter() - started)
        assert search.progress.stopped == "saturated"
    return statistics.median(seconds), snapshot.e_nodes, snapshot.e_classes, search.progress.iterations


def cases() -> list[tuple[str, int, Program, int, int]]:
    """(series, what grows, program, rows, columns)."""
    network = gl.models.mobilenet_v1()
    products = list(network.layers.values())
    found = [("layers", n, Program(products[n - 1]), 64, 64) for n in (1, 2, 4, 7, 11, 14, 18, 21, 25, 28)]
    found += [("equal layers in a chain", n, dense_chain(n), 64, 64) for n in (1, 2, 4, 8, 16, 28, 56)]
    for side in (2, 4, 8, 16, 32, 64):
        sizes = {"a": (49, 64 * side), "b": (64 * side, 64 * side)}
        found.append(("tiles of one layer", side * side, gl.parse(MATMUL, shapes=sizes), 64, 64))
    for rows, columns in ((32, 32), (24, 40), (64, 64), (128, 32), (32, 128), (128, 128), (256, 256)):
        found.append((f"mobilenet-v1 on {rows}x{columns}", rows * columns, network, rows, columns))
    return found


def dense_chain(layers: int) -> Program:
    """Dense layers of 64 tiles each, every one with weights of its own, relu between them."""
    builder = Builder("chain")
    x = builder.input("x", (49, 512))
    for i in range(layers):
        x = builder.relu(builder.linear(x, builder.constant(f"w{i}", (512, 512))))
    return builder.finish(x)


def main() -> None:
    """Measure, print and write the table and the plot."""
    table = []
    for series, size, program, rows, columns in cases():
        seconds, e_nodes, e_classes, iterations = measured(program, rows, columns)
        table.append((series, size, f"{seconds:.3f}", e_nodes, e_classes, iterations))
        print(f"{series:<28}{size:>7}{seconds:>9.3f} s{e_nodes:>9} e-nodes{iterations:>4} iterations", flush=True)
    RESULTS.mkdir(exist_ok=True)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, egglog {version('egglog')}"
    with open(RESULTS / "bench_saturate.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["series", "size", "median seconds", "e-nodes", "e-classes", "iterations", machine])
        writer.writerows(table)
    plot(table, machine)


def plot(table: list[tuple[str, int, str, int, int, int]], machine: str) -> None:
    """One panel for each thing that grows: seconds on the left axis, e-nodes on the right."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(14, 4), layout="constrained")
    for panel, series in zip(panels, ("layers", "equal layers in a chain", "tiles of one layer"), strict=True):
        rows = [row for row in table if row[0] == series]
        sizes = [row[1] for row in rows]
        (one,) = panel.plot(sizes, [float(row[2]) for row in rows], "o-", color="tab:blue", label="seconds")
        other = panel.twinx()
        (two,) = other.plot(sizes, [row[3] for row in rows], "s--", color="tab:orange", label="e-nodes")
        panel.set(
            xlabel="first layers of MobileNetV1" if series == "layers" else series, ylabel="seconds", ylim=(0, None)
        )
        other.set(ylabel="e-nodes", ylim=(0, None))
        panel.legend(handles=[one, two], loc="upper left")
    figure.suptitle(f"How saturation grows on a 64x64 array ({machine})")
    figure.savefig(RESULTS / "bench_saturate.png", dpi=110)


if __name__ == "__main__":
    main()
