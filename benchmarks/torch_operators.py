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

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "oracles")]

RESULTS = Path(__file__).parent / "results" / "torch_operators.csv"
SECONDS = 8
"""Of one operator and dtype; further samples are counted as not run."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("-o", "--output", default=None)
    options = parser.parse_args()
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch_samples import decompositions, judged, samples

    torch.set_num_threads(1)
    table = decompositions()
    shard, shards = map(int, options.shard.split("/"))
    rows = []
    for number, info in enumerate(op_db):
        name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
        if options.only not in name or number % shards != shard:
            continue
        for dtype in (torch.float32, torch.int64, torch.bool):
            if dtype not in info.dtypes:
                continue
            counts, first, used, begin = Counter[str](), {}, set(), time.perf_counter()
            try:
                for args, kwargs in samples(info, dtype):
                    if time.perf_counter() - begin > SECONDS:
                        counts["not run"] += 1
                        continue
                    verdict = judged(info.op, (args, kwargs), table)
                    counts[verdict.outcome] += 1
                    first.setdefault(verdict.outcome, verdict.words)
                    used |= verdict.operators
                    if options.only and verdict.outcome in ("wrong", "refused"):
                        print(name, dtype, verdict.outcome, verdict.words)
            except Exception as error:
                counts["no samples"] += 1
                first.setdefault("no samples", f"{type(error).__name__}: {error}"[:200])
            words = next(
                (
                    first[kind]
                    for kind in ("wrong", "refused", "no samples", "decomposition", "skipped")
                    if first.get(kind)
                ),
                "",
            )
            kinds = ("passed", "refused", "wrong", "decomposition", "skipped", "not run")
            rows.append(
                [name, str(dtype), *(counts[kind] for kind in kinds), " ".join(words.split()), " ".join(sorted(used))]
            )
            print(*rows[-1][:8], rows[-1][8][:150], flush=True)
    if options.output or not options.only:
        path = Path(options.output or RESULTS)
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(
                [
                    "operator",
                    "dtype",
                    "passed",
                    "refused",
                    "wrong",
                    "decomposition",
                    "skipped",
                    "not run",
                    "first failure",
                    "aten",
                ]
            )
            writer.writerows(rows)


if __name__ == "__main__":
    main()
