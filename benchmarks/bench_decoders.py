"""Times blocks of a decoder with small weights beside llama.cpp and onnxruntime, in turn, and its memory.

    pip install gguf xllamacpp onnx onnxruntime
    python -m benchmarks.bench_decoders [RESULTS.csv]

Two Llama blocks of 1B shape (2,048 wide, 8,192 inside, 32 heads, 8 of keys and values) with random weights and a
vocabulary of 512, from one GGUF file for both Glenside and llama.cpp. Of the last block both compute the attention's
output and the inner layer for the last token alone: times of one block would leave out most of a prompt. `ms` is the
median of one token after 128 others, and of a prompt of 128, over rounds in turn; `llama.cpp` and `onnxruntime` are
medians of their time over ours. onnxruntime runs the seven products of each block alone, for all rows, as MatMulNBits
of the same types with accuracy level 4 (int8 activations), and none of bfloat16. `memory` is by what a process of its
own grows when it has loaded and run, over the bytes of the file.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.decoder_files import Shape, llama_cpp, write_gguf
from benchmarks.timing import PAUSE, seconds

RESULTS = Path(__file__).parent / "results" / "bench_decoders.csv"
SHAPE = Shape(blocks=2, hidden=2048, heads=32, kv_heads=8, head=64, inner=8192, vocabulary=512)
PAST, ROWS, WRITTEN, ROUNDS, THREADS = 128, 128, 16, 9, (1, 2)
KINDS = {"Q4_0": ("int8", "float32"), "Q8_0": ("int8", "float32"), "BF16": ("float32",)}
"""Type of weights -> types of activations."""


def main() -> None:
    """Print and write a row for each type of weights, type of activations and number of threads."""
    if len(sys.argv) > 2:  # a process that measures its own memory
        print(json.dumps(_grown(*sys.argv[1:])))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, activations_of in KINDS.items():
            file = Path(folder) / f"{kind}.gguf"
            write_gguf(file, SHAPE, kind)
            memory = {name: _memory(name, file) for name in ("glenside", "llama.cpp")}
            for activations, threads in product(activations_of, THREADS):
                rows += _rows(file, kind, activations, threads, memory)
    with Path(*sys.argv[1:] or [RESULTS]).open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _rows(file: Path, kind: str, activations: str, threads: int, memory: Mapping[str, float]) -> list[dict[str, Any]]:
    import glenside as gl

    found = []
    cpp = llama_cpp(file, threads, PAST, WRITTEN)
    for what, rows, past in (("decode", 1, PAST + WRITTEN), ("prefill", ROWS, 16)):
        step = gl.compile(gl.load(file, dims={"rows": rows, "past": past}), "none", activations=activations)
        given: dict[str, Any] = {n: np.zeros(tuple(t.dims), np.float32) for n, t in step.program.inputs.items()}
        given |= {"tokens": np.full(rows, 300), "past": np.array(PAST if rows == 1 else 0)}
        theirs = _onnxruntime(kind, rows, threads) if kind != "BF16" else None
        count = WRITTEN if rows == 1 else 1
        taken = []
        for _ in range(ROUNDS):
            own = seconds(partial(step, given, threads=threads), count)
            time.sleep(PAUSE)
            prompt, token = cpp()
            taken.append((own, token if rows == 1 else prompt, seconds(theirs, count) if theirs else 0.0))
        times = np.array(taken)
        ratios = [round(float(median(times[:, i] / times[:, 0])), 2) for i in (1, 2)]
        row = {
            "what": what, "weights": kind, "activations": activations, "threads": threads,
            "ms": round(1e3 * float(median(times[:, 0])), 3), "llama.cpp": ratios[0],
            "onnxruntime products": ratios[1] if theirs else "", "file MB": round(file.stat().st_size / 1e6, 1),
            "memory": memory["glenside"], "memory of llama.cpp": memory["llama.cpp"],
        }  # fmt: skip
        print(row, flush=True)
        found.append(row)
    return found


def _onnxruntime(kind: str, rows: int, threads: int) -> Callable[[], Any]:
    """Returns a function that runs the products of the block."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    bits, rng, nodes, constants = int(kind[1]), np.random.default_rng(0), [], []
    matrices = {f"{name}.{n}": dims for n in range(SHAPE.blocks) for name, dims in SHAPE.matrices.items()}
    for name, (columns, depth) in matrices.items():
        codes = rng.integers(0, 256, (columns, depth // 32, 4 * bits)).astype(np.uint8)
        scales = ((rng.random(columns * depth // 32) + 0.1) / 64).astype(np.float32)
        constants += [numpy_helper.from_array(codes, f"{name}.q"), numpy_helper.from_array(scales, f"{name}.s")]
        nodes.append(
            helper.make_node(
                "MatMulNBits", [f"x{depth}", f"{name}.q", f"{name}.s"], [name], domain="com.microsoft", K=depth,
                N=columns, bits=bits, block_size=32, accuracy_level=4,
            )
        )  # fmt: skip
    inputs = [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [rows, n]) for n in (SHAPE.hidden, SHAPE.inner)]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, dims[0]]) for n, dims in matrices.items()]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "products", inputs, outputs, constants)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, options)
    given = {f"x{n}": rng.standard_normal((rows, n)).astype(np.float32) for n in (SHAPE.hidden, SHAPE.inner)}
    return lambda: session.run(None, given)


def _memory(name: str, file: Path) -> float:
    """Returns by what a process grows that loads a file and runs it, over the size of the file."""
    command = [sys.executable, "-m", "benchmarks.bench_decoders", name, str(file)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return round(json.loads(out.strip().splitlines()[-1]) / file.stat().st_size, 2)


def _grown(name: str, file: str) -> int:
    if name == "glenside":
        import glenside as gl

        b = gl.Builder()
        gl.compile(b.finish(b.relu(b.input("x", (4,)))), "none")
        import gguf  # noqa: F401

        before = _resident()
        activations = KINDS[Path(file).stem][0]
        step = gl.compile(gl.load(file, dims={"rows": 1, "past": PAST}), "none", activations=activations)
        step({n: np.zeros(tuple(t.dims), t.dtype) for n, t in step.program.inputs.items()})
    else:
        import xllamacpp  # noqa: F401

        before = _resident()
        run = llama_cpp(Path(file), 1, PAST, WRITTEN)
        run()
    return _resident() - before


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
