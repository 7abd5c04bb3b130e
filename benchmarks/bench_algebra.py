"""Times networks with and without the algebra between layers, next to onnxruntime.

    python -m benchmarks.bench_algebra [--ordinary] [NETWORK ..]

Networks are those of `benchmarks.algebra_networks`, as C for this processor; with `--ordinary`, those of
`benchmarks.networks`, whose rows are in `bench_algebra_ordinary.csv`. Rows of networks that are not named are kept.
Columns, all but two for one thread:

- `as written us`, `found us`: median of rounds, which alternate; with `exact_order=True`, and by default.
- `gain`: median ratio of rounds, as written over found; above 1, the algebra pays.
- `predicted gain`: ratio of the predicted times of the changed regions; "" if none changed.
- `onnxruntime`, `PyTorch compiled`: median ratio of rounds, onnxruntime at full optimization or `torch.compile` over
  found; above 1, found is faster; "" if it is not installed or does not run the network.
- `gain, 2 threads`, `onnxruntime, 2 threads`: the same on two threads.
- `taken`, `refused`: other forms that were priced.
- `search s`, `search as written s`: processor seconds of optimizing with and without the algebra, without the check.
- `exact`: the check of the answer against the network as written.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

import glenside as gl
from benchmarks.algebra_networks import NETWORKS, network
from benchmarks.networks import NETWORKS as ORDINARY
from glenside.codegen.runtime.compiled_function import Lowered, keeping
from glenside.execution.runtime_comparison import Contest, Row
from glenside.ir.program import Program
from glenside.targets.cpu.compiled import CompiledCPU

RESULTS = Path(__file__).parent / "results"
PEERS = ["onnxruntime", "PyTorch compiled"]
ROUNDS = 21


def searched(program: Program, exact_order: bool) -> tuple[gl.Result, Lowered, float]:
    """Returns the answer, its code for one thread, and the processor seconds of the search."""
    target = CompiledCPU(machine="native")
    began = time.process_time()
    result = gl.optimize(program, target, exact_order=exact_order, verify=False)
    seconds = time.process_time() - began
    return result, keeping([result.program, result.prepared], target.processor, None), seconds


def measure(name: str, model: Path, program: Program) -> dict[str, Any]:
    """Returns the row of a network that is in the file `model` too."""
    _, written, written_seconds = searched(program, exact_order=True)
    result, found, seconds = searched(program, exact_order=False)
    draw = np.random.default_rng(0)
    inputs = {
        own: draw.standard_normal(t.dims).astype(t.dtype) if "float" in t.dtype else draw.integers(0, 100, t.dims)
        for own, t in program.inputs.items()
    }
    taken = [one for one in result.report.algebra if one.taken]
    rows: dict[tuple[str, int], Row] = {}
    with Contest({"found": found, "as written": written}, model, inputs, PEERS) as contest:
        for threads in (1, 2):
            contest.peers = PEERS if threads == 1 else PEERS[:1]
            rows |= {(_name(row.title), threads): row for row in contest.run(threads, ROUNDS)}
    print(*contest.notes, sep="\n", end="")

    def ratio(title: str, threads: int = 1) -> str:
        return f"{rows[title, threads].ratio:.3f}" if (title, threads) in rows else ""

    given, cost = sum(one.given for one in taken), sum(one.cost for one in taken)
    return {
        "network": name,
        "as written us": f"{1e6 * statistics.median(rows['as written', 1].seconds):.1f}",
        "found us": f"{1e6 * statistics.median(rows['found', 1].seconds):.1f}",
        "gain": ratio("as written"),
        "predicted gain": f"{given / cost:.2f}" if taken else "",
        "onnxruntime": ratio("onnxruntime"),
        "PyTorch compiled": ratio("PyTorch compiled"),
        "gain, 2 threads": ratio("as written", 2),
        "onnxruntime, 2 threads": ratio("onnxruntime", 2),
        "taken": len(taken),
        "refused": len(result.report.algebra) - len(taken),
        "search s": f"{seconds:.2f}",
        "search as written s": f"{written_seconds:.2f}",
        "exact": result.check().result,
    }


def with_resize(model: Path) -> None:
    """Writes gathers with weights, as which linear resizes by 4 are spelled, as one Resize, as exporters do."""
    file = onnx.load(model)
    nodes = list(file.graph.node)
    kinds = [node.op_type for node in nodes]
    first, last = kinds.index("Gather"), len(kinds) - 1 - kinds[::-1].index("ReduceSum")
    given, made = nodes[first].input[0], nodes[last].output[0]
    file.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 1, 4, 4], np.float32), "scales"))
    resize = onnx.helper.make_node("Resize", [given, "", "scales"], [made], mode="linear")
    del file.graph.node[:]
    file.graph.node.extend([*nodes[:first], resize, *nodes[last + 1 :]])
    onnx.save(file, model)


def _name(title: str) -> str:
    """Returns the title of a runtime without its version."""
    return next((name for name in PEERS if title == name or title.startswith(f"{name} ")), title)


def main() -> None:
    """Measures the named networks, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ordinary", action="store_true")
    parser.add_argument("networks", nargs="*")
    words = parser.parse_args()
    order: list[str] = list(ORDINARY if words.ordinary else NETWORKS)
    path = RESULTS / f"bench_algebra{'_ordinary' if words.ordinary else ''}.csv"
    known: dict[str, dict[str, Any]] = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            known = {row["network"]: row for row in csv.DictReader(file)}
    for name in words.networks or order:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "network.onnx"
            if words.ordinary:
                ORDINARY[name](model)
                program = gl.load(model)
            else:
                program = network(name)
                gl.save(program, model)
                if name == "segmentation head":
                    with_resize(model)
            known[name] = measure(name, model, program)
        print(known[name], flush=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(known[name]))
            writer.writeheader()
            writer.writerows(known[each] for each in order if each in known)


if __name__ == "__main__":
    main()
