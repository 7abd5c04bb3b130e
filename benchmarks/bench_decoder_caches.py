"""Times decode steps over caches of float32, halves and int8, in turn, and measures what these change.

    OMP_NUM_THREADS=1 python -m benchmarks.bench_decoder_caches

Random weights of 4 bits, int8 activations, one thread. `ms` is the median of one token after `past` others, over rounds
in turn, in processor time; `speed` is the median of float32's time over it. `error` is the largest difference of the
logits from those over a float32 cache, over the largest logit, after `past` tokens, with float32 activations.
"""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import glenside as gl
from glenside.models.decoder import Decoder, growing_step
from glenside.models.decoder_cache import CACHES
from glenside.models.decoder_weights import RandomWeights

RESULTS = Path(__file__).parent / "results" / "decoder_caches.csv"
ROUNDS, MOST = 25, 1200
TIMED = Decoder("1B block", 1, 2048, 32, 8, 64, 8192, 512, rotated=64)
MEASURED = (
    Decoder("grouped, 4 layers", 4, 512, 8, 2, 64, 1024, 512, rotated=64),
    Decoder("grouped, 2 layers, heads of 128", 2, 1024, 8, 2, 128, 2048, 512, rotated=128),
    Decoder(
        "layer norms, learned positions", 4, 512, 8, 8, 64, 2048, 512, norm="layer", activation="gelu", gated=False
    ),
    Decoder("window of 128, scaled", 4, 512, 8, 4, 64, 1024, 512, rotated=64, window=128, scaled=True),
)  # fmt: skip


def function(shape: Decoder, bits: int, rows: Any) -> Any:
    """Returns the function of a step with its state."""
    values: dict[str, Any] = {}

    def make(**sizes: int) -> gl.Program:
        own = {"rows": rows, **sizes} if isinstance(rows, int) else sizes
        return growing_step(shape, RandomWeights(bits, values=values), context=2048, **own)  # type: ignore[arg-type]

    ranges = {"past": (0, MOST)} | ({} if isinstance(rows, int) else {"rows": rows})
    activations = "int8" if bits < 32 else "float32"
    return gl.compile(gl.open_program(make, shape.name, **ranges), "none", activations=activations, state=True)


def timed() -> list[dict[str, Any]]:
    """Returns the rows of times."""
    steps = {cache: function(replace(TIMED, cache=cache), 4, 1) for cache in CACHES}
    found = []
    for past in (128, 1024):
        rng = np.random.default_rng(0)
        for step in steps.values():
            step.reset(past=past)
            for name in step.state:
                drawn = rng.standard_normal(step.state[name].shape) * (20 if step.state[name].dtype == np.int8 else 1)
                step.state[name] = drawn.astype(step.state[name].dtype)
        seconds: dict[str, list[float]] = {cache: [] for cache in CACHES}
        for _ in range(ROUNDS):
            for cache, step in steps.items():
                begin = time.thread_time()
                for _ in range(4):
                    step(np.array([3]), threads=1)
                seconds[cache].append((time.thread_time() - begin) / 4)
        for cache, step in steps.items():
            own = seconds[cache]
            ratio = median(a / b for a, b in zip(seconds["float32"], own, strict=True))
            size = sum(step.state[name].nbytes for name in step.state)
            row = {"shape": TIMED.name, "past": past, "cache": cache, "ms": round(1e3 * median(own), 3)}
            found.append(row | {"speed": round(ratio, 2), "state MB": round(size / 1e6, 2), "error": ""})
            print(found[-1], flush=True)
    return found


def measured() -> list[dict[str, Any]]:
    """Returns the rows of errors."""
    found = []
    for shape in MEASURED:
        tokens = np.random.default_rng(0).integers(0, shape.vocabulary, MOST)
        right: dict[int, np.ndarray] = {}
        for cache in CACHES:
            step = function(replace(shape, cache=cache), 32, (1, 128))
            for past in (128, 1024):
                while (at := step.state["keys.0"].shape[0]) < past:
                    logits = step(tokens[at : at + 128], threads=1)
                right.setdefault(past, logits)
                error = float(np.abs(logits - right[past]).max() / np.abs(right[past]).max())
                row = {"shape": shape.name, "past": past, "cache": cache, "ms": "", "speed": "", "state MB": ""}
                found.append(row | {"error": f"{error:.1e}"})
                print(found[-1], flush=True)
    return found


def main() -> None:
    """Print and write all rows."""
    rows = [*timed(), *measured()]
    with RESULTS.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
