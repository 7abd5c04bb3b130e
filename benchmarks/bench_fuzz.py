"""Counts the planted faults that the fuzzer finds.

    python benchmarks/bench_fuzz.py benchmarks/results/bench_fuzz.csv --minutes 10 --jobs 2

Each fault of `tests/planted_faults` is applied to a copy of the package, which is then fuzzed until the first finding.
A finding counts if the same case passes without the fault. `--doors kind` visits only the entry points that a fault of
its kind can reach. Columns:

- `found`, `door`, `kind`, `detail`: the result, the entry point, the kind of failure, its message.
- `cases`: random cases until then. `known`: findings that fail without the fault too.
- `processor_s`: seconds of all processes of the fuzzer, at most 60 x minutes x jobs. `wall_s`: by the clock. Seconds
  and cases of repeated runs are added up.

In the committed table all 103 faults are found: half of them within 14 processor seconds, the last after 114
(rules-16). 10 minutes on 2 cores are 1,200. The 14 rows emission-6, importer-6, 9, 16 and 22, rules-14, 16, 18, 24 and
25, lowering-1, 3 and 5, and npu-2 are from the current generator or states shortly before it, with `--doors kind` in
one process; the others from earlier states, which drew less. A run of all faults with `--doors all` was not measured.

Five faults of earlier tables changed no answer, and were replaced by others in the same place or near it:

- rules-24: a cut at another multiple of a tile's size still covers the axis once.
- rules-25: a section that is longer at its end has the same elements, `every` apart, at its begin.
- lowering-3: strides are computed from the sizes behind an axis, so a larger first axis only adds unused memory.
- lowering-5: the pieces of each operator's index map have at most one guard.
- npu-2: these addresses only enter the predicted cost of a layout.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from planted_faults import FAULTS  # noqa: E402

from glenside.fuzzing.cases import Case  # noqa: E402
from glenside.fuzzing.child import Child  # noqa: E402
from glenside.fuzzing.doors import DOORS  # noqa: E402
from glenside.fuzzing.visiting import visited  # noqa: E402, F401 (it registers the doors)

OF_KIND = {
    "rules": "rules,tensorize,layout,optimize",
    "lowering": "compile,compile-optimized",
    "emission": "compile,compile-optimized",
    "importer": "import",
    "exporter": "onnx",
    "npu": "npu",
}
_RUN = """
import json, resource, sys
from glenside.fuzzing import fuzz
report = fuzz({minutes}, {seed}, {doors}, jobs={jobs}, stop_at_first=True, corpus={corpus!r})
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({{**report.as_dict(), "processor": sum(u.ru_utime + u.ru_stime for u in used)}}))
"""


class Baseline:
    """Copies the package without faults; each finding is repeated in this copy."""

    def __init__(self) -> None:
        self.child, self.lock = Child(60.0, 3 << 30, Path(tempfile.mkdtemp())), Lock()

    def fails(self, failure: dict[str, object]) -> bool:
        door = DOORS[str(failure["door"])]
        with self.lock:
            return self.child.visit(Case(door.form, str(failure["case"]), int(str(failure["seed"]))), door).failed


def planted(name: str, folder: Path) -> None:
    """Copies the package, with a fault."""
    for part in ("glenside", "rewrites", "extract"):
        shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    file, old, new, _ = FAULTS[name]
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{name}: the text to change is there {text.count(old)} times in {file}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def measured(name: str, arguments: argparse.Namespace, baseline: Baseline) -> dict[str, object]:
    """Fuzzes a copy with a fault; returns its row: whether it was found, by which door, and after how long."""
    doors = OF_KIND[name.rpartition("-")[0]].split(",") if arguments.doors == "kind" else None
    budget, spent, cases, known = 60 * arguments.minutes * arguments.jobs, 0.0, 0, 0
    began = time.monotonic()
    row = {"fault": name, "file": FAULTS[name][0], "sentence": FAULTS[name][3], "found": "no"}
    with tempfile.TemporaryDirectory() as folder:
        planted(name, Path(folder))
        seed = arguments.seed
        while spent < budget:
            minutes = min(4.0, max(0.2, 3 * (budget - spent) / 60 / arguments.jobs))  # the machine may be busy
            corpus = str(Path(folder) / "corpus")
            shutil.copytree(ROOT / "tests/fuzzing/corpus", corpus, dirs_exist_ok=True)
            text = _RUN.format(minutes=minutes, seed=seed, doors=doors, jobs=arguments.jobs, corpus=corpus)
            environment = {**os.environ, "PYTHONPATH": folder}
            done = subprocess.run(
                [sys.executable, "-c", text], cwd=folder, env=environment, capture_output=True, text=True
            )
            if done.returncode and "does not start" not in done.stderr:  # the package cannot be imported
                row |= {
                    "found": "yes",
                    "door": "import of the package",
                    "kind": done.stderr.strip().split("\n")[-1][:80],
                }
                break
            if done.returncode:
                row |= {"found": "not measured"}
                break
            report = json.loads(done.stdout.strip().split("\n")[-1])
            spent += max(1.0, float(report["processor"]))
            cases += report["cases"]
            new = [failure for failure in report["failures"] if not baseline.fails(failure)]
            if new:
                first = new[0]
                row |= {"found": "yes", "door": first["door"], "kind": first["kind"], "detail": first["detail"][:120]}
                break
            known += len(report["failures"])
            seed += 1000
            if time.monotonic() - began > arguments.wall:
                break
    wall = time.monotonic() - began
    return {**row, "cases": cases, "known": known, "processor_s": round(spent, 1), "wall_s": round(wall, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=2, help="processes of each fuzzer")
    parser.add_argument("--beside", type=int, default=1, help="faults at a time")
    parser.add_argument("--doors", default="all", choices=["all", "kind"])
    parser.add_argument("--only", default="", help="kinds or names of faults, with commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wall", type=float, default=1e9, help="the most seconds of one fault")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else sorted(OF_KIND)
    names = [name for name in FAULTS if name in chosen or name.rpartition("-")[0] in chosen]
    known: dict[str, dict[str, object]] = {}
    if Path(arguments.output).exists():
        with open(arguments.output, encoding="utf-8") as file:
            known = {row["fault"]: dict(row) for row in csv.DictReader(file)}
    baseline, lock = Baseline(), Lock()
    columns = "fault found door kind cases known processor_s wall_s file sentence detail".split()

    def one(name: str) -> None:
        row = measured(name, arguments, baseline)
        with lock:
            known[name] = row
            print(f"{name}: {row['found']} {row.get('door', '')} {row['processor_s']} s: {row['sentence']}", flush=True)
            with open(arguments.output, "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows(known[key] for key in FAULTS if key in known)

    with ThreadPoolExecutor(arguments.beside) as crew:
        list(crew.map(one, names))
    found = sum(row["found"] == "yes" for row in known.values())
    print(f"{found} of {len(known)} found; {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:.0f} s of processors")


if __name__ == "__main__":
    main()
