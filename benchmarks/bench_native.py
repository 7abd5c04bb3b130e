"""Networks as compiled C beside other runtimes: as they are, with the variants that are told to take the least time and
those that were timed, and as plain loops.

Run from the root of the repository: python -m benchmarks.bench_native [--busy N] [--peers A,B] [--add] [NETWORK ..].
Writes results/bench_native.csv, or bench_native_busy.csv beside N processes that keep a processor busy each; `--add`
times runtimes beside what is chosen alone, and adds their ratios and memory to the rows that are there. The networks
are the ONNX files of `benchmarks.networks`, the runtimes those that are installed (`pip install '.[peers]'`), each in a
process of its own that stands still between its turns, with its best settings, in float32. Figures are medians of 25
rounds, of each the least of five runs that follow each other, ratios medians of those of each round; `first` is the
ratio of the first of those runs, which finds in the caches what others left there; memory is what a process grew by at
most from before it loaded the model (not the inputs, nor the runtime's own code). `told error` is the mean, over the
nests that take a part in 200 of the time or more, of how far what is told is from what is measured. Shared machines are
noisy: compare within a row.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import glenside as gl
from benchmarks.networks import NETWORKS
from glenside.codegen.machine import machine_of
from glenside.codegen.native import Compiled, Lowered
from glenside.execution.contest import Contest, peer_names
from glenside.execution.peers import PEERS
from glenside.ir.types import Tensor
from glenside.passes.integer_sums import for_processors
from glenside.passes.network import Search

RESULTS = Path(__file__).parent / "results"
ROUNDS = 25
WRONG = 1e-3


def measure(name: str, path: Path, busy: int, peers: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each number of threads."""
    program = gl.load(path)
    (given,) = (t for t in program.tensors.values() if not t.constant)
    x = _drawn(given)
    begin = time.perf_counter()
    found = gl.optimize(program, gl.CPU(machine="native"))
    searched = time.perf_counter() - begin
    begin = time.perf_counter()
    f = gl.compile(found.program)
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    tuned = gl.optimize(program, gl.CPU(tune=True), verify=False)
    timed = time.perf_counter() - begin
    native = machine_of("native")
    own = {
        "chosen": Lowered(found.program, native),
        "timed": Lowered(tuned.program, native),
        "as it is": Lowered(for_processors(program, Search())[0], native),
        "plain loops": Lowered(found.program, None),
    }
    told = {"told error": round(_told_error(f, x), 3), "equal": found.check().ok}
    rows = []
    with Contest(own, path, {given.name: x}, peers) as contest:
        for threads in (1, 2):
            row = {"network": name, "threads": threads, "busy": busy} | _columns(name, contest, threads, busy)
            row |= {**told, "search s": round(searched, 1), "timed s": round(timed, 1), "compile s": round(compiled, 1)}
            arena = own["chosen"].arena
            row |= {"arena bytes": arena.size, "bound": arena.bound, "in place": len(arena.in_place)}
            rows.append(row)
            print(row, flush=True)
    print(*contest.notes, sep="\n", flush=True)
    return rows


def beside(name: str, path: Path, busy: int, peers: Sequence[str]) -> list[dict[str, Any]]:
    """The columns of some runtimes alone, beside what is chosen."""
    program = gl.load(path)
    (given,) = (t for t in program.tensors.values() if not t.constant)
    x = _drawn(given)
    found = gl.optimize(program, gl.CPU(machine="native"), verify=False)
    rows = []
    with Contest({"chosen": Lowered(found.program, machine_of("native"))}, path, {given.name: x}, peers) as contest:
        for threads in (1, 2):
            columns = _columns(name, contest, threads, busy)
            names = (column for column in columns if not column.startswith("chosen"))
            own = {column: columns[column] for column in names if not column.endswith(" ms")}  # of another run
            rows.append({"network": name, "threads": threads, "busy": busy} | own)
            print(rows[-1], flush=True)
    print(*contest.notes, sep="\n", flush=True)
    return rows


def _drawn(given: Tensor) -> np.ndarray:
    """Words or numbers for an input."""
    draw = np.random.default_rng(1)
    words = given.dtype == "int64"
    return draw.integers(0, 5000, given.dims) if words else draw.standard_normal(given.dims).astype(np.float32)


def _columns(name: str, contest: Contest, threads: int, busy: int) -> dict[str, Any]:
    """What each entrant takes; those that compute something else are named, and left out."""
    row: dict[str, Any] = {}
    for entry in contest.run(threads, ROUNDS, busy):
        title = entry.title.removesuffix(", one thread")
        if entry.difference > WRONG:
            print(f"{name}: {title} differs by {entry.difference:.1e}", flush=True)
            continue
        row |= {f"{title} ms": round(1e3 * entry.median, 2), f"{title} over chosen": round(entry.ratio, 2)}
        row |= {f"{title} first": round(entry.first, 2)}
        row |= {f"{title} MB": entry.grown and round(entry.grown / 1e6, 1)}
    return row


def _told_error(f: Compiled, x: np.ndarray) -> float:
    """How far what is told of the nests is from what they take, as a part of it."""
    measured = f.least_seconds(x, rounds=ROUNDS)
    large = measured >= measured.sum() / 200
    return float(np.mean(np.abs(np.array(f.told()) / measured - 1)[large]))


def main() -> None:
    """Measure the networks that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--peers", default=",".join(peer_names()))
    parser.add_argument("--add", action="store_true")
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    words = parser.parse_args()
    path = RESULTS / f"bench_native{'_busy' if words.busy else ''}.csv"
    rows = _read(path) if words.add else []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLENSIDE_CACHE"] = folder  # nothing is kept from before
        for name in words.networks:
            model = Path(folder) / f"{name}.onnx"
            NETWORKS[name](model)
            made = (beside if words.add else measure)(name, model, words.busy, words.peers.split(","))
            known = {(row["network"], str(row["threads"])): row for row in rows}
            for row in made:
                known.setdefault((row["network"], str(row["threads"])), {}).update(row)
            rows = list(known.values())
            _write(path, rows)


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        file.readline()
        return list(csv.DictReader(file))


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    columns = dict.fromkeys(key for row in rows for key in row)
    with path.open("w", newline="", encoding="utf-8") as file:
        peers = ", ".join(peer.title for peer in PEERS.values() if not peer.missing)
        file.write(f"# {os.cpu_count()} processors, {peers}\n")
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
