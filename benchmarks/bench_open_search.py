"""Times programs with open sizes as they are written, and in the forms that the search finds for some of their sizes.

    python benchmarks/bench_open_search.py [--rounds 15] [-o results/open_search.csv]

Calls in turn, medians, on one thread. `variant` is the number of the variant that is called.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import glenside as gl
from benchmarks.bench_open_sizes import in_turn
from glenside.builder import layout
from glenside.codegen.open_sizes.variants import OpenVariants
from glenside.ir.term import build


def linear_attention(n: int, width: int = 64) -> gl.Program:
    """(q k^T) v without a softmax."""
    b = gl.Builder("linear attention")
    q, k, v = (b.input(name, (n, width)) for name in "qkv")
    return b.finish(b.matmul(b.matmul(q, layout.transpose(k, (1, 0))), v))


def low_rank_update(rows: int, width: int = 1024, rank: int = 8) -> gl.Program:
    """x (W + B A) with a low-rank update that is an input."""
    b = gl.Builder("low-rank update")
    x, w = b.input("x", (rows, width)), b.input("w", (width, width))
    return b.finish(b.matmul(x, b.add(w, b.matmul(b.input("b", (width, rank)), b.input("a", (rank, width))))))


def latent_attention(
    rows: int, past: int, heads: int = 8, head: int = 64, latent: int = 128, width: int = 512
) -> gl.Program:
    """Attention over a cache of latent vectors, from which keys and values are computed."""
    b, length = gl.Builder("latent attention"), past + rows
    x, cache = b.input("x", (rows, width)), b.input("past", (past, latent))
    draw = np.random.default_rng(0)

    def weight(name: str, *dims: int) -> Any:
        value = draw.standard_normal(dims) / np.sqrt(dims[1])
        return b.constant(name, dims, value=value.astype("float32"))

    kept = layout.concatenate([cache, b.linear(x, weight("wc", latent, width))], 0)
    q = layout.reshape(b.linear(x, weight("wq", heads * head, width)), (rows, heads, head))
    k = layout.reshape(b.linear(kept, weight("wk", heads * head, latent)), (length, heads, head))
    v = layout.reshape(b.linear(kept, weight("wv", heads * head, latent)), (length, heads, head))
    scores = b.softmax(b.matmul(layout.transpose(q, (1, 0, 2)), layout.transpose(k, (1, 2, 0))))
    y = layout.transpose(b.matmul(scores, layout.transpose(v, (1, 0, 2))), (1, 0, 2))
    return b.finish(build("construct-tuple", layout.reshape(y, (rows, heads * head)), kept))


PROGRAMS: Mapping[str, tuple[gl.OpenProgram, Sequence[Mapping[str, int]]]] = {
    "linear attention": (
        gl.open_program(linear_attention, n=(1, 2048)),
        [{"n": 1}, {"n": 64}, {"n": 512}, {"n": 2048}],
    ),
    "low-rank update": (
        gl.open_program(low_rank_update, rows=(1, 2048)),
        [{"rows": 1}, {"rows": 16}, {"rows": 128}, {"rows": 2000}],
    ),
    "latent attention": (
        gl.open_program(latent_attention, rows=(1, 128), past=(0, 1024)),
        [
            {"rows": 1, "past": 100},
            {"rows": 1, "past": 1000},
            {"rows": 16, "past": 1000},
            {"rows": 128, "past": 0},
            {"rows": 128, "past": 1000},
        ],
    ),
}


def main() -> None:
    """Prints and writes one row for each program and choice of sizes."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("-o", "--output", default=str(Path(__file__).parent / "results" / "open_search.csv"))
    given = options.parse_args()
    with Path(given.output).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(
            ["program", "sizes", "as written ms", "searched ms", "variant", "compile s", "compile as written s"]
        )
        for name, (program, choices) in PROGRAMS.items():
            began = time.perf_counter()
            searched = gl.compile(program)
            middle = time.perf_counter()
            written = gl.compile(program, "none")
            seconds = middle - began, time.perf_counter() - middle
            for sizes in choices:
                variant = searched.choose(sizes) + 1 if isinstance(searched, OpenVariants) else 1
                arrays = written.drawn(sizes)
                runs = {
                    "written": partial(written, arrays, threads=1),
                    "searched": partial(searched, arrays, threads=1),
                }
                times = in_turn(runs, given.rounds)
                row = [name, " ".join(f"{n}={size}" for n, size in sizes.items())]
                row += [f"{times['written']:.4g}", f"{times['searched']:.4g}", str(variant)]
                row += [f"{own:.3g}" for own in seconds]
                rows.writerow(row)
                print(*row, sep=", ", flush=True)


if __name__ == "__main__":
    main()
