"""Times networks of float16 in compiled C next to onnxruntime, on one thread.

    python -m benchmarks.bench_float16 [NETWORK ..]

Networks are those of `benchmarks.networks`, converted to float16 by onnxruntime's own tool. Columns: `ms` is the median
of rounds, which alternate; `onnxruntime` is the median ratio of its time over ours, above 1 if ours is faster;
`difference` is relative to the largest result. Results: results/bench_float16.csv.
"""

from __future__ import annotations

import csv
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16

import glenside as gl
from benchmarks.networks import NETWORKS
from glenside.codegen.runtime.compiled_function import keeping
from glenside.execution.runtime_comparison import Contest
from glenside.targets.cpu.compiled import CompiledCPU

RESULTS = Path(__file__).parent / "results" / "bench_float16.csv"
CHOSEN = ("mobilenet-v2", "resnet-18", "vit-s", "u-net")


def row_of(name: str) -> list[str]:
    """Returns the row of a network."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "network.onnx"
        NETWORKS[name](model)
        onnx.save(convert_float_to_float16(onnx.load(model)), model)
        program = gl.load(model)
        target = CompiledCPU(machine="native")
        result = gl.optimize(program, target, verify=False)
        ours = keeping([result.program, result.prepared], target.processor, None)
        draw = np.random.default_rng(0)
        inputs = {own: draw.standard_normal(t.dims).astype(np.float16) for own, t in program.inputs.items()}
        with Contest({"ours": ours}, model, inputs, ["onnxruntime"]) as contest:
            own, peer = contest.run(1, 15)
    return [name, f"{1e3 * statistics.median(own.seconds):.2f}", f"{peer.ratio:.2f}", f"{peer.difference:.1e}"]


def main() -> None:
    """Measures and writes the table."""
    rows = []
    for name in sys.argv[1:] or CHOSEN:
        rows.append(row_of(name))
        print(*rows[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["network", "ms", "onnxruntime", "difference"], *rows])


if __name__ == "__main__":
    main()
