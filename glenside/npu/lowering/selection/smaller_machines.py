"""Machines that are smaller than the one that a program is for: what is planned for one of them runs there, too.

More memory or a wider port does not always make a better plan: tensors are laid out in beats of the port, weights are
brought as early as there is room for them, rows stream as many at a time as accumulators hold. A program for a smaller
machine runs on the larger one in no more cycles (`glenside.npu.analysis.retargeting`), so what these take is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from glenside.ir.errors import BadInput
from glenside.npu.machine.model import HALVES, Machine


def smaller(machine: Machine) -> Iterator[Machine]:
    """Machines with half of one resource, or of lanes and weights together."""
    lanes, weights = machine.depth * machine.rows, machine.weight_bytes
    sizes = (lanes, weights // 2), (lanes // 2, weights), (lanes // 2, weights // 2)
    changes = [
        {"bandwidth": machine.bandwidth // 2},
        *({"scratchpad": one + other, "weights": other} for one, other in sizes),
        {"accumulators": machine.accumulators // (2 * HALVES) * HALVES},
    ]
    for change in changes:
        with suppress(BadInput):  # a machine that small cannot be
            yield replace(machine, **change)  # type: ignore[arg-type]
