"""Times `torch.compile(module, backend="glenside")` beside inductor and eager PyTorch, on one thread.

    python benchmarks/bench_torch_compile.py [--only NAME] [--rounds 30]

Calls alternate; a row has medians in milliseconds, the seconds of the first call, and the median of the ratios of
neighbouring calls (above 1: glenside is faster). Results: benchmarks/results/torch_compile.csv.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
RESULTS = Path(__file__).parent / "results" / "torch_compile.csv"
NETWORKS = (
    "torchvision resnet18",
    "torchvision mobilenet_v2",
    "transformers Llama",
    "transformers Bert",
    "timm mixer_s16_224",
)
COLUMNS = [
    "network",
    "eager ms",
    "inductor ms",
    "glenside ms",
    "inductor s",
    "glenside s",
    "to eager",
    "to inductor",
    "error",
]


def row_of(name: str, rounds: int) -> list[Any]:
    import torch
    from torch_networks import draw_constants, networks

    from glenside.dynamo import backend

    torch.manual_seed(0)
    module, args = networks()[name]()
    module = module.eval()
    draw_constants(module)
    frozen = {"freeze": True, "threads": 1}
    functions: dict[str, Any] = {"eager": module, "inductor": torch.compile(module)}
    functions["glenside"] = torch.compile(module, backend=backend, options=frozen)
    first, results = {}, {}
    with torch.no_grad():
        for kind, function in functions.items():
            begin = time.perf_counter()
            results[kind] = function(*args)
            first[kind] = time.perf_counter() - begin
            function(*args)
        seconds: dict[str, list[float]] = {kind: [] for kind in functions}
        for _ in range(rounds):
            for kind, function in functions.items():
                begin = time.perf_counter()
                function(*args)
                seconds[kind].append(time.perf_counter() - begin)
    error = float((results["glenside"] - results["eager"]).abs().max() / results["eager"].abs().max())
    median = {kind: statistics.median(values) for kind, values in seconds.items()}
    ratio = {
        kind: statistics.median(a / b for a, b in zip(seconds[kind], seconds["glenside"], strict=True))
        for kind in seconds
    }
    times = [f"{median[kind] * 1e3:.2f}" for kind in ("eager", "inductor", "glenside")]
    firsts = [f"{first[kind]:.1f}" for kind in ("inductor", "glenside")]
    return [name, *times, *firsts, f"{ratio['eager']:.2f}", f"{ratio['inductor']:.2f}", f"{error:.1e}"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for name in NETWORKS:
        if options.only in name:
            torch._dynamo.reset()
            rows.append(row_of(name, options.rounds))
            print(*rows[-1], flush=True)
    if not options.only:
        with RESULTS.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(rows)


if __name__ == "__main__":
    main()
