"""Times compiled resizes of images beside onnxruntime, in turn on one thread.

    python -m benchmarks.bench_resizes

`time_ratio` is the median of our time over onnxruntime's, of ROUNDS pairs; `predicted_ratio` is our predicted time over
our shortest.
"""

from __future__ import annotations

import csv
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import glenside as gl

RESULTS = Path(__file__).parent / "results" / "bench_resizes.csv"
SHAPES = ((1, 64, 56, 56), (1, 256, 28, 28), (1, 3, 224, 224), (1, 24, 33, 31))
MODES = (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners"), ("cubic", "half_pixel"))
SCALES = (2.0, 1.5, 0.5)
ROUNDS = 30


def main() -> None:
    """Print and write a row for each shape, mode and scale."""
    with RESULTS.open("w", newline="", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        writer: csv.DictWriter[str] | None = None
        for shape, (mode, coordinates), scale in product(SHAPES, MODES, SCALES):
            row = _row(Path(folder) / "resize.onnx", shape, mode, coordinates, scale)
            writer = writer or csv.DictWriter(file, list(row), lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            writer.writerow(row)
            print(row, flush=True)


def _row(path: Path, shape: tuple[int, ...], mode: str, coordinates: str, scale: float) -> dict[str, Any]:
    import onnxruntime

    _save(path, shape, mode, coordinates, scale)
    f, options = gl.compile(gl.load(path)), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    x, out = np.random.default_rng(0).standard_normal(shape).astype(np.float32), f.results()
    pairs = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        f(x, out=out, threads=1)
        middle = time.perf_counter()
        session.run(None, {"x": x})
        pairs.append((middle - begin, time.perf_counter() - middle))
    ours = min(own for own, _ in pairs)
    return {
        "shape": " ".join(map(str, shape)),
        "mode": f"{mode} {coordinates}",
        "scale": scale,
        "microseconds": f"{1e6 * median(own for own, _ in pairs):.0f}",
        "onnxruntime_microseconds": f"{1e6 * median(other for _, other in pairs):.0f}",
        "time_ratio": f"{median(own / other for own, other in pairs):.2f}",
        "predicted_ratio": f"{sum(f.predicted()) / ours:.2f}",
    }


def _save(path: Path, shape: tuple[int, ...], mode: str, coordinates: str, scale: float) -> None:
    """Saves one Resize of an image (N C H W) as an ONNX file."""
    import onnx
    from onnx import TensorProto, helper

    how = {"nearest_mode": "floor"} if mode == "nearest" else {}
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=coordinates, **how
    )
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    scales = helper.make_tensor("s", TensorProto.FLOAT, [4], [1, 1, scale, scale])
    graph = helper.make_graph([node], "resize", inputs, outputs, [scales])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


if __name__ == "__main__":
    main()
