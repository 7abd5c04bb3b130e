"""Times functions with open sizes beside the program of each fixed size, and beside onnxruntime of that size.

    python benchmarks/bench_open_sizes.py [--blocks 2] [--rounds 15] [-o results/open_sizes.csv]

Eight lengths of a transformer encoder, in pairs in turn, medians on one thread. `compile` is of the open function. The
fixed programs are compiled without a search ("none"), as the open one is, and with the default one ("cpu").
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import glenside as gl
from glenside.builder import layout

LENGTHS = (1, 5, 16, 37, 64, 100, 128, 200)


def encoder(seq: int, blocks: int, width: int = 256, heads: int = 4) -> gl.Program:
    """Returns an encoder of some blocks, with random weights."""
    b = gl.Builder("encoder")
    x = b.input("x", (1, seq, width))
    draw = np.random.default_rng(0)

    def dense(name: str, rows: int, columns: int) -> Any:
        value = draw.standard_normal((rows, columns)) / np.sqrt(columns)
        return b.constant(name, (rows, columns), value=value.astype("float32"))

    for block in range(blocks):
        q, k, v = (
            layout.transpose(
                layout.reshape(b.linear(x, dense(f"{name}{block}", width, width)), (1, seq, heads, width // heads)),
                (0, 2, 1, 3),
            )
            for name in "qkv"
        )
        y = b.matmul(b.softmax(b.matmul(q, layout.transpose(k, (0, 1, 3, 2)))), v)
        y = layout.reshape(layout.transpose(y, (0, 2, 1, 3)), (1, seq, width))
        x = b.add(x, b.linear(y, dense(f"o{block}", width, width)))
        hidden = b.relu(b.linear(x, dense(f"u{block}", 4 * width, width)))
        x = b.add(x, b.linear(hidden, dense(f"d{block}", width, 4 * width)))
    return b.finish(x)


def in_turn(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Returns the median milliseconds of each, run in turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            found[name].append(1e3 * (time.perf_counter() - began))
    return {name: float(np.median(own)) for name, own in found.items()}


def main() -> None:
    """Writes a row for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", "--output", default=str(Path(__file__).parent / "results" / "open_sizes.csv"))
    given = parser.parse_args()
    began = time.perf_counter()
    open_ = gl.compile(gl.open_program(lambda seq: encoder(seq, given.blocks), "encoder", seq=(1, 256)))
    seconds = time.perf_counter() - began
    print(open_.report)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seq in LENGTHS:
            program = encoder(seq, given.blocks)
            plain, best = gl.compile(program, "none"), gl.compile(program)
            x = np.random.default_rng(seq).standard_normal((1, seq, 256)).astype("float32")
            runs: dict[str, Callable[[], object]] = {
                "open": lambda x=x: open_(x, threads=1),  # type: ignore[misc]
                "none": lambda f=plain, x=x: f(x, threads=1),  # type: ignore[misc]
                "cpu": lambda f=best, x=x: f(x, threads=1),  # type: ignore[misc]
            }
            session = _session(program, Path(folder) / f"{seq}.onnx")
            if session is not None:
                runs["onnxruntime"] = lambda s=session, x=x: s.run(None, {"x": x})  # type: ignore[misc]
            np.testing.assert_allclose(open_(x), plain(x), rtol=1e-3, atol=1e-3)
            rows.append({"length": seq, **in_turn(runs, given.rounds), "compile seconds": seconds})
            print({name: round(value, 3) for name, value in rows[-1].items()})
    with Path(given.output).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({name: f"{value:.4g}" for name, value in row.items()} for row in rows)


def _session(program: gl.Program, path: Path) -> Any:
    """Returns onnxruntime's session of a program, on one thread; None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    gl.save(program, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options)


if __name__ == "__main__":
    main()
