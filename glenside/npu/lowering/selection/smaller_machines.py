"""Lists smaller machines: a plan for one of them also runs on the given machine.

More memory or a wider port does not always give a better plan: tensors are laid out in beats of the port, weights are
loaded as early as they fit, and as many rows stream at a time as the accumulators hold. A program for a smaller machine
runs on the larger one in no more cycles (`glenside.npu.analysis.retargeting`), so their cycles are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from glenside.ir.errors import BadInput
from glenside.npu.machine.model import HALVES, Machine


def smaller(machine: Machine) -> Iterator[Machine]:
    """Yields machines with half of one resource, or of scratchpad and weight memory together."""
    lanes, weights = machine.depth * machine.rows, machine.weight_bytes
    sizes = (lanes, weights // 2), (lanes // 2, weights), (lanes // 2, weights // 2)
    changes = [
        {"bandwidth": machine.bandwidth // 2},
        *({"scratchpad": one + other, "weights": other} for one, other in sizes),
        {"accumulators": machine.accumulators // (2 * HALVES) * HALVES},
    ]
    for change in changes:
        with suppress(BadInput):  # such a small machine is invalid
            yield replace(machine, **change)  # type: ignore[arg-type]
