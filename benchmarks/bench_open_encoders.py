"""Times encoders, classifiers and detectors with open sizes, one function each, beside onnxruntime with dynamic axes.

    python -m benchmarks.bench_open_encoders [NETWORK ..] [--rounds 9] [--threads 1 2] [--from-torch] [--without-fixed]

Networks of torchvision and transformers with random weights are exported as ONNX files with open dimensions; each is
compiled once (`compile s`, processor seconds with those of the C compiler). At each size the open function, one session
of onnxruntime with these dynamic axes, and the program of this size compiled without a search run in turn. `ms` are
medians, `speed` and `of fixed` the median of the time of onnxruntime, or of the fixed program, over that of the open
function; `error` is the largest difference from onnxruntime over its largest number. With --from-torch the functions
are those of `gl.from_torch(.., dynamic_shapes=..)`.
"""

from __future__ import annotations

import argparse
import csv
import resource
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import torch

import glenside as gl
from benchmarks.open_encoders import NETWORKS, Network, dynamic_shapes, onnx_file
from benchmarks.timing import seconds

RESULTS = Path(__file__).parent / "results" / "open_encoders.csv"
COLUMNS = ("network", "from", "sizes", "threads", "ms", "onnxruntime ms", "fixed ms", "speed", "of fixed", "error")


def main() -> None:
    """Writes a row for each network, size and number of threads; rows of other networks stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=[])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--from-torch", action="store_true")
    parser.add_argument("--without-fixed", action="store_true")
    parser.add_argument("-o", "--output", default=str(RESULTS))
    given = parser.parse_args()
    columns = [*COLUMNS, "compile s", "remarks"]
    for name in given.networks or NETWORKS:
        rows = _rows(name, given)
        path = Path(given.output)
        kept = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                own = (rows[0]["network"], rows[0]["from"])
                kept = [row for row in csv.DictReader(file) if (row["network"], row["from"]) != own]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows([*kept, *rows])


def _rows(name: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    network = NETWORKS[name]
    torch.manual_seed(0)
    module = network.module().eval()
    own = {"network": name, "from": "torch" if given.from_torch else "onnx"}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = str(Path(folder) / f"{name}.onnx")
        onnx_file(network, module, path)
        before = _processor_seconds()
        try:
            f = gl.compile(_from_torch(network, module) if given.from_torch else gl.load(path, dims=network.ranges))
        except gl.GlensideError as error:
            print(name, error.message)
            return [{**own, "remarks": error.message}]
        own["compile s"] = f"{_processor_seconds() - before:.1f}"
        _, _, remarks = f.report.partition(" s\n")
        print(f.report)
        rows = []
        for threads in given.threads:
            session = _session(path, threads)
            for sizes in network.sizes:
                rows.append({**own, **_row(network, sizes, f, session, path, threads, given), "remarks": remarks})
                print(rows[-1], flush=True)
    return rows


def _from_torch(network: Network, module: torch.nn.Module) -> gl.OpenProgram:
    example = network.inputs({name: low + 2 * step for name, (low, _, step) in network.ranges.items()})
    found = gl.from_torch(module, tuple(example.values()), dynamic_shapes=dynamic_shapes(network))
    assert isinstance(found, gl.OpenProgram), "its sizes are open"
    return found


def _session(path: str, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _row(
    network: Network,
    sizes: tuple[int, ...],
    f: Any,
    session: onnxruntime.InferenceSession,
    path: str,
    threads: int,
    given: argparse.Namespace,
) -> dict[str, Any]:
    at = dict(zip(network.ranges, sizes, strict=True))
    x = {name: tensor.numpy() for name, tensor in network.inputs(at).items()}
    ours = list(x.values())
    runs: dict[str, Callable[[], Any]] = {
        "onnxruntime": lambda: session.run(None, x),
        "open": lambda: f(*ours, threads=threads),
    }
    if not given.without_fixed:
        fixed = gl.compile(gl.load(path, dims=at), "none")
        runs["fixed"] = lambda: fixed(*ours, threads=threads)
    found, wanted = runs["open"](), runs["onnxruntime"]()
    pairs = zip(found if isinstance(found, tuple) else (found,), wanted, strict=True)
    error = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
    times = _in_turn(runs, given.rounds)
    row: dict[str, Any] = {"sizes": "x".join(map(str, sizes)), "threads": threads, "error": f"{error:.1e}"}
    for kind, column in (("open", "ms"), ("onnxruntime", "onnxruntime ms"), ("fixed", "fixed ms")):
        row[column] = f"{1e3 * median(times[kind]):.4g}" if kind in times else ""
    for kind, column in (("onnxruntime", "speed"), ("fixed", "of fixed")):
        ratios = [a / b for a, b in zip(times.get(kind, []), times["open"], strict=False)]
        row[column] = f"{median(ratios):.2f}" if ratios else ""
    return row


def _in_turn(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each run, run in turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(seconds(run))
    return found


def _processor_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
