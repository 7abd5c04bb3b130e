"""What of the last cache a program has: virtual machines are told its whole size, which they share with strangers.

On a Xeon that says 480 MB, what is read again and again comes at 28 bytes a nanosecond up to 64 MB, at 24 from 96 MB,
at 20 from 128 MB and at 15 from 512 MB.
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
"""Bytes that are read to find out."""
_LEAST_READ = 1 << 26
"""Bytes that are read in a round, of small sizes several times."""
_ROUNDS = 5
_HELD = 0.8
"""Of the bytes in a nanosecond from the last cache: from where fewer come, some come from behind it."""


def last_cache(machine: Machine) -> int:
    """The bytes up to which what is read again comes from the last cache of this computer; at most what it says.

    Raises BadInput where there is no compiler.
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
    """Bytes in a nanosecond, the most of some rounds."""
    times = max(1, _LEAST_READ // size)
    amounts, found = np.array([size // 4, times], np.int64), np.zeros(1, np.float32)
    least = np.inf
    for _ in range(_ROUNDS):
        seconds = (ctypes.c_double * 1)()
        library.run(pointers([memory, amounts]), pointers([found]), None, None, seconds)
        least = min(least, seconds[0])
    return 1e-9 * times * size / least


def _source() -> Source:
    """Sums of a line each, sixteen of them apart: a page is asked for while the one before is added."""
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
    return Source("/* reading again */", (), (), "\n".join([PUBLIC, NO_POOL, NOW, *body]) + "\n")
