"""Measures ONNX networks from file to file: import, search, check, export, and both files in onnxruntime.

    python -m benchmarks.bench_onnx

Networks are those of the onnx package, MobileNetV2 and BERT-base (128 words), with random weights, on a 64x64 array.
Each run is a fresh process. Figures are medians of three runs if the first needs less than 5 s, else of one. Columns:

- `import` to `export`: seconds of each step; `optimize` includes search and check.
- `peak-megabytes`: the larger of the process and its search, before export.
- `original-run`, `exported-run`: seconds of a file in onnxruntime, after one run that does not count.

The committed table was measured on a shared machine: seconds are upper estimates.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.processes import answer, peak_megabytes
from glenside.egraph.process import end_idle

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "oracles"))

RESULTS = Path(__file__).parent / "results"
SHORT = 5.0
DIMS = {"mobilenet_v2": {"batch": 1}, "bert-base": {"batch": 1, "sequence": 128}}
MEASURED = "import search check optimize export".split()


def names() -> dict[str, list[str]]:
    """Returns the names of all networks."""
    from onnx_networks import LIGHT

    return {"names": [*(path.stem for path in LIGHT), *DIMS]}


def make(name: str, path: str) -> dict[str, int]:
    """Write the network as a file."""
    import onnx_images as images
    import onnx_sequences as sequences
    from onnx_networks import LIGHT, weighted

    made: dict[str, Callable[[], Any]] = {"mobilenet_v2": images.mobilenet_v2, "bert-base": sequences.bert}
    light = {file.stem: file for file in LIGHT}
    model = made[name]() if name in made else weighted(light[name])
    return {"bytes": Path(path).write_bytes(model.SerializeToString())}


def optimize(name: str, path: str, out: str) -> dict[str, Any]:
    """Returns the seconds of each step of one run, and its memory."""
    import glenside as gl
    from glenside.ir.term import postorder

    started = time.perf_counter()
    program = gl.load(path, dims=DIMS.get(name))
    loaded = time.perf_counter()
    result = gl.optimize(program, gl.SystolicArray(64, 64))
    optimized = time.perf_counter()
    end_idle()
    peak = peak_megabytes()
    gl.save(result.program, out)
    exported = time.perf_counter() - optimized
    report = result.report
    return {
        "import": loaded - started,
        "search": report.seconds["fold"] + report.seconds["saturate"],
        "check": report.seconds["check"],
        "optimize": optimized - loaded,
        "export": exported,
        "peak-megabytes": peak,
        "nodes": sum(1 for _ in postorder(program.term)),
        "layers": len(report.layers),
        "mapped": report.mapped,
        "checked": report.checked,
    }


def execute(name: str, path: str, original: str) -> dict[str, float]:
    """Times a file in onnxruntime, on inputs of the original's shapes as the file declares them."""
    import onnx
    import onnxruntime
    from onnx_networks import random_inputs

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # of the files of the onnx package it says much
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = random_inputs(onnx.load(original), DIMS.get(name, {}))
    inputs = {each.name: given[each.name] for each in session.get_inputs()}
    runs: list[float] = []
    session.run(None, inputs)
    while not runs or (len(runs) < 3 and runs[0] < SHORT):
        started = time.perf_counter()
        session.run(None, inputs)
        runs.append(time.perf_counter() - started)
    return {"seconds": statistics.median(runs)}


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Returns all figures of a network."""
    path, out = str(folder / "network.onnx"), str(folder / "optimized.onnx")
    asked("make", name, path)
    runs: list[dict[str, Any]] = []
    while not runs or (len(runs) < 3 and runs[0]["import"] + runs[0]["optimize"] + runs[0]["export"] < SHORT):
        runs.append(asked("optimize", name, path, out))
    found = dict(runs[0], runs=len(runs))
    found |= {what: f"{statistics.median(run[what] for run in runs):.2f}" for what in MEASURED}
    found["original-run"] = f"{asked('execute', name, path, path)['seconds']:.3f}"
    found["exported-run"] = f"{asked('execute', name, out, path)['seconds']:.3f}"
    found["megabytes"] = f"{Path(path).stat().st_size / 1e6:.0f}"
    found["exported-megabytes"] = f"{sum(file.stat().st_size for file in folder.glob('optimized*')) / 1e6:.0f}"
    return found


def asked(*arguments: str) -> dict[str, Any]:
    """Runs a step in its own process."""
    found = answer("bench_onnx", *arguments, seconds=600)
    if found is None:
        raise SystemExit(f"{' '.join(arguments)} took more than 600 s")
    return found


def main() -> None:
    """Measure, print and write the table."""
    machine = f"{os.cpu_count()} cores, shared, Python {platform.python_version()}, egglog {version('egglog')}"
    machine += f", onnxruntime {version('onnxruntime')}"
    words = "megabytes nodes layers mapped checked runs".split() + MEASURED
    words += "peak-megabytes exported-megabytes original-run exported-run".split()
    print("network", *words)
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / "bench_onnx.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["network", *words, machine])
        for name in asked("names")["names"]:
            with tempfile.TemporaryDirectory() as folder:
                found = measure(name, Path(folder))
            row = (name, *(found[word] for word in words))
            writer.writerow(row)
            file.flush()
            print(*row, flush=True)


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "names": names,
    "make": make,
    "optimize": optimize,
    "execute": execute,
}

if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(STEPS[sys.argv[1]](*sys.argv[2:])))
    else:
        main()
