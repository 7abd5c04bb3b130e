"""Measures the search for layouts: copies before and after, e-nodes, seconds and memory.

    python -m benchmarks.bench_layout

Writes results/bench_layout.csv, and results/bench_layout_growth.csv, in which the number of residual blocks grows. Each
search is a process of its own, reads the program as text without weights, and may use 60 s. Columns:

- `unit`: the layout of `glenside layout --unit`; `nhwc-none` is nhwc with `--loads none --stores none`.
- `copies`, `megabytes`, `inside`: number of copies, their size in 10^6 bytes, and the size of those that are not of the
  network's own inputs and outputs; `before` and `after` the search.
- `nodes`: terms of the program.
- `seconds` include extraction. `processor-seconds` and `peak-megabytes` are those of the search alone.

The committed table was measured on a shared machine: seconds by the clock are upper estimates, several times those of
an idle machine.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import resource
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import glenside as gl
from benchmarks.onnx_architectures import quantized
from benchmarks.processes import answer, peak_megabytes
from glenside.egraph.process import end_idle
from glenside.ir.program import Program

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "oracles"))

RESULTS = Path(__file__).parent / "results"
SECONDS = 60.0
UNITS: dict[str, Callable[[], Any]] = {
    "nhwc": partial(gl.ConvolutionUnit, "nhwc"),
    "nhwc-none": partial(gl.ConvolutionUnit, "nhwc", loads="none", stores="none"),
    "nchw": partial(gl.ConvolutionUnit, "nchw"),
}
BUILT_IN = "mobilenet-v1 mobilenet-v2 mobilenet-v3-large resnet-18 resnet-50 unet-small bert-base vit-s-16".split()
LIGHT = "resnet50 densenet121 inception_v1 inception_v2 squeezenet shufflenet".split()
BLOCKS = (10, 20, 40, 80, 160)
WORDS = "copies-before megabytes-before inside-before copies-after megabytes-after inside-after nodes e-nodes "
WORDS += "iterations seconds processor-seconds peak-megabytes stopped"


def imported(model: Any, dims: dict[str, int]) -> Program:
    """Returns the program of a model, loaded from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return gl.load(path, dims=dims)


def networks() -> Iterable[tuple[str, Program]]:
    """Yields (name, program) of each network, built on demand."""
    import onnx_images as images
    from onnx_networks import LIGHT as PATHS
    from onnx_networks import weighted

    for layout in ("NCHW", "NHWC"):
        for mode in ("CRD", "DCR"):
            model = images.super_resolution(height=720, width=1280, mode=mode, layout=layout)
            yield f"super-resolution {mode} {layout}", imported(model, {"N": 1})
    for name in BUILT_IN:
        yield name, gl.models.load(name)
    mobilevit = partial(images.mobilevit, channels=32, depth=144, heads=4, size=32)
    yield "mobilevit", imported(mobilevit(), {})
    yield "mobilevit, int8 qdq", imported(quantized(mobilevit, "qdq"), {})
    for path in PATHS:
        if path.stem.removeprefix("light_") in LIGHT:
            yield path.stem, imported(weighted(path), {})


def residuals() -> Iterable[tuple[str, Program]]:
    """Yields networks of growing numbers of blocks with skip connections."""
    import onnx_images as images

    for blocks in BLOCKS:
        yield str(blocks), imported(images.residual(blocks=blocks), {"N": 1})


def measure(path: str, unit: str) -> dict[str, Any]:
    """Measures one search; megabytes are 10^6 bytes."""
    from glenside.ir.term import postorder

    program = gl.load(path)
    report = gl.optimize(program, UNITS[unit](), limits=gl.Limits(seconds=SECONDS), verify=False).report
    found: dict[str, Any] = {}
    for when, taken in (("before", report.baseline), ("after", report.total)):
        found[f"copies-{when}"] = taken["copies made"]
        found[f"megabytes-{when}"] = f"{(taken['copies'] or 0) / 1e6:.2f}"
        found[f"inside-{when}"] = f"{(taken['copies inside'] or 0) / 1e6:.2f}"
    found |= {"nodes": sum(1 for _ in postorder(program.term)), "e-nodes": report.e_nodes}
    found |= {"iterations": report.iterations, "seconds": f"{report.seconds['total']:.2f}", "stopped": report.stopped}
    end_idle()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["processor-seconds"] = f"{used.ru_utime + used.ru_stime:.2f}"
    return found | {"peak-megabytes": peak_megabytes(resource.RUSAGE_CHILDREN)}


def rows(found: Iterable[tuple[str, Program]], units: Iterable[str]) -> Iterable[tuple[object, ...]]:
    """Yields (name, unit, figures) of each network on each unit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.glenside"
        for name, program in found:
            gl.save(replace(program, constants={}), path)
            for unit in units:
                figures = answer("bench_layout", str(path), unit, seconds=2 * SECONDS) or {"stopped": "killed"}
                row = (name, unit, *(figures.get(word, "") for word in WORDS.split()))
                print(*row, flush=True)
                yield row


def write(name: str, made: Iterable[tuple[object, ...]]) -> None:
    """Prints the table, row by row as rows are measured."""
    machine = f"{os.cpu_count()} cores, shared, Python {platform.python_version()}, egglog {version('egglog')}"
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["network" if name == "bench_layout" else "blocks", "unit", *WORDS.split(), machine])
        for row in made:
            writer.writerow(row)
            file.flush()


def main() -> None:
    """Measure, print and write the tables."""
    print("network unit", WORDS)
    write("bench_layout", rows(networks(), UNITS))
    write("bench_layout_growth", rows(residuals(), ["nhwc"]))


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        main()
