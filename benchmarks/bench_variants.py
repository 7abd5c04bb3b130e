"""Measures what variants save: bytes in secure computation, memory in budgets.

    python -m benchmarks.bench_variants

results/bench_variants_mpc.csv has the bytes of one party: `plain`, `Winograd everywhere` and `chosen`, in the layers
alone (`layers`) and in the whole network (`all`); `truncation` is that of `mpc:semi2k,truncation=`.

results/bench_variants_cpu.csv has single layers within memory budgets. `multiply-adds`, `peak` and `moved` (bytes) are
predicted; `measured peak` is what tracemalloc measures in the interpreter, and `ms` its time; `front` is the number of
variants on the Pareto front. Transposed convolutions are named by length, channels in and out, window / stride. Without
a search, the first one (16000 192->96) has 2,359,443,456 multiply-adds and a peak of 37,796,352 bytes. Seconds are of a
shared machine: only their ratios say much.
"""

from __future__ import annotations

import csv
import os
import statistics
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import glenside as gl
from glenside.execution.fit import processor
from glenside.ir.program import Program

RESULTS = Path(__file__).parent / "results"
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet-18": {"resolution": 32, "stem": "3x3"},
    "resnet-50": {"resolution": 32, "stem": "3x3"},
    "mobilenet-v1": {"resolution": 64},
    "unet-small": {},
    "vit-s-16": {},
}
# (length, channels in, channels out, window, stride): what users of transposed convolutions reported.
TRANSPOSED = ((16000, 192, 96, 4, 2), (3200, 384, 192, 10, 5), (48000, 64, 32, 4, 2))
BUDGETS = ("4MB", "8MB", "16MB", "32MB", None)
RUNS = 3


def layers() -> Iterator[tuple[str, Program]]:
    """Builds transposed convolutions of sound and of images, and convolutions of images."""
    for length, channels, filters, window, stride in TRANSPOSED:
        b = gl.Builder(f"transposed {length} {channels}->{filters} {window}/{stride}")
        w = b.constant("w", (channels, filters, window))
        yield b.name, b.finish(b.conv_transpose(b.input("x", (1, channels, length)), w, strides=stride, name="layer"))
    b = gl.Builder("transposed 64x64 64->64 4x4/2")
    w = b.constant("w", (64, 64, 4, 4))
    yield b.name, b.finish(b.conv_transpose(b.input("x", (1, 64, 64, 64)), w, strides=2, padding=1, name="layer"))
    for channels, size in ((64, 112), (256, 28), (3, 224)):
        b = gl.Builder(f"conv {size}x{size} {channels}->{max(channels, 32)} 3x3")
        w = b.constant("w", (max(channels, 32), channels, 3, 3))
        yield b.name, b.finish(b.conv(b.input("x", (1, channels, size, size)), w, padding=1, name="layer"))


def sent() -> Iterator[dict[str, Any]]:
    """Returns the bytes that each network sends."""
    for name, parameters in NETWORKS.items():
        for truncation in ("early", "late"):
            program = gl.models.load(name, **parameters)
            result = gl.optimize(program, gl.MPC(truncation=truncation, objectives=("bytes",)))
            report = result.report
            row: dict[str, Any] = {"network": name, **parameters, "truncation": truncation}
            for which, total in report.totals.items():
                between = report.between_layers[which]["bytes"]
                row |= {f"{which} layers": (total["bytes"] or 0) - (between or 0), f"{which} all": total["bytes"]}
            row |= {"e-nodes": report.e_nodes, "distinct": report.distinct, "checked": report.checked}
            seconds = report.seconds
            yield row | {"seconds": round(seconds["total"], 2), "search": round(seconds["saturate"], 2)}


def measured(program: Program, values: dict[str, Any]) -> tuple[float, int]:
    """Returns the median seconds of a run, and its peak allocated bytes by tracemalloc."""
    from glenside.semantics.interpreter import evaluate

    ready = gl.fold(program.with_constants({n: v for n, v in values.items() if n in program.constants_declared}))
    given = {**ready.constants, **{n: values[n] for n in ready.inputs}}
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        evaluate([ready.term], given)
        seconds.append(time.perf_counter() - started)
    tracemalloc.start()
    evaluate([ready.term], given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return statistics.median(seconds), peak


def held() -> Iterator[dict[str, Any]]:
    """Returns the memory of each layer, by variant and budget."""
    random = np.random.default_rng(0)
    for name, program in layers():
        values = {n: random.standard_normal(t.dims, np.float32) for n, t in program.tensors.items()}
        for budget in BUDGETS:
            row: dict[str, Any] = {"layer": name, "budget": budget or "none"}
            try:
                result = gl.optimize(program, gl.CPU(budget))
            except gl.GlensideError as error:
                yield row | {"variant": str(error)}
                continue
            chosen = result.report.layers[0].chosen
            seconds, peak = measured(result.program, values)
            row |= {"variant": chosen.label, **chosen.measures, "measured peak": peak, "ms": round(1e3 * seconds, 1)}
            yield row | {"front": len(result.report.layers[0].front), "search": result.report.seconds["saturate"]}


def write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Write rows as they are measured; the columns are those that any row has."""
    found = []
    for row in rows:
        print(row, flush=True)
        found.append(row)
    columns = list(dict.fromkeys(key for row in found for key in row))
    with path.open("w", newline="") as file:
        file.write(f"# {processor()}, {os.cpu_count()} processors, shared\n")
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    write(RESULTS / "bench_variants_mpc.csv", sent())
    write(RESULTS / "bench_variants_cpu.csv", held())
