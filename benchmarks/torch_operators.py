"""Runs PyTorch's samples of all its operators (OpInfo) through the import, and writes what became of them.

    python benchmarks/torch_operators.py                    # all; some 20 minutes on one core
    python benchmarks/torch_operators.py --only softmax     # operators whose name contains a word; prints what fails

Results: benchmarks/results/torch_operators.csv, a row for each operator and dtype.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "oracles")]

RESULTS = Path(__file__).parent / "results" / "torch_operators.csv"
KINDS = ("passed", "refused", "wrong", "decomposition", "unspecified", "skipped", "not run")
"""Outcomes. decomposition: that of PyTorch differs from its operator; unspecified: PyTorch leaves it open."""
SECONDS = 30
"""Of one operator and dtype; further samples are counted as not run."""


def row_of(info: Any, dtype: Any, table: Any, prints: bool) -> list[Any]:
    """Returns the row of one operator and dtype."""
    from torch_samples import UNSPECIFIED, judged, samples

    name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
    counts, first, used, begin = Counter[str](), dict[str, str](), set[str](), time.perf_counter()
    try:
        for args, kwargs in samples(info, dtype):
            if time.perf_counter() - begin > SECONDS:
                counts["not run"] += 1
                continue
            verdict = judged(info.op, (args, kwargs), table)
            outcome = "unspecified" if verdict.outcome == "wrong" and info.name in UNSPECIFIED else verdict.outcome
            counts[outcome] += 1
            first.setdefault(outcome, verdict.words)
            used |= verdict.operators
            if prints and outcome in ("wrong", "refused"):
                print(name, dtype, outcome, verdict.words)
    except Exception as error:  # PyTorch makes no samples
        first.setdefault("no samples", f"{type(error).__name__}: {error}"[:200])
    order = ("wrong", "refused", "no samples", "decomposition", "skipped")
    words = next((first[kind] for kind in order if first.get(kind)), "")
    return [name, str(dtype), *(counts[kind] for kind in KINDS), " ".join(words.split()), " ".join(sorted(used))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("-o", "--output", default=None)
    options = parser.parse_args()
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch_samples import decompositions

    torch.set_num_threads(1)
    table = decompositions()
    shard, shards = map(int, options.shard.split("/"))
    rows = []
    for info in [info for i, info in enumerate(op_db) if options.only in info.name and i % shards == shard]:
        for dtype in (torch.float32, torch.int64, torch.bool):
            if dtype in info.dtypes:
                rows.append(row_of(info, dtype, table, bool(options.only)))
                print(*rows[-1][:9], rows[-1][9][:150], flush=True)
    if options.output or not options.only:
        with Path(options.output or RESULTS).open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["operator", "dtype", *KINDS, "first failure", "aten"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
