"""Measures the share of the last-level cache of a program: virtual machines report its whole size, but share it.

On a Xeon that reports 480 MB, repeated reads reach 28 bytes per nanosecond up to 64 MB, 24 from 96 MB, 20 from 128 MB
and 15 from 512 MB.
"""

from __future__ import annotations

import ctypes
import statistics

import numpy as np

from glenside.codegen.emit_c.thread_pool import NO_POOL
from glenside.codegen.emit_c.translation_units import NOW, PUBLIC, Source
from glenside.codegen.processor.model import Machine
from glenside.codegen.runtime.arguments import pointers
from glenside.codegen.runtime.compile_and_load import loaded

_MOST = 1 << 28
"""The maximum bytes that are read to measure."""
_LEAST_READ = 1 << 26
"""The bytes that are read in a round; small sizes are read several times."""
_ROUNDS = 5
_HELD = 0.8
"""The fraction of the cache's bandwidth below which some reads must come from memory."""


def last_cache(machine: Machine) -> int:
    """Returns the bytes up to which repeated reads come from this computer's last-level cache, at most its reported
    size.

    Raises BadInput without a compiler.
    """
    sizes = [2 * machine.l2]
    while sizes[-1] < min(machine.l3, _MOST):
        sizes.append(sizes[-1] * 3 // 2 if sizes[-1] & (sizes[-1] - 1) == 0 else sizes[-1] * 4 // 3)
    if len(sizes) < 4:
        return machine.l3
    library = loaded(_source(), machine).library
    memory = np.ones(sizes[-1] // 4, np.float32)
    rates = [_rate(library, memory, size) for size in sizes]
    usual = statistics.median(rates[: max(3, len(rates) // 2)])
    slower = next((i for i, rate in enumerate(rates) if i > 1 and rate < _HELD * usual), None)
    return machine.l3 if slower is None else min(machine.l3, sizes[slower - 1])


def _rate(library: ctypes.CDLL, memory: np.ndarray[tuple[int], np.dtype[np.float32]], size: int) -> float:
    """Returns the bandwidth in bytes per nanosecond, the best of some rounds."""
    times = max(1, _LEAST_READ // size)
    amounts, found = np.array([size // 4, times], np.int64), np.zeros(1, np.float32)
    least = np.inf
    for _ in range(_ROUNDS):
        seconds = (ctypes.c_double * 1)()
        library.run(pointers([memory, amounts]), pointers([found]), None, None, seconds)
        least = min(least, seconds[0])
    return 1e-9 * times * size / least


def _source() -> Source:
    """Returns the source of a loop that adds up cache lines in four accumulators and prefetches ahead."""
    body = [
        "typedef float line __attribute__((vector_size(64), aligned(4)));",
        "PUBLIC int run(const void *const *given, void *const *results, unsigned char *arena, void *threads,",
        "    double *seconds)",
        "{",
        "    const float *x = given[0];",
        "    const int64_t size = ((const int64_t *)given[1])[0], times = ((const int64_t *)given[1])[1];",
        "    line a = {0}, b = {0}, c = {0}, d = {0};",
        "    (void)arena;",
        "    seconds[0] -= now(!threads);",
        "    for (int64_t n = 0; n < times; n++)",
        "        for (int64_t i = 0; i + 64 <= size; i += 64) {",
        "            for (int j = 0; j < 4; j++) __builtin_prefetch(x + i + 512 + 16 * j);",
        "            a += *(const line *)(x + i);",
        "            b += *(const line *)(x + i + 16);",
        "            c += *(const line *)(x + i + 32);",
        "            d += *(const line *)(x + i + 48);",
        "        }",
        "    seconds[0] += now(!threads);",
        "    a += b + c + d;",
        "    *(float *)results[0] = a[0] + a[1];",
        "    return 0;",
        "}",
    ]
    return Source("/* reading again */", (), (), "\n".join(body) + "\n", (PUBLIC, NO_POOL, NOW))
