"""Times files from loading to a compiled function, each in a new process with an empty cache.

    python -m benchmarks.bench_compile_times [--add] [--target none] [--before FOLDER] [FILE ..]

FILE is a part of a title: of the files of `benchmarks.files_of_packages` that are in $GLENSIDE_FILES or a temporary
folder (`python -m benchmarks.bench_files --prepare` downloads them), and of `benchmarks.recurrent_networks`; all by
default. `--before` is the folder of an older version, which is timed in turn. Columns:

- `nests`, `functions`: of the compiled program.
- `s`: from the call of `gl.load` to the function, on the clock, with the import of Glenside.
- `processor s`, `C compiler s`: of this process and its threads, and of the C compiler's processes.
- `before s`, `before processor s`: the same for the older version, of the process and the C compiler together.
- `ratio`: the processor seconds of both, older over newer.
- `session s`: the time that onnxruntime takes to load the file.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.bench_files import FOLDER
from benchmarks.files_of_packages import FILES
from benchmarks.recurrent_networks import NETWORKS, written

RESULTS = Path(__file__).parent / "results" / "bench_compile_times.csv"
_LIMIT = 600
"""Seconds after which a file is given up."""
_RUN = """
import json, resource, sys, time
path, target, shapes, values = json.loads(sys.argv[1])
begin = time.perf_counter()
import glenside as gl
shapes = {name: tuple(dims) for name, dims in shapes.items()}
f = gl.compile(gl.load(path, shapes=shapes, values=values), target)
taken = time.perf_counter() - begin
own, other = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps([taken, *(one.ru_utime + one.ru_stime for one in (own, other)), f.report.nests, f.report.functions]))
"""


def timed(source: Path, how: Any) -> list[float]:
    """Compiles a file with the version in a folder; returns seconds, and the numbers of nests and functions.

    Raises RuntimeError.
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(source), "GLENSIDE_CACHE": cache}
        command = [sys.executable, "-W", "ignore", "-c", _RUN, json.dumps(how)]
        options: Any = {"capture_output": True, "text": True, "timeout": _LIMIT}
        done = subprocess.run(command, env=environment, cwd=source, **options)  # the folder is first on Python's path
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1][:200])
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def session(path: str) -> str:
    """Returns the seconds in which onnxruntime loads a file; "" if it refuses it."""
    import onnxruntime

    begin = time.perf_counter()
    try:
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception:
        return ""
    return f"{time.perf_counter() - begin:.2f}"


def row(title: str, path: Path, before: Path | None, target: str, shapes: Any, values: Any) -> dict[str, Any]:
    """Returns the row of a file."""
    how = [str(path), target, {name: list(dims) for name, dims in shapes.items()}, dict(values)]
    found: dict[str, Any] = {"file": title, "target": target}
    try:
        taken, own, other, nests, functions = timed(Path(__file__).parent.parent, how)
        found |= {"nests": int(nests), "functions": int(functions), "s": f"{taken:.1f}"}
        found |= {"processor s": f"{own:.1f}", "C compiler s": f"{other:.1f}"}
        if before is not None:
            earlier, *both, _, _ = timed(before, how)
            found |= {"before s": f"{earlier:.1f}", "before processor s": f"{sum(both):.1f}"}
            found |= {"ratio": f"{sum(both) / (own + other):.2f}"}
        found["session s"] = session(str(path))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        found["refused"] = str(error)[:200]
    return found


def main() -> None:
    """Time the files that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--before", type=Path)
    parser.add_argument("files", nargs="*", default=[""])
    words = parser.parse_args()
    known: list[tuple[str, Path, Any, Any]] = []
    for file in FILES:
        path = FOLDER / file.package.replace("==", "-") / file.name
        if path.exists():
            known.append((file.title, path, file.shapes, file.values))
    known += [(title, written(title, FOLDER), {}, {}) for title in NETWORKS]
    rows: list[dict[str, Any]] = []
    if words.add and RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as table:
            rows = list(csv.DictReader(table))
    for title, path, shapes, values in known:
        if any(part in title for part in words.files):
            new = row(title, path, words.before, words.target, shapes, values)
            print(*new.values(), flush=True)
            rows = [own for own in rows if (own["file"], own["target"]) != (title, words.target)] + [new]
            with RESULTS.open("w", newline="", encoding="utf-8") as table:
                writer = csv.DictWriter(table, dict.fromkeys(key for own in rows for key in own))
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
