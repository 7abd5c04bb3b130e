"""Measures the peak rate of a core: float32 multiply-adds in a loop that reads nothing."""

from __future__ import annotations

import ctypes

import numpy as np

from glenside.codegen.emit_c.thread_pool import NO_POOL
from glenside.codegen.emit_c.translation_units import NOW, PUBLIC, Source
from glenside.codegen.processor.model import Machine
from glenside.codegen.runtime.arguments import pointers
from glenside.codegen.runtime.compile_and_load import loaded

_SUMS = 12
"""Independent accumulators: more than the multiply-adds per cycle times their latency, fewer than 16 registers."""
_STEPS = 200_000
_ROUNDS = 40


def peak(machine: Machine) -> float:
    """Returns the peak float32 multiply-adds per nanosecond of one core of this computer: the best of some rounds.

    The accumulator itself is multiplied, so that no compiler hoists the product. Raises BadInput without a compiler.
    """
    library = loaded(_source(machine), machine).library
    numbers, sums = np.array([0.5, 1.0], np.float32), np.zeros(machine.vector // 4, np.float32)
    seconds = (ctypes.c_double * 1)()
    least = np.inf
    for _ in range(_ROUNDS):
        seconds[0] = 0
        library.run(pointers([numbers]), pointers([sums]), None, None, seconds)
        least = min(least, seconds[0])
    return 1e-9 * _STEPS * _SUMS * (machine.vector // 4) / least


def _source(machine: Machine) -> Source:
    sums = [f"s{i}" for i in range(_SUMS)]
    body = [
        f"typedef float numbers __attribute__((vector_size({machine.vector}), aligned(4)));",
        "PUBLIC int run(const void *const *given, void *const *results, unsigned char *arena, void *threads,",
        "    double *seconds)",
        "{",
        "    const float *told = given[0];",
        "    numbers a = (numbers){0} + told[0], b = (numbers){0} + told[1];",
        f"    numbers {', '.join(f'{name} = b * (float){i}' for i, name in enumerate(sums))};",
        "    (void)arena;",
        "    seconds[0] -= now(!threads);",
        f"    for (int i = 0; i < {_STEPS}; i++) {{",
        f"        {' '.join(f'{name} = {name} * a + b;' for name in sums)}",
        "    }",
        "    seconds[0] += now(!threads);",
        f"    *(numbers *)results[0] = {' + '.join(sums)};",
        "    return 0;",
        "}",
    ]
    return Source("/* the most products */", (), (), "\n".join(body) + "\n", (PUBLIC, NO_POOL, NOW))
