"""Times programs of microseconds on one thread and on two.

    python -m benchmarks.bench_small [PROGRAM ..]

Programs are dense layers, convolutions, depthwise and pointwise convolutions, and attention, searched for two threads
by the built-in costs. One thread and two alternate, 30 times 40 calls. Columns:

- `nests`, `shared`: loop nests, and those that run on both threads.
- `one us`, `two us`: microseconds of a call from Python.
- `two over one`: above 1, the second thread makes the program slower.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import glenside as gl
from glenside.builder.layout import reshape
from glenside.builder.pointwise import compute
from glenside.codegen.cost.count_work import is_shared
from glenside.codegen.runtime.compiled_function import Compiled
from glenside.execution.fit import processor
from glenside.ir.program import Program
from glenside.ir.term import Term

RESULTS = Path(__file__).parent / "results" / "bench_small.csv"
TURNS, CALLS, LAYERS = 30, 40, 3
_CONVOLUTIONS = (
    (4, 8),
    (8, 8),
    (4, 32),
    (8, 16),
    (8, 32),
    (4, 64),
    (16, 8),
    (16, 16),
    (32, 8),
    (16, 32),
    (4, 128),
    (8, 64),
)
_SEPARABLE = (4, 16), (8, 16), (8, 32), (4, 128), (16, 16), (16, 32), (8, 128), (32, 32)
_ATTENTION = (4, 16), (8, 32), (16, 32), (16, 64), (32, 64), (64, 64), (128, 32)


class Layers:
    """Builds a program layer by layer, with random weights."""

    def __init__(self, name: str, *dims: int) -> None:
        self.b, self.draw, self.count = gl.Builder(name), np.random.default_rng(0), 0
        self.x = self.b.input("x", dims)

    def weights(self, *dims: int) -> Term:
        self.count += 1
        value = self.draw.standard_normal(dims).astype(np.float32) / np.float32(np.prod(dims[1:]) ** 0.5)
        return self.b.constant(f"w{self.count}", dims, value=value)

    def relu(self, x: Term) -> None:
        self.x = compute("relu", x)


def dense(rows: int, width: int) -> Program:
    made = Layers(f"{LAYERS} layers, {rows} x {width}", rows, width)
    for _ in range(LAYERS):
        made.relu(made.b.linear(made.x, made.weights(width, width)))
    return made.b.finish(made.x)


def convolutions(size: int, channels: int) -> Program:
    made = Layers(f"{LAYERS} convolutions, {channels} x {size} x {size}", 1, channels, size, size)
    for _ in range(LAYERS):
        made.relu(made.b.conv(made.x, made.weights(channels, channels, 3, 3), padding=1))
    return made.b.finish(made.x)


def separable(size: int, channels: int) -> Program:
    made = Layers(f"{LAYERS} separable ones, {channels} x {size} x {size}", 1, channels, size, size)
    for _ in range(LAYERS):
        made.relu(made.b.conv(made.x, made.weights(channels, 1, 3, 3), padding=1, groups=channels))
        made.relu(made.b.conv(made.x, made.weights(channels, channels, 1, 1)))
    return made.b.finish(made.x)


def attention(words: int, width: int) -> Program:
    made = Layers(f"2 of attention, {words} x {width}", words, width)
    for _ in range(2):
        parts = [made.b.linear(made.x, made.weights(width, width)) for _ in range(3)]
        q, k, v = (reshape(part, (1, words, width)) for part in parts)
        made.x = reshape(made.b.attention(q, k, v, heads=2), (words, width))
    return made.b.finish(made.x)


def programs() -> Iterator[Program]:
    for width in (16, 32, 64, 128, 256, 512):
        yield from (dense(rows, width) for rows in (1, 4, 16, 64) if width**2 * rows < 3_000_000)
    for size, channels in _CONVOLUTIONS:
        yield convolutions(size, channels)
    for size, channels in _SEPARABLE:
        yield separable(size, channels)
    for words, width in _ATTENTION:
        yield attention(words, width)


def measured(f: Compiled) -> list[float]:
    """Returns the microseconds of a call on one thread and on two: medians of the turns, of the medians of each turn's
    calls.
    """
    given, out = f.drawn(), f.results()
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(TURNS):
        for threads, seconds in found.items():
            own = []
            for _ in range(CALLS):
                begin = time.perf_counter()
                f(*given, threads=threads, out=out)
                own.append(time.perf_counter() - begin)
            seconds.append(statistics.median(own))
    return [1e6 * statistics.median(seconds) for seconds in found.values()]


def main() -> None:
    """Measure the programs whose names contain one of the words, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=[""])
    words = parser.parse_args().programs
    rows: list[dict[str, object]] = []
    ratios = []
    for program in programs():
        if not any(word in program.name for word in words):
            continue
        f = gl.compile(program, gl.CPU(machine="native", threads=2))
        one, two = measured(f)
        nests = f.loops.nests
        row: dict[str, object] = {"program": program.name, "nests": len(nests), "shared": sum(map(is_shared, nests))}
        ratios.append(round(two / one, 3))
        rows.append(row | {"one us": round(one, 1), "two us": round(two, 1), "two over one": ratios[-1]})
        print(*rows[-1].values(), flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        file.write(
            f"# {processor()}; two over one: least {min(ratios)}, median {statistics.median(ratios)}, "
            f"most {max(ratios)}\n"
        )
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
