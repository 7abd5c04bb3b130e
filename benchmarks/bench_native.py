"""Networks as compiled C beside onnxruntime: as they are, with what the search found, and as plain loops.

Run from the root of the repository: python -m benchmarks.bench_native. Writes results/bench_native.csv. The networks
are the ONNX files of `benchmarks.networks`. onnxruntime has all of its optimizations on, and its threads stop spinning
after a run, or they would take a core from what comes next. All are run in turn, with a pause between them; figures are
medians of 25 rounds, ratios medians of those of each round. Plain loops are run once. Shared machines are noisy:
compare within a row.
"""

from __future__ import annotations

import csv
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import glenside as gl
from benchmarks.networks import NETWORKS

RESULTS = Path(__file__).parent / "results"
ROUNDS, PAUSE = 25, 0.01
BALANCE = 2.0


def _session(path: Path, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def _timed(run: Callable[[np.ndarray], Any], x: np.ndarray) -> float:
    time.sleep(PAUSE)
    begin = time.perf_counter()
    run(x)
    return time.perf_counter() - begin


def measure(name: str, path: Path) -> list[dict[str, Any]]:
    """A row for each number of threads."""
    program = gl.load(path)
    (given,) = (t for t in program.tensors.values() if not t.constant)
    draw = np.random.default_rng(1)
    words = given.dtype == "int64"
    x = draw.integers(0, 5000, given.dims) if words else draw.standard_normal(given.dims).astype(np.float32)
    begin = time.perf_counter()
    as_it_is = gl.compile(program)
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    found = gl.optimize(program, gl.CPU(balance=BALANCE))
    searched = time.perf_counter() - begin
    chosen = gl.compile(found.program)
    plain = gl.compile(program, machine="plain")
    slow = _timed(plain, x)
    rows = []
    for threads in (1, 2):
        runs = {
            "onnxruntime": _session(path, threads),
            "as it is": lambda x, n=threads: as_it_is(x, threads=n),
            "chosen": lambda x, n=threads: chosen(x, threads=n),
        }
        want = runs["onnxruntime"](x)
        wrong = {k: float(np.abs(run(x) - want).max() / np.abs(want).max()) for k, run in runs.items()}
        if max(wrong.values()) > 1e-4:
            raise SystemExit(f"{name} is wrong: {wrong}")
        seconds: dict[str, list[float]] = {k: [] for k in runs}
        for _ in range(ROUNDS + 2):
            for k, run in runs.items():
                seconds[k].append(_timed(run, x))
        kept = {k: values[2:] for k, values in seconds.items()}
        row: dict[str, Any] = {"network": name, "threads": threads, "plain loops ms": round(1e3 * slow, 1)}
        row |= {f"{k} ms": round(1e3 * statistics.median(values), 2) for k, values in kept.items()}
        for k in ("as it is", "chosen"):
            pairs = zip(kept["onnxruntime"], kept[k], strict=True)
            row[f"onnxruntime over {k}"] = round(statistics.median(a / b for a, b in pairs), 2)
            row[f"difference {k}"] = f"{wrong[k]:.1e}"
        row |= {"equal": found.check().ok, "search s": round(searched, 1), "compile s": round(compiled, 1)}
        row |= {"arena bytes": chosen.arena.size, "bound": chosen.arena.bound}
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    """Measure the networks that are named, all by default."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLENSIDE_CACHE"] = folder  # nothing is kept from before
        for name in sys.argv[1:] or NETWORKS:
            path = Path(folder) / f"{name}.onnx"
            NETWORKS[name](path)
            rows += measure(name, path)
    with (RESULTS / "bench_native.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {os.cpu_count()} processors, onnxruntime {version('onnxruntime')}\n")
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
