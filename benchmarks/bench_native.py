"""Times networks as compiled C and in other runtimes.

    python -m benchmarks.bench_native [--busy N] [--peers A,B] [--add] [--machine FILE.toml] [NETWORK ..]

Writes results/bench_native.csv, or bench_native_busy.csv while N other processes keep a processor busy each. Rows of
named networks are replaced. `--add` times only `chosen` and the runtimes, and adds their ratios and memory. The
processor is calibrated first (`glenside calibrate --target cpu`) unless FILE has its costs; the costs are written
beside the table. Networks are the ONNX files of `benchmarks.networks`. Runtimes are those that are installed
(`pip install '.[peers]'`), with their best settings, in float32, each in a process of its own that is idle between its
runs. Columns:

- `chosen`: the variants with the least predicted time. `timed`: variants that were timed (`tune=True`). `as it is`:
  without a search. `plain loops`: without a schedule, -O2.
- `ms`: median of 21 rounds; a round is the fastest of five consecutive runs. `over chosen`: median ratio of rounds.
- `first`: ratio of the first of the five runs, which begins with the caches that others left.
- `MB`: growth of a process from before it loads the model (without inputs and the runtime's code).
- `others`: processors that other processes used meanwhile.
- `at peak ms`: multiply-adds over the peak of a core. `of peak`: the share of it that `as it is` reaches.
  `onnxruntime over peak`: the largest possible ratio.
- `predicted ms`, `prediction error`: predicted time; mean error of nests with 0.5 % of the time or more.
- `equal`: whether `f.check()` holds. `bound`: lower bound of the arena. `in place`: results that reuse an operand.

Shared machines are noisy: compare within a row.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import glenside as gl
from benchmarks.networks import NETWORKS
from glenside.analysis.layers import product_sizes
from glenside.codegen.processor.model import Machine, machine_of, read_machine
from glenside.codegen.runtime.compiled_function import Compiled, Lowered
from glenside.execution.background_load import MOST, reading
from glenside.execution.fit import processor
from glenside.execution.peers import PEERS
from glenside.execution.processor import ROUNDS as ROUNDS_OF_FIT
from glenside.execution.processor import calibrate, described
from glenside.execution.runtime_comparison import Contest, peer_names
from glenside.ir.files import read_toml
from glenside.ir.operators.compute import name_of
from glenside.ir.program import Program, constant_terms
from glenside.ir.term import postorder
from glenside.ir.types import Tensor
from glenside.passes.integer_sums import for_processors
from glenside.passes.network import Search

RESULTS = Path(__file__).parent / "results"
MACHINE = "bench_native_machine.toml"
ROUNDS = 21
WRONG = 1e-3
TRIES = 2
"""Number of times that rounds are measured while other processes use processors."""


def measure(name: str, path: Path, busy: int, peers: Sequence[str], machine: Machine) -> Iterator[dict[str, Any]]:
    """Returns a row for each number of threads."""
    program = gl.load(path)
    (given,) = (t for t in program.tensors.values() if not t.constant)
    x = _drawn(given)
    plain = for_processors(program, Search())[0]
    products = _multiply_adds(plain)
    for threads in (1, 2):
        begin = time.perf_counter()
        target = gl.CPU(machine=machine, threads=threads)
        found, machine = gl.optimize(program, target), target.processor
        searched = time.perf_counter() - begin
        begin = time.perf_counter()
        f = Compiled(found.program, machine)
        compiled = time.perf_counter() - begin
        begin = time.perf_counter()
        tuned = gl.optimize(program, gl.CPU(machine=machine, threads=threads, tune=True), verify=False)
        timed = time.perf_counter() - begin
        own = {
            "chosen": Lowered(found.program, machine),
            "timed": Lowered(tuned.program, machine),
            "as it is": Lowered(plain, machine),
        } | ({"plain loops": Lowered(found.program, None)} if threads == 1 else {})
        with Contest(own, path, {given.name: x}, peers) as contest:
            row = {"network": name, "threads": threads, "busy": busy} | _columns(name, contest, threads, busy)
        row |= _of_peak(row, products / (1e6 * machine.peak * threads)) | {"multiply-adds": products}
        row |= {
            "predicted ms": round(1e3 * sum(f.predicted(threads)), 2),
            "prediction error": round(_prediction_error(f, x, threads), 3),
        }
        row |= {"equal": found.check().ok, "search s": round(searched, 1), "timed s": round(timed, 1)}
        row |= {"compile s": round(compiled, 1), "arena bytes": f.arena.size, "bound": f.arena.bound}
        row |= {"in place": len(f.arena.in_place)}
        print(row, *contest.notes, sep="\n", flush=True)
        yield row


def beside(name: str, path: Path, busy: int, peers: Sequence[str], machine: Machine) -> Iterator[dict[str, Any]]:
    """Returns the columns of the given runtimes alone, beside the chosen program."""
    program = gl.load(path)
    (given,) = (t for t in program.tensors.values() if not t.constant)
    x = _drawn(given)
    for threads in (1, 2):
        target = gl.CPU(machine=machine, threads=threads)
        found = gl.optimize(program, target, verify=False)
        with Contest({"chosen": Lowered(found.program, target.processor)}, path, {given.name: x}, peers) as contest:
            columns = _columns(name, contest, threads, busy)
        names = (column for column in columns if not column.startswith("chosen"))
        own = {column: columns[column] for column in names if not column.endswith(" ms")}  # of another run
        row = {"network": name, "threads": threads, "busy": busy} | own
        print(row, *contest.notes, sep="\n", flush=True)
        yield row


def _drawn(given: Tensor) -> np.ndarray:
    """Draws words or numbers for an input."""
    draw = np.random.default_rng(1)
    words = given.dtype == "int64"
    return draw.integers(0, 5000, given.dims) if words else draw.standard_normal(given.dims).astype(np.float32)


def _columns(name: str, contest: Contest, threads: int, busy: int) -> dict[str, Any]:
    """Measures the seconds of each entrant; entrants with other results are named and left out."""
    found = []
    while not found or (found[-1][0] > MOST and len(found) < TRIES):
        before = reading()
        entries = contest.run(threads, ROUNDS, busy)
        found.append((reading().since(before), entries))
    others, entries = min(found, key=lambda one: one[0])
    row: dict[str, Any] = {"others": round(others, 2)}
    for entry in entries:
        title = entry.title.removesuffix(", one thread")
        if entry.difference > WRONG:
            print(f"{name}: {title} differs by {entry.difference:.1e}", flush=True)
            continue
        row |= {f"{title} ms": round(1e3 * entry.median, 2), f"{title} over chosen": round(entry.ratio, 2)}
        row |= {f"{title} first": round(entry.first, 2)}
        row |= {f"{title} MB": entry.grown and round(entry.grown / 1e6, 1)}
    return row


def _multiply_adds(program: Program) -> int:
    """Counts the multiply-adds of terms that do not depend on constants alone."""
    constant = constant_terms(program)
    products = (t for t in postorder(program.term) if name_of(t) == "dot-product" and not constant[t])
    return sum(product_sizes(term).macs for term in products)


def _of_peak(row: dict[str, Any], least: float) -> dict[str, Any]:
    """Returns the fraction of peak that the original program reaches, and the largest possible
    ratio over onnxruntime.
    """
    found = {"at peak ms": round(least, 2), "of peak": round(least / row["as it is ms"], 2)}
    of_peer = next((key for key in row if key.startswith("onnxruntime") and key.endswith(" ms")), None)
    return found | ({} if of_peer is None else {"onnxruntime over peak": round(row[of_peer] / least, 2)})


def calibrated(path: Path) -> None:
    """Calibrates this processor, and writes its costs to a path."""
    native = machine_of("native")
    assert native is not None, "a processor has vectors"
    fit = calibrate(native, lambda program: gl.optimize(program, gl.CPU(machine=native), verify=False).program)
    path.write_text(described(fit, native.name, ROUNDS_OF_FIT), encoding="utf-8")
    print(f"calibrated: mean prediction error {np.mean(fit.errors):.0%}, {fit.machine.peak:.0f} at peak", flush=True)


def _prediction_error(f: Compiled, x: np.ndarray, threads: int) -> float:
    """Returns the mean of |predicted / measured - 1| over nests with at least 0.5 % of the time."""
    measured = f.least_seconds(x, rounds=ROUNDS, threads=threads)
    large = measured >= measured.sum() / 200
    return float(np.mean(np.abs(np.array(f.predicted(threads)) / measured - 1)[large]))


def main() -> None:
    """Measure the networks that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--peers", default=",".join(peer_names()))
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--machine")
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    words = parser.parse_args()
    path = RESULTS / f"bench_native{'_busy' if words.busy else ''}.csv"
    rows = _read(path) if path.exists() and (words.add or set(words.networks) != set(NETWORKS)) else []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLENSIDE_CACHE"] = folder  # nothing is kept from before
        here = RESULTS / MACHINE
        if words.machine is None:
            calibrated(here)
        elif Path(words.machine).resolve() != here.resolve():
            here.write_bytes(Path(words.machine).read_bytes())
        machine = read_machine(read_toml(str(here)), str(here))
        for name in words.networks:
            model = Path(folder) / f"{name}.onnx"
            NETWORKS[name](model)
            made = (beside if words.add else measure)(name, model, words.busy, words.peers.split(","), machine)
            known = {(row["network"], str(row["threads"])): row for row in rows}
            for row in made:
                key = row["network"], str(row["threads"])
                known[key] = {**known.get(key, {}), **row} if words.add else row
                rows = sorted(
                    known.values(), key=lambda row: (list(NETWORKS).index(row["network"]), int(row["threads"]))
                )
                _write(path, rows)


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        file.readline()
        return list(csv.DictReader(file))


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    columns = dict.fromkeys(key for row in rows for key in row)
    with path.open("w", newline="", encoding="utf-8") as file:
        peers = ", ".join(peer.title for peer in PEERS.values() if not peer.missing)
        file.write(f"# {os.cpu_count()} processors {processor()}, {peers}\n")
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
