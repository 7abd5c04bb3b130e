"""Compares the predicted ratio of the times of two forms of a program with the measured one.

    python -m benchmarks.bench_prices [TEXT ..]

Pairs are those of `benchmarks.price_pairs` whose names have one of the texts, or all; other rows are kept. Both forms
are compiled as they are written between their layers, on one thread, with the built-in prices of this processor.
Columns:

- `first us`, `second us`: median processor microseconds of a call, without what an empty call takes.
- `measured`: median ratio of rounds, first over second; both run in turn. Above 1, the second form pays.
- `predicted`: ratio of the predicted times.
- `off`: predicted over measured, or the other way round, so at least 1.
- `equal`: the exact check of both forms against each other.
"""

from __future__ import annotations

import csv
import statistics
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import glenside as gl
from benchmarks.price_pairs import PAIRS, forms
from glenside.check import check
from glenside.codegen.runtime.arguments import address_of, pointers
from glenside.codegen.runtime.compiled_function import Compiled, Lowered, keeping
from glenside.execution.fit import processor
from glenside.ir.program import Program
from glenside.targets.cpu.compiled import CompiledCPU

RESULTS = Path(__file__).parent / "results" / "bench_prices.csv"
ROUNDS = 21
SECONDS = 0.01
"""Least processor seconds of a round, for each form."""


def compiled(program: Program) -> Compiled:
    """Returns a program, compiled as it is written between its layers."""
    target = CompiledCPU(machine="native")
    result = gl.optimize(program, target, exact_order=True, verify=False)
    chosen: Lowered = keeping([result.program, result.prepared], target.processor, None)
    return Compiled(chosen, target.processor)


def call(f: Compiled) -> Callable[[], Any]:
    """Returns a call of the C function on random inputs, on one thread.

    It does not look at its arguments: that takes 14 microseconds, and evicts operands from the caches.
    """
    arrays, out, arena = f.drawn(), f.results(), f._memory(1)
    given, stored = type(f._addresses).from_buffer_copy(f._addresses), pointers([out[n] for n in f._stored])
    for number, array in zip(f._input_at, arrays, strict=True):
        given[number] = address_of(array)

    def run(_: object = (arrays, out)) -> None:  # which it keeps
        f._run(given, stored, arena[2], None, None)

    return run


def seconds(run: Callable[[], Any], times: int) -> float:
    """Returns the processor seconds of a call."""
    began = time.thread_time()
    for _ in range(times):
        run()
    return (time.thread_time() - began) / times


@cache
def empty_call() -> float:
    """Returns the seconds of a call of a program for one element."""
    b = gl.Builder("empty")
    run = call(compiled(b.finish(b.relu(b.input("x", (1,))))))
    return statistics.median(seconds(run, 1000) for _ in range(ROUNDS))


def measure(name: str) -> dict[str, Any]:
    """Returns the row of a pair."""
    pair = forms(name)
    made = [compiled(program) for program in pair]
    runs, less = [call(f) for f in made], empty_call()
    times = [max(1, round(SECONDS / min(seconds(run, 1) for _ in range(5)))) for run in runs]
    rounds = [[seconds(run, n) - less for run, n in zip(runs, times, strict=True)] for _ in range(ROUNDS)]
    measured = statistics.median(first / second for first, second in rounds)
    told = [sum(f.predicted()) for f in made]
    predicted = told[0] / told[1]
    first, second = (statistics.median(own) for own in zip(*rounds, strict=True))
    return {
        "pair": name,
        "first us": f"{1e6 * first:.1f}",
        "second us": f"{1e6 * second:.1f}",
        "predicted first us": f"{1e6 * told[0]:.1f}",
        "predicted second us": f"{1e6 * told[1]:.1f}",
        "measured": f"{measured:.3f}",
        "predicted": f"{predicted:.3f}",
        "off": f"{max(predicted / measured, measured / predicted):.2f}",
        "equal": check(*pair).result,
    }


def main(texts: list[str]) -> None:
    """Measures pairs, prints their rows, and writes all that are known."""
    known: dict[str, dict[str, Any]] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(line for line in file if not line.startswith("#"))
            known = {row["pair"]: row for row in rows if row["pair"] in PAIRS}
    for name in PAIRS:
        if not texts or any(text in name for text in texts):
            known[name] = measure(name)
            print(*known[name].values(), sep="  ", flush=True)
            _write([known[each] for each in PAIRS if each in known])


def _write(rows: list[dict[str, Any]]) -> None:
    off = [float(row["off"]) for row in rows]
    far = sum(own > 1.5 for own in off)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {processor()}; {len(rows)} pairs; off by {statistics.median(off) - 1:.1%} in the median, ")
        file.write(f"{far} by more than 1.5 times\n")
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
