"""Networks as compiled C beside onnxruntime: as they are, with what the search found, and as plain loops.

Run from the root of the repository: python -m benchmarks.bench_native. Writes results/bench_native.csv. The networks
are ONNX files of standard operators, batch norms folded, random weights, batch 1, float32, written here. onnxruntime
has all of its optimizations on, and its threads stop spinning after a run, or they would take a core from what comes
next. All are run in turn, with a pause between them; figures are medians of 25 rounds, ratios medians of those of each
round. Plain loops are run three times. Shared machines are noisy: compare within a row.
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
from onnx import TensorProto, helper, numpy_helper, save

import glenside as gl

RESULTS = Path(__file__).parent / "results"
ROUNDS, PAUSE = 25, 0.01
BALANCE = 2.0


class Network:
    """An ONNX graph that grows by standard operators."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.draw = np.random.default_rng(0)

    def constant(self, dims: tuple[int, ...], scale: float) -> str:
        """A new tensor of random numbers."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array((self.draw.standard_normal(dims) * scale).astype(np.float32), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """What a new node gives."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def conv(
        self, x: str, given: int, made: int, window: int, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> str:
        """A convolution with a bias, and a relu."""
        taps = given // groups * window * window
        weight = self.constant((made, given // groups, window, window), taps**-0.5)
        pads = [window // 2] * 4
        sizes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": pads, "group": groups}
        found = self.node("Conv", x, weight, self.constant((made,), 0.1), **sizes)
        return self.node("Relu", found) if relu else found

    def classes(self, x: str, given: int) -> str:
        """The mean of each channel, and a product."""
        flat = self.node("Flatten", self.node("GlobalAveragePool", x))
        weight = self.constant((1000, given), given**-0.5)
        return self.node("Gemm", flat, weight, self.constant((1000,), 0.1), transB=1)

    def save(self, result: str, path: Path) -> None:
        """Write it as a file."""
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 224, 224))
        made = helper.make_tensor_value_info(result, TensorProto.FLOAT, (1, 1000))
        graph = helper.make_graph(self.nodes, path.stem, [given], [made], self.weights)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def mobilenet_v1(path: Path) -> None:
    """28 layers, 13 of them depthwise."""
    net, channels = Network(), 32
    x = net.conv("x", 3, 32, 3, 2)
    sizes = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for made, stride in sizes:
        x = net.conv(x, channels, channels, 3, stride, groups=channels)
        x, channels = net.conv(x, channels, made, 1), made
    net.save(net.classes(x, channels), path)


def _resnet(blocks: tuple[int, ...], wide: int, path: Path) -> None:
    net, channels = Network(), 64
    pooled = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    x = net.node("MaxPool", net.conv("x", 3, 64, 7, 2), **pooled)
    for stage, count in enumerate(blocks):
        inner, made = 64 << stage, (64 << stage) * wide
        for block in range(count):
            stride = 2 if stage and not block else 1
            kept = x if (channels, stride) == (made, 1) else net.conv(x, channels, made, 1, stride, relu=False)
            if wide > 1:
                y = net.conv(net.conv(x, channels, inner, 1), inner, inner, 3, stride)
                y = net.conv(y, inner, made, 1, relu=False)
            else:
                y = net.conv(net.conv(x, channels, inner, 3, stride), inner, made, 3, relu=False)
            x, channels = net.node("Relu", net.node("Add", y, kept)), made
    net.save(net.classes(x, channels), path)


NETWORKS: dict[str, Callable[[Path], None]] = {
    "mobilenet-v1": mobilenet_v1,
    "resnet-18": lambda path: _resnet((2, 2, 2, 2), 1, path),
    "resnet-50": lambda path: _resnet((3, 4, 6, 3), 4, path),
}


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
    x = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    begin = time.perf_counter()
    as_it_is = gl.compile(program)
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    found = gl.optimize(program, gl.CPU(balance=BALANCE))
    searched = time.perf_counter() - begin
    chosen = gl.compile(found.program)
    plain = gl.compile(program, machine="plain")
    slow = statistics.median(_timed(plain, x) for _ in range(3))
    rows = []
    for threads in (1, 2):
        runs = {
            "onnxruntime": _session(path, threads),
            "as it is": lambda x, n=threads: as_it_is(x, threads=n),
            "chosen": lambda x, n=threads: chosen(x, threads=n),
        }
        want = runs["onnxruntime"](x)
        wrong = {k: float(np.abs(run(x) - want).max() / np.abs(want).max()) for k, run in runs.items()}
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
