"""Times ONNX files and the files that Glenside writes for them, in onnxruntime.

    python -m benchmarks.bench_onnx_time [NETWORK ..]

Networks have random weights and batch 1: those of benchmarks.bench_native, of benchmarks.onnx_architectures, of the
tests at sizes of milliseconds, and of the onnx package. Both files run alternately on one thread, with all of
onnxruntime's optimizations. Columns:

- `way`: `saved` again, optimized for `cpu`, `layout`, or a `built in` model, which is compared with the file of
  standard operators, batch normalizations folded, that has its layers. A way that refuses a network has no figures.
- `nodes before`, `nodes`: nodes after onnxruntime's optimization, of the original and of the written file.
- `before ms`: time of the original, in processor time of that thread; median of 20 rounds.
- `ratio`: time of the written file over that of the original, median of rounds. `least`: ratio of the least times.
- `difference`: the largest difference of results.
"""

from __future__ import annotations

import csv
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import glenside as gl
from benchmarks import onnx_architectures as architectures
from benchmarks.networks import NETWORKS as NATIVE

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "oracles"))

import onnx_images as images
import onnx_sequences as sequences
from onnx_networks import LIGHT, random_inputs, weighted

RESULTS = Path(__file__).parent / "results"
ROUNDS, SHORT = 20, 0.008

FILES: dict[str, tuple[Callable[[], onnx.ModelProto], Mapping[str, int]]] = {
    "mobilenet-v2": (images.mobilenet_v2, {"batch": 1}),
    "u-net": (lambda: images.unet(base=16, resolution=128), {"N": 1}),
    "super-resolution": (lambda: images.super_resolution(height=64, width=64), {"N": 1}),
    "bert, 3 layers": (lambda: sequences.bert(layers=3, vocabulary=1000), {"batch": 1, "sequence": 128}),
    "vit, 3 layers": (lambda: sequences.vit(layers=3), {"batch": 1}),
    "lstm tagger": (lambda: sequences.lstm_tagger(hidden=64, depth=64), {"batch": 1, "length": 32}),
    "maxvit": (lambda: images.maxvit(blocks=2, channels=64, heads=2, counts=(4, 4), size=7), {}),
    "mobilevit": (lambda: images.mobilevit(channels=32, depth=64, heads=4, size=32), {}),
    "convnext": (architectures.convnext, {}),
    "gru tagger": (architectures.gru_tagger, {}),
    "decoder, 1 token": (architectures.decoder, {}),
    "decoder, 32 tokens": (lambda: architectures.decoder(tokens=32), {}),
    "generator": (architectures.generator, {}),
    "maxvit, int8 qdq": (lambda: architectures.quantized(FILES["maxvit"][0], "qdq"), {}),
    "generator, int8 qdq": (lambda: architectures.quantized(architectures.generator, "qdq"), {}),
    "mobilevit, int8 qoperator": (lambda: architectures.quantized(FILES["mobilevit"][0], "qoperator"), {}),
    "decoder, int8 dynamic": (lambda: architectures.quantized(architectures.decoder, "dynamic"), {}),
    **{path.stem: (lambda path=path: weighted(path), {}) for path in LIGHT if "vgg" not in path.stem},
}
BUILT_IN = {"mobilenet-v1": "mobilenet-v1", "resnet-18": "resnet-18", "resnet-50": "resnet-50"}
ROUTES: dict[str, Callable[[gl.Program], gl.Program]] = {
    "saved": lambda program: program,
    "cpu": lambda program: gl.optimize(program, gl.CPU(), verify=False).standard,
    "layout": lambda program: gl.optimize(program, gl.ConvolutionUnit("nhwc"), verify=False).standard,
}


def _session(path: Path, optimized: Path | None = None) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if optimized:
        options.optimized_model_filepath = str(optimized)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _nodes(path: Path, folder: Path) -> int:
    _session(path, folder / "optimized.onnx")
    return len(onnx.load(folder / "optimized.onnx", load_external_data=False).graph.node)


def _timed(session: Any, inputs: Mapping[str, Any], times: int) -> float:
    begin = time.thread_time()
    for _ in range(times):
        session.run(None, inputs)
    return (time.thread_time() - begin) / times


def compared(before: Path, after: Path, given: Mapping[str, Any], results: bool = True) -> dict[str, Any]:
    """Returns the ratio of times, and the difference of the results."""
    sessions = [_session(path) for path in (before, after)]
    inputs = [{each.name: given[each.name] for each in session.get_inputs()} for session in sessions]
    made = [session.run(None, own) for session, own in zip(sessions, inputs, strict=True)]
    times = max(1, min(200, int(SHORT / _timed(sessions[0], inputs[0], 1))))
    rounds = [
        [_timed(session, own, times) for session, own in zip(sessions, inputs, strict=True)] for _ in range(ROUNDS)
    ]
    least = [min(each) for each in zip(*rounds, strict=True)]
    differ = [
        np.abs(x - y).max() / max(np.abs(x).max(), 1e-9) for x, y in zip(*made, strict=True) if x.dtype.kind == "f"
    ]
    return {
        "before ms": f"{1e3 * statistics.median(before for before, _ in rounds):.3f}",
        "ratio": f"{statistics.median(after / before for before, after in rounds):.2f}",
        "least": f"{least[1] / least[0]:.2f}",
        "difference": f"{max(differ, default=0):.0e}" if results else "",
    }


def measure(name: str, folder: Path) -> list[dict[str, Any]]:
    """Returns a row for each way to rewrite the file, and one for the built-in model of the same layers."""
    path, dims = folder / "network.onnx", dict[str, int]()
    if name in NATIVE:
        NATIVE[name](path)
    else:
        make, found = FILES[name]
        path.write_bytes(make().SerializeToString())
        dims = dict(found)
    given, rows = random_inputs(onnx.load(path), dims), []
    program = gl.load(path, dims=dims)
    ways: dict[str, Callable[[], gl.Program]] = {
        way: lambda change=change: change(program) for way, change in ROUTES.items()
    }
    if name in BUILT_IN:
        ways["built in"] = lambda: gl.models.load(BUILT_IN[name])
    for way, make_program in ways.items():
        out = folder / "out.onnx"
        try:
            gl.save(make_program(), out)
        except gl.GlensideError as error:
            rows.append({**dict.fromkeys(rows[0], ""), "network": name, "way": way})
            print(name, way, error, flush=True)
            continue
        counts = {"nodes before": _nodes(path, folder), "nodes": _nodes(out, folder)}
        row = {"network": name, "way": way, **counts, **compared(path, out, given, way != "built in")}
        rows.append(row)
        print(*row.values(), flush=True)
    return rows


def write(rows: list[dict[str, Any]]) -> None:
    """Prints the table so far, and the median of each way."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row["ratio"]:
            ratios.setdefault(row["way"], []).append(float(row["ratio"]))
    said = ", ".join(f"{way} {statistics.median(found):.2f}" for way, found in ratios.items())
    machine = f"{os.cpu_count()} processors, shared, onnxruntime {version('onnxruntime')}"
    with (RESULTS / "bench_onnx_time.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {machine}; median ratios: {said}\n")
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Measure the networks that are named, all by default."""
    rows: list[dict[str, Any]] = []
    for name in sys.argv[1:] or (*NATIVE, *FILES):
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(name, Path(folder))
        write(rows)


if __name__ == "__main__":
    main()
