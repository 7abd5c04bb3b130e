"""What verifying loops takes of compiling a network.

Run from the root of the repository: python -m benchmarks.bench_verify. Writes results/bench_verify.csv. Lowering, the
conditions of loops, and all of `verify`, which samples what nests mean too, take turns, in seconds of this process's
processor, medians of ROUNDS. `gl.compile` is on the clock, without a search and with nothing kept from before.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from unittest.mock import patch

import glenside as gl
from glenside.codegen.checker import Checker
from glenside.codegen.machine import machine_of
from glenside.codegen.native import Lowered
from glenside.codegen.verify import verify

RESULTS = Path(__file__).parent / "results" / "bench_verify.csv"
NETWORKS = ("mobilenet-v1", "bert-base", "resnet-50")
ROUNDS = 7


def main() -> None:
    """Print and write a row for each network."""
    machine, rows = machine_of("native"), []
    for name in NETWORKS:
        program = gl.models.load(name).seeded_constants(0)
        taken: dict[str, list[float]] = {"lowering": [], "conditions": [], "verify": []}
        for _ in range(ROUNDS):
            with patch("glenside.codegen.native.verify"):
                begin = time.process_time()
                one = Lowered(program, machine)
                taken["lowering"].append(time.process_time() - begin)
            ways: dict[str, Callable[[], object]] = {
                "conditions": lambda one=one: list(Checker().faults(one.loops, one.arena)),
                "verify": lambda one=one: verify(one.loops, one.arena, one.program, one.constants),
            }
            for way, run in ways.items():
                begin = time.process_time()
                run()
                taken[way].append(time.process_time() - begin)
        with tempfile.TemporaryDirectory() as folder, patch.dict("os.environ", {"GLENSIDE_CACHE": folder}):
            begin = time.perf_counter()
            gl.compile(program, None)
            whole = time.perf_counter() - begin
        found = {way: median(times) for way, times in taken.items()}
        row = {"network": name, "nests": len(one.loops.nests)}
        row |= {f"{way}_seconds": f"{own:.3f}" for way, own in found.items()}
        row |= {"compile_seconds": f"{whole:.2f}", "verify_of_compile": f"{found['verify'] / whole:.3f}"}
        rows.append(row)
        print(row, flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
