"""Times extraction from growing e-graphs.

    python -m benchmarks.bench_extract [--largest N]

There are three seeded families. `layers` is a network of layers with about 600 e-nodes each, as after saturation: views
that undo each other (cycles), alternatives that share parts, a constant that all layers use, and a skip connection
every third layer. `products` has layers of 14 e-nodes: three products of one input, each apart or a slice of a merged
one, of this layer or of those before it. `tangle` is random sharing without layers, the worst case for layer-wise
methods. Columns:

- `method`: as `--extract`. `exact` runs once, for at most EXACT_SECONDS, and `auto` once; others are the best of three.
- `cost`, `bound`: cost of the extracted term, and a lower bound.
- `stopped`: whether the answer is proven optimal.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import random
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from glenside.extract import Extraction, Problem, extract

RESULTS = Path(__file__).parent / "results" / "bench_extract.csv"
EXACT_SECONDS = 20.0
COLUMNS = ("family", "e-nodes", "classes", "method", "seconds", "cost", "bound", "stopped", "cores", "versions")


class Builder:
    """Collects classes and e-nodes."""

    def __init__(self) -> None:
        self.classes: list[list[int]] = []
        self.children: list[tuple[int, ...]] = []
        self.costs: list[tuple[int, int]] = []

    def new(self) -> int:
        """Adds an empty class."""
        self.classes.append([])
        return len(self.classes) - 1

    def node(self, c: int, children: tuple[int, ...], cost: tuple[int, int]) -> None:
        """Adds an e-node to class c."""
        self.classes[c].append(len(self.children))
        self.children.append(children)
        self.costs.append(cost)

    def problem(self, root: int, boundaries: frozenset[int] = frozenset()) -> Problem:
        """Returns the collected extraction problem."""
        return Problem(tuple(map(tuple, self.classes)), tuple(self.children), tuple(self.costs), (root,), boundaries)


def layers(size: int, seed: int = 0) -> Problem:
    """Builds a chain of layers with at least `size` e-nodes."""
    r, b = random.Random(seed), Builder()
    zero, below = b.new(), b.new()
    b.node(zero, (), (0, 1))
    b.node(below, (), (0, 1))
    roots = [below]
    while len(b.children) < size:
        skip = roots[-3] if len(roots) % 3 == 0 else below
        roots.append(below := _layer(b, r, below, skip, zero))
    return b.problem(below, frozenset(roots))


def _layer(b: Builder, r: random.Random, below: int, skip: int, zero: int) -> int:
    weight = b.new()
    b.node(weight, (), (0, 1))
    views, parts = [below, weight], []
    for _ in range(150):
        view, back, source = b.new(), b.new(), r.choice(views)
        b.node(view, (source,), (0, 1))
        b.node(back, (view,), (0, 1))
        if r.random() < 0.4:
            b.node(view, (back,), (0, 1))
        views.append(view)
    for _ in range(100):
        part = b.new()
        for _ in range(r.choice((1, 1, 2, 4))):
            b.node(part, (r.choice(views), r.choice(views), zero), (r.choice((0, 0, 90)), r.randrange(1, 9)))
        parts.append(part)
    top, sum_ = b.new(), b.new()
    for _ in range(20):
        b.node(sum_, tuple(r.choice(parts) for _ in range(r.choice((1, 2, 4, 8)))), (0, r.randrange(1, 4)))
    b.node(top, (sum_, skip), (0, 1))
    return top


def products(size: int, seed: int = 0) -> Problem:
    """Builds layers of products that are computed apart or merged, with at least `size` e-nodes."""
    r, b = random.Random(seed), Builder()
    below = b.new()
    b.node(below, (), (0, 1))
    merged: list[int] = []
    while len(b.children) < size:
        whole = b.new()
        b.node(whole, (below,), (0, r.randint(60, 120)))
        for other in merged[-2:]:
            b.node(whole, (other,), (0, r.randint(30, 100)))
        parts = [b.new() for _ in range(3)]
        for part in parts:
            b.node(part, (below,), (0, r.randint(25, 45)))
            b.node(part, (whole,), (0, 1))
            if merged:
                b.node(part, (r.choice(merged[-3:]),), (0, r.randint(1, 30)))
        sum_, top = b.new(), b.new()
        b.node(sum_, tuple(parts), (0, 5))
        b.node(top, (sum_, below), (0, 3))
        merged.append(whole)
        below = top
    return b.problem(below)


def tangle(size: int, seed: int = 0) -> Problem:
    """Builds random classes, two thirds as many as e-nodes; each uses any of the 200 before it, a
    few use later ones.
    """
    r, b = random.Random(seed), Builder()
    count = size * 2 // 3
    for _ in range(count):
        b.new()
    for i in range(size):
        c = i if i < count else r.randrange(count)
        low, high = max(0, c - 200), c if i < count or r.random() < 0.97 else min(count, c + 5)
        kids = tuple(r.randrange(low, high) for _ in range(r.choice((1, 2, 2, 3)))) if high > low else ()
        b.node(c, kids, (0, r.randrange(1, 20)))
    return b.problem(count - 1)


def measure(method: str, problem: Problem) -> tuple[float, Extraction]:
    """Returns the best time, and the answer."""
    best, answer = float("inf"), None
    for _ in range(1 if method in ("exact", "auto") else 3):
        start = time.perf_counter()
        answer = extract(problem, method, time_limit=EXACT_SECONDS if method == "exact" else None)
        best = min(best, time.perf_counter() - start)
    assert answer is not None
    return best, answer


def main() -> None:
    """Measure, print a table, write the CSV."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--largest", type=int, default=60_000, help="e-nodes of the largest problem")
    largest = parser.parse_args().largest
    versions = f"python {platform.python_version()}, highspy {version('highspy')}, {platform.machine()}"
    rows: list[tuple[object, ...]] = []
    families: dict[str, Callable[[int], Problem]] = {"layers": layers, "products": products, "tangle": tangle}
    for family, make in families.items():
        for size in (largest // 60, largest // 20, largest // 6, largest // 2, largest):
            problem = make(size)
            for method in ("greedy", "dag", "auto", "exact"):
                if method == "exact" and size > largest // 6:
                    continue
                seconds, answer = measure(method, problem)
                shape = (family, len(problem.children), len(problem.classes))
                found = (answer.cost, answer.bound or "", answer.stopped)
                rows.append((*shape, method, f"{seconds:.3f}", *found, os.cpu_count(), versions))
    table = Table(*COLUMNS[:-2])
    for row in rows:
        table.add_row(*map(str, row[:-2]))
    Console().print(table)
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
