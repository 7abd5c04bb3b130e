"""Times quantized networks as compiled C and in onnxruntime, from the same files.

    python -m benchmarks.bench_quantized

The networks of `benchmarks.networks` are quantized by onnxruntime.quantization.quantize_static: QuantizeLinear and
DequantizeLinear around each node, int8 weights with a scale for each channel, uint8 or int8 activations, calibrated on
random numbers. Runs alternate, with a pause between them. onnxruntime has all optimizations on, and its threads stop
spinning after a run. Columns, of 25 rounds:

- `least ms`, `ms`, `processor ms`: least and median time, and time of processors, which other work changes least and
  which counts waiting threads.
- `onnxruntime over compiled`, `of processor`: median ratios of rounds. `least over least`: ratio of the least times.
- `apart`: the largest difference in steps of the last quantization. `differ`: share of results that differ. Both
  programs round, and may round where the other one does not.

Shared machines are noisy: compare within a row.
"""

from __future__ import annotations

import csv
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import glenside as gl
from benchmarks.networks import NETWORKS

RESULTS = Path(__file__).parent / "results"
ROUNDS, PAUSE = 25, 0.01
NAMES = ("mobilenet-v1", "resnet-50")
ACTIVATIONS = {"uint8": QuantType.QUInt8, "int8": QuantType.QInt8}
IMAGES = 4


class _Images(CalibrationDataReader):
    """Draws a few random images."""

    def __init__(self) -> None:
        self.rest = iter([_image(seed) for seed in range(IMAGES)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.rest, None)


def _image(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 3, 224, 224)).astype(np.float32)}


def quantized(path: Path, activations: str) -> Path:
    """Writes the quantized file of a network next to the original."""
    found = path.with_name(f"{path.stem}-{activations}.onnx")
    logging.disable(logging.WARNING)  # it advises to fold batch norms first, of which there are none
    quantize_static(
        str(path),
        str(found),
        _Images(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=ACTIVATIONS[activations],
        weight_type=QuantType.QInt8,
    )
    return found


def _session(path: Path, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def _timed(run: Callable[[np.ndarray], Any], x: np.ndarray) -> tuple[float, float]:
    """Returns wall-clock seconds and processor seconds."""
    time.sleep(PAUSE)
    begin, used = time.perf_counter(), time.process_time()
    run(x)
    return time.perf_counter() - begin, time.process_time() - used


def measure(name: str, activations: str, floats: Path, path: Path) -> Iterator[dict[str, Any]]:
    """Returns a row for each number of threads."""
    x = _image(IMAGES)["x"]
    program = gl.load(path)
    begin = time.perf_counter()
    compiled = gl.compile(program, "none")
    taken = time.perf_counter() - begin
    for threads in (1, 2):
        runs = {
            "onnxruntime float": _session(floats, threads),
            "onnxruntime": _session(path, threads),
            "compiled": lambda x, n=threads: compiled(x, threads=n),
        }
        want, got = runs["onnxruntime"](x), runs["compiled"](x)
        step = np.diff(np.unique(np.concatenate([want, got], axis=None))).min()
        apart = np.abs(want - got) / step
        seconds: dict[str, list[tuple[float, float]]] = {k: [] for k in runs}
        for _ in range(ROUNDS + 2):
            for k, run in runs.items():
                seconds[k].append(_timed(run, x))
        kept = {k: values[2:] for k, values in seconds.items()}
        row: dict[str, Any] = {"network": name, "activations": activations, "threads": threads}
        for k, values in kept.items():
            passed, used = zip(*values, strict=True)
            row |= {f"{k} least ms": round(1e3 * min(passed), 2), f"{k} ms": round(1e3 * statistics.median(passed), 2)}
            row[f"{k} processor ms"] = round(1e3 * statistics.median(used), 2)
        pairs = list(zip(kept["onnxruntime"], kept["compiled"], strict=True))
        row["onnxruntime over compiled"] = round(statistics.median(a[0] / b[0] for a, b in pairs), 2)
        row["least over least"] = round(min(kept["onnxruntime"])[0] / min(kept["compiled"])[0], 2)
        row["of processor"] = round(statistics.median(a[1] / b[1] for a, b in pairs), 2)
        row |= {"apart": round(float(apart.max())), "differ": f"{float((apart > 0.5).mean()):.3f}"}
        row |= {"compile s": round(taken, 1), "arena bytes": compiled.arena.size, "machine": compiled.report.machine}
        print(row, flush=True)
        yield row


def main() -> None:
    """Measure the networks that are named, two by default."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLENSIDE_CACHE"] = folder  # nothing is kept from before
        for name in sys.argv[1:] or NAMES:
            floats = Path(folder) / f"{name}.onnx"
            NETWORKS[name](floats)
            for activations in ACTIVATIONS:
                rows += measure(name, activations, floats, quantized(floats, activations))
    with (RESULTS / "bench_quantized.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {os.cpu_count()} processors, onnxruntime {version('onnxruntime')}\n")
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
