"""Times training steps of strided convolutions, whose gradients sum overlapping windows.

    python -m benchmarks.bench_sums_of_windows [NETWORK ..]

Rows of networks that are not named are kept. Columns:

- `searched`: `as written`: no search. `products`: variants of products alone. `with their sums`: variants of products
  together with the sums of their windows.
- `predicted ms`: predicted time on one thread, by which variants are chosen.
- `ms`: median of rounds; a round is the faster of two calls. The three alternate.
- `products over it`: median ratio of rounds; above 1, faster than `products`.
"""

from __future__ import annotations

import csv
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import glenside as gl
from glenside.check.compiled import Function
from glenside.codegen.runtime.compiled_function import keeping
from glenside.ir.program import Program
from glenside.models import load
from glenside.passes.integer_sums import for_processors
from glenside.passes.network import Pass
from glenside.targets.base import Way
from glenside.targets.cpu.compiled import CompiledCPU

RESULTS = Path(__file__).parent / "results" / "bench_sums_of_windows.csv"
SECONDS, LEAST = 12, 7


class OfProducts(CompiledCPU):
    """A processor whose layers are products alone."""

    def passes(self, way: Way) -> Sequence[Pass]:
        return (for_processors,)


def digits() -> tuple[Program, str]:
    """Builds three convolutions of stride 2 on 64 images of 28 x 28."""
    b = gl.Builder("digits")
    x = b.input("x", (64, 1, 28, 28))
    for name, channels, filters in (("c1", 1, 16), ("c2", 16, 32), ("c3", 32, 64)):
        w = b.constant(f"{name}.w", (filters, channels, 3, 3))
        x = b.relu(b.conv(x, w, strides=2, padding=1, name=name))
    return b.finish(b.linear(b.reshape(x, (64, 1024)), b.constant("w", (10, 1024)), name="fc")), "softmax-cross-entropy"


def autoencoder() -> tuple[Program, str]:
    """Builds two convolutions of stride 2 and two transposed ones back, on 16 images of 32 x 32."""
    b = gl.Builder("autoencoder")
    x = b.input("x", (16, 3, 32, 32))
    for name, channels, filters in (("e1", 3, 32), ("e2", 32, 64)):
        w = b.constant(f"{name}.w", (filters, channels, 4, 4))
        x = b.relu(b.conv(x, w, strides=2, padding=1, name=name))
    x = b.relu(b.conv_transpose(x, b.constant("d1.w", (64, 32, 4, 4)), strides=2, padding=1, name="d1"))
    return b.finish(b.conv_transpose(x, b.constant("d2.w", (32, 3, 4, 4)), strides=2, padding=1, name="d2")), (
        "squared-error"
    )


NETWORKS: dict[str, Callable[[], tuple[Program, str]]] = {
    "digits": digits,
    "autoencoder": autoencoder,
    "resnet-18 at 96, batch 2": lambda: (load("resnet-18", resolution=96, batch=2), "softmax-cross-entropy"),
    "unet-small at 64, batch 1": lambda: (load("unet-small", resolution=64, batch=1), "squared-error"),
}


def compiled(program: Program, target: CompiledCPU) -> tuple[Function, str]:
    """Compiles a program; returns it and its predicted milliseconds."""
    result = gl.optimize(program, target, verify=False)
    chosen = keeping([result.program, result.prepared], target.processor, None)
    return Function(chosen, target.processor, result.report, None), f"{1e-6 * (result.cost['time'] or 0):.2f}"


def values_of(program: Program) -> dict[str, Any]:
    """Draws small numbers for all tensors, and valid class labels."""
    draw = np.random.default_rng(0)
    return {
        name: draw.integers(0, 2, t.dims).astype(t.dtype)
        if t.dtype.startswith("int")
        else (0.05 * np.abs(draw.standard_normal(t.dims)) + 0.01).astype(t.dtype)
        for name, t in program.tensors.items()
    }


def measure(name: str) -> list[dict[str, Any]]:
    """Returns a row for each way and number of threads."""
    program, loss = NETWORKS[name]()
    step = gl.training_step(program, loss, gl.SGD("0.01")).program
    runs = {"as written": (gl.compile(step, "none"), "")}
    runs |= {"products": compiled(step, OfProducts(machine="native"))}
    runs |= {"with their sums": compiled(step, CompiledCPU(machine="native"))}
    values = values_of(step)
    for f, _ in runs.values():
        f(**values)
    rows = []
    for threads in (1, 2):
        taken: dict[str, list[float]] = {how: [] for how in runs}
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or len(taken["products"]) < LEAST:
            for how, (f, _) in runs.items():
                found = []
                for _ in range(2):
                    begin = time.perf_counter()
                    f(**values, threads=threads)
                    found.append(time.perf_counter() - begin)
                taken[how].append(min(found))
        for how, (_, predicted) in runs.items():
            ratio = statistics.median(a / b for a, b in zip(taken["products"], taken[how], strict=True))
            rows.append(
                {
                    **{"network": name, "threads": threads, "searched": how, "predicted ms": predicted},
                    **{"ms": f"{1e3 * statistics.median(taken[how]):.2f}", "products over it": f"{ratio:.2f}"},
                }
            )
            print(*rows[-1].values(), sep=", ", flush=True)
    return rows


def main() -> None:
    """Measure the networks that are named, or all."""
    named = sys.argv[1:] or [*NETWORKS]
    kept: list[dict[str, Any]] = []
    if RESULTS.exists():
        lines = RESULTS.read_text(encoding="utf-8").splitlines()[1:]
        kept = [row for row in csv.DictReader(lines) if row["network"] not in named]
    rows = [*kept, *(row for name in named for row in measure(name))]
    rows.sort(key=lambda row: [*NETWORKS].index(row["network"]))
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        file.write("# 2 processors with AVX-512, shared\n")
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
