"""Times `glenside tensorize` as a user runs it, the first time and again.

    python -m benchmarks.bench_tensorize

Columns:

- `first`, `min`, `max`: seconds of a run with an empty cache: median, least, largest of five.
- `second`: median seconds of the same command again, which checks the cached answer.
- `start`, `saturate`, `extract`, `check`: seconds of stages of the first run.
- `peak-megabytes-so-far`: the larger of the command and its search process, of all runs so far.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
RUNS = 5
CASES = (
    ("mobilenet-v1", "64x64"),
    ("mobilenet-v1", "16x16"),
    ("mobilenet-v1", "256x256"),
    ("mobilenet-v1", "24x40"),
    ("resnet-50", "16x16"),
    ("bert-base", "64x64"),
)
PHASES = ("start", "saturate", "extract", "check")


def run(network: str, array: str, cache: Path) -> tuple[float, dict[str, float], dict[str, Any]]:
    """Runs one command; returns its seconds, the seconds of each phase, and the totals of the chosen program with the
    number of mapped layers.
    """
    path = cache / "report.json"
    command = [sys.executable, "-m", "glenside", "tensorize", network, "--array", array, "--json", str(path)]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "GLENSIDE_CACHE": str(cache)})
    seconds = time.perf_counter() - started
    report = json.loads(path.read_text(encoding="utf-8"))
    taken = report["totals"]["chosen"] | {"mapped": sum(layer["mapped"] for layer in report["layers"])}
    return seconds, report["seconds"], taken


def main() -> None:
    """Measure, print and write the table."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, egglog {version('egglog')}"
    names = ["network", "array", "first", "min", "max", "second", *PHASES, "peak-megabytes-so-far", "mapped", "tiles"]
    names += ["cycles", machine]
    rows: list[tuple[object, ...]] = []
    print(*names)
    for network, array in CASES:
        first, second = [], []
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as folder:
                first.append(run(network, array, Path(folder)))
                second.append(run(network, array, Path(folder)))
        totals = first[0][2]
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
        rows.append(
            (
                network,
                array,
                f"{statistics.median(r[0] for r in first):.2f}",
                f"{min(r[0] for r in first):.2f}",
                f"{max(r[0] for r in first):.2f}",
                f"{statistics.median(r[0] for r in second):.2f}",
                *(f"{statistics.median(r[1][phase] for r in first):.2f}" for phase in PHASES),
                f"{peak:.0f}",
                totals["mapped"],
                totals["tiles"],
                totals["cycles"],
            )
        )
        print(*rows[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / "bench_tensorize.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
