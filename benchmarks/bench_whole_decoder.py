"""Times a whole decoder of 0.5B shape with weights of 4 bits beside llama.cpp, in turn: one function for all lengths.

    pip install gguf xllamacpp
    python -m benchmarks.bench_whole_decoder [BLOCKS]

The sizes are those of Qwen2 0.5B (24 blocks, 896 wide, 4,864 inside, 14 heads, 2 of keys and values, a vocabulary of
151,936, embeddings used twice), as a Llama with random weights in one GGUF file for both. Glenside compiles it once,
for prompts of up to 512 tokens and up to 1,200 tokens in the cache, with activations of 8 bits. `ms` is the median of a
token after 128 or 1,024 others, and of a prompt of 128 or 512, over rounds in turn; `llama.cpp` is the median of its
time over ours. `compile s` are processor seconds, with those of the C compiler; `most while compiling` is by what the
resident memory grows, at most, over the bytes of the file.
"""

from __future__ import annotations

import csv
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import glenside as gl
from benchmarks.decoder_files import Shape, llama_cpp, write_gguf
from benchmarks.timing import PAUSE

RESULTS = Path(__file__).parent / "results" / "whole_decoder.csv"
SHAPE = Shape(blocks=24, hidden=896, heads=14, kv_heads=2, head=64, inner=4864, vocabulary=151936)
WRITTEN, ROUNDS, THREADS, MOST = 16, 5, (1, 2), 512


def main() -> None:
    """Print and write a row for each length and number of threads."""
    shape = Shape(**{**vars(SHAPE), "blocks": int(sys.argv[1])}) if len(sys.argv) > 1 else SHAPE
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "decoder.gguf"
        write_gguf(file, shape, "Q4_0", tied=True)
        rows = _rows(file)
    if len(sys.argv) == 1:
        with RESULTS.open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def _rows(file: Path) -> list[dict[str, Any]]:
    before, bytes_of_file = _resident(), file.stat().st_size
    reset_peak = Path("/proc/self/clear_refs")
    reset_peak.write_text("5", encoding="ascii")
    seconds = _processor_seconds()
    f = gl.compile(gl.load(file, dims={"rows": (1, MOST), "past": (0, 1200)}), "none", activations="int8", state=True)
    compiled, peak = _processor_seconds() - seconds, _peak() - before
    found = []
    for threads in THREADS:
        for what, past in (("token", 128), ("token", 1024), ("prompt", 128), ("prompt", 512)):
            theirs = llama_cpp(file, threads, past, WRITTEN if what == "token" else 1)
            times = []
            for _ in range(ROUNDS):
                time.sleep(PAUSE)
                own = _token(f, past, threads) if what == "token" else _prompt(f, past, threads)
                time.sleep(PAUSE)
                prompt, token = theirs()
                times.append((own, token if what == "token" else prompt))
            pairs = np.array(times)
            row = {
                "what": what, "past": past, "threads": threads, "ms": round(1e3 * float(median(pairs[:, 0])), 2),
                "llama.cpp": round(float(median(pairs[:, 1] / pairs[:, 0])), 2), "compile s": round(compiled, 1),
                "file MB": round(bytes_of_file / 1e6, 1), "most while compiling": round(peak / bytes_of_file, 2),
            }  # fmt: skip
            print(row, flush=True)
            found.append(row)
    return found


def _prompt(f: Any, count: int, threads: int) -> float:
    f.reset()
    return _seconds(partial(f, np.full(count, 300), threads=threads))


def _token(f: Any, past: int, threads: int) -> float:
    f.reset()
    for begin in range(0, past, MOST):
        f(np.full(min(MOST, past - begin), 300), threads=threads)
    return median(_seconds(partial(f, np.array([300]), threads=threads)) for _ in range(WRITTEN))


def _seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _processor_seconds() -> float:
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    """Returns the most resident bytes since the peak was reset."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    main()
