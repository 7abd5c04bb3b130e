"""Times networks with and without the algebra between layers, next to onnxruntime.

    python -m benchmarks.bench_algebra [NETWORK ..]

Networks are those of `benchmarks.algebra_networks`, as C for this processor on one thread. Rows of networks that are
not named are kept. Columns:

- `as written us`, `found us`: median of rounds, which alternate; with `exact_order=True`, and by default.
- `gain`: median ratio of rounds, as written over found; above 1, the algebra pays.
- `predicted gain`: ratio of the predicted times of the changed regions; "" if none changed.
- `onnxruntime`: median ratio of rounds, onnxruntime at full optimization over found; above 1, found is faster.
- `taken`, `refused`: other forms that were priced.
- `search s`, `search as written s`: processor seconds of optimizing with and without the algebra, without the check.
- `exact`: the check of the answer against the network as written.
"""

from __future__ import annotations

import csv
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import glenside as gl
from benchmarks.algebra_networks import NETWORKS, network
from glenside.codegen.runtime.compiled_function import Lowered, keeping
from glenside.execution.runtime_comparison import Contest, Row
from glenside.ir.program import Program
from glenside.targets.cpu.compiled import CompiledCPU

RESULTS = Path(__file__).parent / "results" / "bench_algebra.csv"
ROUNDS = 21


def searched(program: Program, exact_order: bool) -> tuple[gl.Result, Lowered, float]:
    """Returns the answer, its code for one thread, and the processor seconds of the search."""
    target = CompiledCPU(machine="native")
    began = time.process_time()
    result = gl.optimize(program, target, exact_order=exact_order, verify=False)
    seconds = time.process_time() - began
    return result, keeping([result.program, result.prepared], target.processor, None), seconds


def measure(name: str) -> dict[str, Any]:
    """Returns the row of a network."""
    program = network(name)
    _, written, written_seconds = searched(program, exact_order=True)
    result, found, seconds = searched(program, exact_order=False)
    draw = np.random.default_rng(0)
    inputs = {own: draw.standard_normal(t.dims).astype(np.float32) for own, t in program.inputs.items()}
    taken = [one for one in result.report.algebra if one.taken]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "network.onnx"
        gl.save(program, model)
        with Contest({"found": found, "as written": written}, model, inputs, ["onnxruntime"]) as contest:
            rows: dict[str, Row] = {row.title: row for row in contest.run(1, ROUNDS)}
    given, cost = sum(one.given for one in taken), sum(one.cost for one in taken)
    peer = next((row for title, row in rows.items() if title.startswith("onnxruntime")), None)
    return {
        "network": name,
        "as written us": f"{1e6 * statistics.median(rows['as written'].seconds):.1f}",
        "found us": f"{1e6 * statistics.median(rows['found'].seconds):.1f}",
        "gain": f"{rows['as written'].ratio:.3f}",
        "predicted gain": f"{given / cost:.2f}" if taken else "",
        "onnxruntime": f"{peer.ratio:.2f}" if peer else "",
        "taken": len(taken),
        "refused": len(result.report.algebra) - len(taken),
        "search s": f"{seconds:.2f}",
        "search as written s": f"{written_seconds:.2f}",
        "exact": result.check().result,
    }


def main(names: list[str]) -> None:
    """Measures the named networks, or all."""
    known: dict[str, dict[str, Any]] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            known = {row["network"]: row for row in csv.DictReader(file)}
    for name in names or NETWORKS:
        known[name] = measure(name)
        print(known[name], flush=True)
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(known[name]))
            writer.writeheader()
            writer.writerows(known[each] for each in NETWORKS if each in known)


if __name__ == "__main__":
    main(sys.argv[1:])
