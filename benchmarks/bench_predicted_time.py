"""Measures the prediction error of the cost model, nest by nest, with costs calibrated in the same minutes.

    python -m benchmarks.bench_predicted_time [NETWORK ..]

Clocks and other work on a machine change between a calibration and a run. Here the calibration's programs and the
networks alternate. The networks have no part in the fit. They are those of `benchmarks.networks`, searched with the
built-in costs for one thread and for all processors. Columns:

- `nests`: nests with at least 0.5 % of the time; the errors are theirs.
- `ms`: measured time of the network, the least of all rounds.
- `error`, `median`: mean and median of |predicted / measured - 1|.
- `in all`: predicted over measured time of the whole network.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import glenside as gl
from benchmarks.networks import NETWORKS
from glenside.codegen.cost.count_work import predicted_nanoseconds
from glenside.codegen.processor.model import machine_of
from glenside.execution.background_load import reading
from glenside.execution.fit import processor
from glenside.execution.processor import ROUNDS, fitted, measured, timed, workloads
from glenside.ir.program import Program
from glenside.ir.threads import processors

RESULTS = Path(__file__).parent / "results" / "bench_predicted_time.csv"


def searched(program: Program, threads: int) -> Program:
    return gl.optimize(program, gl.CPU(machine="native", threads=threads), verify=False).program


def main() -> None:
    """Measure the networks that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    names = parser.parse_args().networks
    native = machine_of("native")
    assert native is not None, "a processor has vectors"
    machine, every = measured(native), sorted({1, processors()})
    programs = [program.seeded_constants(0) for program in workloads(lambda p: searched(p, 1))]
    fitted_by = len(programs)
    cases = [(name, threads) for name in names for threads in every]
    with tempfile.TemporaryDirectory() as folder:
        for name, threads in cases:
            print(f"search {name} for {threads}", flush=True)
            model = Path(folder) / f"{name}.onnx"
            NETWORKS[name](model)
            programs.append(replace(searched(gl.load(model), threads), name=name))
        before = reading()
        runs = timed(programs, machine, progress=lambda done, of, what: print(f"{done}/{of} {what}", flush=True))
        others = reading().since(before)
    fit = fitted(machine, [nest for run in runs[:fitted_by] for nest in run.nests(processors())], processors())
    rows = []
    for (name, threads), run in zip(cases, runs[fitted_by:], strict=True):
        taken = run.seconds[threads]
        large = taken >= taken.sum() / 200
        own = 1e-9 * np.array(predicted_nanoseconds(run.compiled.loops, fit.machine, threads))
        errors = np.abs(own / taken - 1)[large]
        row = {"network": name, "threads": threads, "nests": int(large.sum()), "ms": round(1e3 * taken.sum(), 2)}
        row |= {"error": round(errors.mean(), 3), "median": round(float(np.median(errors)), 3)}
        rows.append(row | {"in all": round(own.sum() / taken.sum(), 3)})
        print(*rows[-1].values(), flush=True)
    means = ", ".join(
        f"{np.mean([row['error'] for row in rows if row['threads'] == threads]):.3f} on {threads}" for threads in every
    )
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        file.write(
            f"# {processor()}, {processors()} processors, others took {others:.2f} of them; least of {ROUNDS} rounds; "
            f"mean error of networks, by threads: {means}; of what was fitted: "
            f"{', '.join(f'{np.mean(fit.errors_of(threads)):.3f} on {threads}' for threads in every)}\n"
        )
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
