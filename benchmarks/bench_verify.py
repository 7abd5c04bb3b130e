"""Measures the share of the time of `gl.compile` that is spent on verifying loops.

    python -m benchmarks.bench_verify

Each row is a network as `gl.compile` compiles it for a target: `cpu` (the default, which searches first) or `none`.
Seconds are processor time of this process and its children, with nothing cached; medians of ROUNDS. Columns:

- `conditions_seconds`: checking the structure of all nests. `verify_seconds`: that, and comparing sampled elements.
- `verify_of_compile`: their share of `compile_seconds`.
"""

from __future__ import annotations

import csv
import resource
import tempfile
import time
from pathlib import Path
from statistics import median
from unittest.mock import patch

import glenside as gl
from glenside.codegen.runtime import compiled_function
from glenside.codegen.translation_validation.validate import Validation
from glenside.codegen.verify.verify_loops import Checker

RESULTS = Path(__file__).parent / "results" / "bench_verify.csv"
NETWORKS = ("mobilenet-v1", "bert-base", "resnet-50")
ROUNDS = 3


def main() -> None:
    """Print and write a row for each network and target."""
    rows = []
    for name in NETWORKS:
        program = gl.models.load(name).seeded_constants(0)
        for target in ("cpu", "none"):
            rounds = [_round(program, None if target == "none" else target) for _ in range(ROUNDS)]
            nests, conditions, verified, whole = map(median, zip(*rounds, strict=True))
            row = {"network": name, "target": target, "nests": int(nests)}
            row |= {"conditions_seconds": f"{conditions:.3f}", "verify_seconds": f"{verified:.3f}"}
            row |= {"compile_seconds": f"{whole:.2f}", "verify_of_compile": f"{verified / whole:.3f}"}
            rows.append(row)
            print(row, flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _round(program: gl.Program, target: str | None) -> tuple[float, float, float, float]:
    """Returns the number of nests, and seconds of the conditions alone, of all of `verify`, and of `gl.compile` from a
    cold cache.
    """
    taken: list[tuple[float, float, float]] = []
    verify = compiled_function.verify

    def timed(*arguments: object) -> Validation:
        loops, arena = arguments[:2]
        begin = time.process_time()
        list(Checker().faults(loops, arena))
        middle = time.process_time()
        found = verify(*arguments)
        taken.append((len(loops.nests), middle - begin, time.process_time() - middle))
        return found

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict("os.environ", {"GLENSIDE_CACHE": folder}),
        patch.object(compiled_function, "verify", timed),
    ):
        begin = _seconds()
        gl.compile(program, target)
        whole = _seconds() - begin
    nests, conditions, verified = (sum(column) for column in zip(*taken, strict=True))
    return nests, conditions, verified, whole - conditions


def _seconds() -> float:
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in of)


if __name__ == "__main__":
    main()
