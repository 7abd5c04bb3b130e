"""Imports networks of torchvision, timm and transformers with `gl.from_torch`, and compares their results with PyTorch.

    python benchmarks/bench_torch.py                 # all, each in a process of its own
    python benchmarks/bench_torch.py --only resnet   # those whose name contains a word
    python benchmarks/bench_torch.py --compile       # also by the function that gl.compile makes

Results: benchmarks/results/torch_networks.csv, a row for each network; the error is relative to the largest number.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
RESULTS = Path(__file__).parent / "results" / "torch_networks.csv"
COLUMNS = ("network", "verdict", "error", "operators", "parameters", "export and import s", "compiled error", "words")
LIMIT = 1e-5
SECONDS = 600


def row_of(name: str, compiles: bool) -> dict[str, Any]:
    """Returns the row of one network."""
    import numpy as np
    import torch
    from torch_networks import draw_constants, networks

    import glenside as gl

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, args = networks()[name]()
    module = module.eval()
    draw_constants(module)
    row: dict[str, Any] = {"network": name, "parameters": sum(p.numel() for p in module.parameters())}
    with torch.no_grad():
        want = torch.utils._pytree.tree_leaves(module(*args))
    want = [x.numpy() for x in want if isinstance(x, torch.Tensor)]
    begin = time.perf_counter()
    try:
        program = gl.from_torch(module, args)
    except gl.GlensideError as error:
        return row | {"verdict": "refused", "words": str(error)[:300]}
    row["export and import s"] = round(time.perf_counter() - begin, 1)
    row["operators"] = len(set(program.nodes.values()))
    inputs = {n: x.numpy() for n, x in zip(program.inputs, torch.utils._pytree.tree_leaves(args), strict=True)}

    def error_of(found: Any) -> float:
        found = found if isinstance(found, tuple) else (found,)
        errors = [np.abs(a - b).max() / max(np.abs(b).max(), 1e-30) for a, b in zip(found, want, strict=True)]
        return float(max(errors))

    row["error"] = error = error_of(gl.evaluate([program.term], {**program.constants, **inputs})[0])
    if compiles:
        row["compiled error"] = f"{error_of(gl.compile(program, 'none')(inputs)):.1e}"
    return row | {"verdict": "equal" if error <= LIMIT else "differs", "error": f"{error:.1e}"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--one", default="")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("-o", "--output", default=None)
    options = parser.parse_args()
    if options.one:
        print("\n" + json.dumps(row_of(options.one, options.compile)))
        return
    from torch_networks import networks

    rows = []
    shard, shards = map(int, options.shard.split("/"))
    for number, name in enumerate(networks()):
        if options.only not in name or number % shards != shard:
            continue
        command = [sys.executable, __file__, "--one", name, *(["--compile"] if options.compile else [])]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            row = json.loads(run.stdout.strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            row = {"network": name, "verdict": "too slow", "words": f"more than {SECONDS} s"}
        except (IndexError, ValueError):
            row = {"network": name, "verdict": "error", "words": " ".join(run.stderr.strip().splitlines()[-3:])[:300]}
        rows.append(row)
        print(*(row.get(column, "") for column in COLUMNS), flush=True)
    if options.output or not options.only:
        with Path(options.output or RESULTS).open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
