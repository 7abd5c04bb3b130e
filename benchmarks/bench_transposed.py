"""Times every variant of transposed 1-d convolutions of sound, and PyTorch.

    python -m benchmarks.bench_transposed    # with torch installed

All alternate in one process, on one thread and on two. Columns:

- `layer`: length, channels in and out, window / stride.
- `predicted ms`: predicted time on one thread, by which the variant is chosen.
- `ms`: median of 15 rounds; a round is the fastest of three calls, each with a new result array.
- `PyTorch over it`: median ratio of rounds.
- `chosen`, `fastest`: whether the variant was chosen, and whether it was the fastest.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glenside as gl
from glenside.passes.answer import Placed
from glenside.passes.variants import Extracted
from glenside.targets.base import Way
from glenside.targets.cpu.compiled import CompiledCPU

RESULTS = Path(__file__).parent / "results" / "bench_transposed.csv"
# (length, channels in, channels out, window, stride)
SHAPES = ((16000, 192, 96, 4, 2), (3200, 384, 192, 10, 5), (48000, 64, 32, 4, 2))
ROUNDS, CALLS = 15, 3


class EveryVariant(CompiledCPU):
    """A processor target that keeps the candidates: label -> (program, predicted nanoseconds)."""

    def in_place(self, found: Sequence[Extracted], placed: Placed, way: Way) -> Sequence[Extracted]:
        (of_layer,) = tried = super().in_place(found, placed, way)
        self.every = {v.label: (placed.program([v]), v.measures["time"] or 0) for v in of_layer.variants}
        return tried


def least(run: Callable[[], Any]) -> float:
    """Returns the least seconds of a few calls."""
    found = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return min(found)


def measure(length: int, given: int, made: int, window: int, stride: int) -> list[dict[str, Any]]:
    """Returns a row for each variant and number of threads."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((1, given, length), np.float32)
    w = draw.standard_normal((given, made, window), np.float32) * np.float32((given * window) ** -0.5)
    b = gl.Builder("p")
    layer = b.conv_transpose(b.input("x", x.shape), b.constant("w", w.shape), strides=stride, name="layer")
    target = EveryVariant(machine="native")
    chosen = gl.optimize(b.finish(layer).with_constants({"w": w}), target, verify=False).report.layers[0].chosen.label
    runs = {label: gl.compile(program, "none") for label, (program, _) in target.every.items()}
    torch_x, torch_w = torch.from_numpy(x), torch.from_numpy(w)
    want = torch.nn.functional.conv_transpose1d(torch_x, torch_w, stride=stride).numpy()
    rows = []
    for threads in (1, 2):
        torch.set_num_threads(threads)

        def peer() -> Any:
            with torch.inference_mode():
                return torch.nn.functional.conv_transpose1d(torch_x, torch_w, stride=stride)

        taken: dict[str, list[float]] = {label: [] for label in (*runs, "PyTorch")}
        for _ in range(ROUNDS):
            for label, f in runs.items():
                taken[label].append(least(partial(f, x, threads=threads)))
            taken["PyTorch"].append(least(peer))
        fastest = min(runs, key=lambda label: statistics.median(taken[label]))
        for label, f in runs.items():
            ratio = statistics.median(a / b for a, b in zip(taken["PyTorch"], taken[label], strict=True))
            row = {"layer": f"{length} {given}->{made} {window}/{stride}", "threads": threads, "variant": label}
            row |= {
                "predicted ms": f"{1e-6 * target.every[label][1]:.2f}",
                "ms": f"{1e3 * statistics.median(taken[label]):.2f}",
            }
            row |= {"PyTorch over it": f"{ratio:.2f}", "chosen": label == chosen, "fastest": label == fastest}
            row |= {"differs": f"{np.abs(f(x) - want).max() / np.abs(want).max():.0e}"}
            rows.append(row)
            print(*row.values(), flush=True)
    return rows


def main() -> None:
    """Measure all shapes."""
    rows = [row for shape in SHAPES for row in measure(*shape)]
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# 2 processors, shared, PyTorch {torch.__version__}\n")
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
