"""The whole command as a user runs it: seconds and memory of five runs, and where the seconds go.

Run from the root of the repository: python -m benchmarks.bench_tensorize. Writes results/bench_tensorize.csv. Memory
is the larger of the two processes, the command and its search, as the operating system counts it.
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

RESULTS = Path(__file__).parent / "results"
RUNS = 5
ARRAYS = ("64x64", "128x128", "32x128", "24x40")


def run(array: str) -> tuple[float, float, dict[str, float], dict[str, int]]:
    """(seconds, peak megabytes so far, seconds of each phase, totals) of one command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        started = time.perf_counter()
        command = [sys.executable, "-m", "glenside", "tensorize", "mobilenet-v1", "--array", array, "--json", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        report = json.loads(path.read_text(encoding="utf-8"))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    return seconds, peak, report["seconds"], report["totals"]


def main() -> None:
    """Measure, print and write the table."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, egglog {version('egglog')}"
    rows = []
    for array in ARRAYS:
        runs = [run(array) for _ in range(RUNS)]
        median = statistics.median(r[0] for r in runs)
        phases = {k: statistics.median(r[2][k] for r in runs) for k in ("saturate", "extract", "check")}
        totals = runs[0][3]
        rows.append(
            (
                array,
                f"{median:.2f}",
                f"{min(r[0] for r in runs):.2f}",
                f"{max(r[0] for r in runs):.2f}",
                *(f"{phases[k]:.2f}" for k in phases),
                f"{max(r[1] for r in runs):.0f}",
                totals["mapped"],
                totals["tiles"],
                totals["cycles"],
            )
        )
        print(*rows[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / "bench_tensorize.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = "array median min max saturate extract check peak-megabytes-so-far mapped tiles cycles"
        writer.writerow([*names.split(), machine])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
