"""Times products with weights of 4 and 8 bits beside onnxruntime and beside float32 weights, in turn.

    python -m benchmarks.bench_small_weights

Each is one MatMulNBits, compiled as it is written. `onnxruntime` and `onnxruntime int8` are the median of its time over
ours, with accuracy levels 0 (float sums) and 4 (activations rounded to int8: another result); `float32` is the median
of the time of our product with float32 weights over ours. `bytes` are those of our constants, for each weight.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import glenside as gl
from benchmarks.timing import seconds
from glenside.codegen.loop_ir.ir import Role

RESULTS = Path(__file__).parent / "results" / "bench_small_weights.csv"
SIZES = ((2048, 8192), (8192, 2048), (2048, 2048), (768, 3072))
ROWS, BITS, THREADS, BLOCK, ROUNDS = (1, 4, 128), (4, 8), (1, 2), 32, 25


def main() -> None:
    """Print and write a row for each size, number of rows, bits and threads."""
    with RESULTS.open("w", newline="", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        writer: csv.DictWriter[str] | None = None
        for (depth, columns), rows, bits in product(SIZES, ROWS, BITS):
            for row in _rows(Path(folder), rows, depth, columns, bits):
                writer = writer or csv.DictWriter(file, list(row), lineterminator="\n")
                if not file.tell():
                    writer.writeheader()
                writer.writerow(row)
                file.flush()
                print(row, flush=True)


def _rows(folder: Path, rows: int, depth: int, columns: int, bits: int) -> list[dict[str, Any]]:
    import onnxruntime

    paths = [_saved(folder / f"level{level}.onnx", rows, depth, columns, bits, level) for level in (0, 4)]
    program = gl.load(paths[0])
    small, b = gl.compile(program, "none"), gl.Builder()
    weights = np.random.default_rng(0).standard_normal((columns, depth)).astype(np.float32)
    wide = gl.compile(
        b.finish(b.linear(b.input("x", (rows, depth)), b.constant("w", (columns, depth), value=weights))), "none"
    )
    x = np.random.default_rng(1).standard_normal((rows, depth)).astype(np.float32)
    held = sum(buffer.bytes for buffer in small.loops.buffers if buffer.role is Role.CONSTANT)
    found = []
    for threads in THREADS:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        sessions = [onnxruntime.InferenceSession(path, options) for path in paths]
        runs: list[Callable[[], Any]] = [
            lambda threads=threads: small(x, threads=threads),  # type: ignore[misc]
            lambda threads=threads: wide(x, threads=threads),  # type: ignore[misc]
            *(lambda session=session: session.run(None, {"x": x}) for session in sessions),  # type: ignore[misc]
        ]
        taken = np.array([[seconds(run) for run in runs] for _ in range(ROUNDS)])
        ratios = [round(float(median(taken[:, other] / taken[:, 0])), 2) for other in (1, 2, 3)]
        found.append(
            {
                "rows": rows, "depth": depth, "columns": columns, "bits": bits, "threads": threads,
                "us": round(1e6 * float(median(taken[:, 0])), 1), "float32": ratios[0],
                "onnxruntime": ratios[1], "onnxruntime int8": ratios[2], "bytes": round(held / depth / columns, 3),
            }
        )  # fmt: skip
    return found


def _saved(path: Path, rows: int, depth: int, columns: int, bits: int, level: int) -> Path:
    from onnx import TensorProto, helper, numpy_helper, save

    rng, blocks = np.random.default_rng(0), depth // BLOCK
    codes = rng.integers(0, 256, (columns, blocks, BLOCK * bits // 8)).astype(np.uint8)
    scales = ((rng.random(columns * blocks) + 0.1) / 64).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", K=depth, N=columns, bits=bits, block_size=BLOCK,
        accuracy_level=level,
    )  # fmt: skip
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, depth])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])
    constants = [numpy_helper.from_array(codes, "q"), numpy_helper.from_array(scales, "s")]
    graph = helper.make_graph([node], "product", [given], [result], constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


if __name__ == "__main__":
    main()
