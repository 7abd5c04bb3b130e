"""Compares decoders of transformers with PyTorch: prefill and decode, at fixed sizes and with open sizes.

    python -m benchmarks.bench_decoder_architectures [--kinds Llama,GPT2] [--cases open-prefill] [--layers 5]

A row for each architecture and case: the largest error, relative to the largest number of a result, over the sizes of
the case; seconds to compile; and whether loops are tiled. Weights are random, two layers by default, 64 wide; from
four on, equal layers of open sizes are compiled once. Requires PyTorch and
transformers.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glenside as gl
from benchmarks.decoder_architectures import KINDS, RECURRENT, Decode, Prefill, decoder_of, ids_of, of_layers
from glenside.ir.errors import GlensideError

RESULTS = Path(__file__).parent / "results" / "decoder_architectures.csv"
COLUMNS = ("architecture", "case", "layers", "stages", "sizes", "error", "compile_s", "loops", "said")
CASES = ("prefill", "decode", "open-prefill", "open-decode", "open-both")
LENGTHS, PASTS, ROWS = (1, 2, 3, 5, 17, 33, 64), (1, 2, 3, 7, 20, 63), (1, 2, 5, 16)


def flat(found: Any) -> list[Any]:
    """Returns the tensors of a result."""
    return [found["logits"], *found["new"]]


def given(module: Any, rows: int, past: int) -> tuple[Any, ...]:
    """Returns the arguments of a step of `rows` tokens after `past` others; of a prefill, if `past` is 0."""
    if not past:
        return (ids_of(rows, rows),)
    return ids_of(rows, rows), [tensor.clone() for tensor in flat(Prefill(module)(ids_of(past, 5)))[1:]]


def error(function: Any, step: Any, arguments: tuple[Any, ...]) -> float:
    """Returns the largest error of a compiled step, relative to the largest number of each result."""
    wanted = flat(step(*arguments))
    found = function(arguments[0], *(arguments[1] if len(arguments) > 1 else ()))
    pairs = [(np.asarray(own, float), other.numpy()) for own, other in zip(found, wanted, strict=True) if other.numel()]
    return max(float(np.abs(own - other).max() / max(np.abs(other).max(), 1e-30)) for own, other in pairs)


def dynamic(case: str, kind: str, count: int) -> Any:
    """Returns the dims that stay open, for `torch.export`."""
    rows, past = torch.export.Dim("rows", min=1, max=64 if case == "open-prefill" else 16), None
    if kind not in RECURRENT:
        past = torch.export.Dim("past", min=1, max=63)
    of_ids = {1: rows} if case != "open-decode" else None
    if case == "open-prefill":
        return {"ids": of_ids}
    return {"ids": of_ids, "past": [{2: past} if past is not None else None for _ in range(count)]}


def measured(kind: str, case: str, layers: int) -> dict[str, object]:
    """Returns a row of results."""
    module = decoder_of(kind, **of_layers(kind, layers))
    is_open, prefill = case.startswith("open"), case.endswith("prefill")
    step = (Prefill if prefill else Decode)(module)
    rows = 1 if case.endswith("decode") else 11 if prefill else 3
    first = given(module, rows, 0 if prefill else 7)
    sizes = [(rows, 0 if prefill else 7)]
    if is_open:
        sizes = [(n, 0) for n in LENGTHS] if prefill else [(r, p) for r in (ROWS if rows > 1 else (1,)) for p in PASTS]
    shapes = dynamic(case, kind, len(first[1]) if len(first) > 1 else 0) if is_open else None
    program = gl.from_torch(step, first, dynamic_shapes=shapes)
    began = time.perf_counter()
    function = gl.compile(program, "none")
    seconds = time.perf_counter() - began
    largest = max(error(function, step, given(module, *own)) for own in sizes)
    report = str(function.report)
    stages = report.partition("\n")[0].removeprefix("Stages: ") if report.startswith("Stages: ") else ""
    return {"stages": stages, "sizes": len(sizes), "error": f"{largest:.1e}", "compile_s": f"{seconds:.1f}"} | {
        "loops": "plain" if "plain loops" in report else "tiled",
        "said": report.partition("plain loops")[2].strip(", ")[:120],
    }


def rows_of(kinds: list[str], cases: list[str], layers: int) -> Iterator[dict[str, object]]:
    """Yields a row for each architecture and case."""
    for kind in kinds:
        for case in cases:
            try:
                with torch.no_grad():
                    row = measured(kind, case, layers)
            except (GlensideError, AttributeError) as problem:  # transformers' own caches lack some methods
                row = {"said": f"{type(problem).__name__}: {problem}".replace("\n", " ")[:160]}
            yield {"architecture": kind, "case": case, "layers": layers, **row}


def main() -> None:
    """Writes a row for each architecture and case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("-o", "--output", default=str(RESULTS))
    parser.add_argument("--layers", type=int, default=2)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with Path(asked.output).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows_of(asked.kinds.split(","), asked.cases.split(","), asked.layers):
            print(*(row.get(name, "") for name in COLUMNS), flush=True)
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
