"""Draws layers and machines for tests: layers as in networks, at unusual sizes."""

from __future__ import annotations

import random

import glenside as gl
from glenside.ir.program import Program
from glenside.npu.machine.model import Machine

MACHINES = (
    Machine(4, 4, scratchpad=1 << 11, accumulators=32, bandwidth=4, latency=3),
    Machine(8, 8, scratchpad=1 << 12, accumulators=64, bandwidth=8, latency=20),
    Machine(5, 3, scratchpad=1 << 11, accumulators=16, bandwidth=2, latency=0),
    Machine(8, 12, pipelined=False, scratchpad=1 << 13, accumulators=48, bandwidth=16, latency=7),
    Machine(3, 7, pipelined=False, scratchpad=1 << 10, accumulators=20, bandwidth=4, latency=1, tables=6),
)


def layer(pick: random.Random) -> Program:
    """Builds one product after another operator, so that its operand is not the program's input."""
    b = gl.Builder("layer")
    if pick.random() < 0.15:
        m, k, n = (pick.randint(1, 20) for _ in range(3))
        x = b.relu(b.input("x", (m, k)))
        return b.finish(b.matmul(x, b.constant("w", (k, n)), name="own")).seeded_constants(0)
    groups = pick.choice([1, 1, 1, 2, 3])
    channels, filters = groups * pick.randint(1, 6), groups * pick.randint(1, 6)
    if pick.random() < 0.35:
        groups = channels
        filters = channels * pick.randint(1, 2)
    window = pick.randint(1, 3), pick.randint(1, 3)
    strides, dilations = pick.choice([1, 1, 2, 3]), pick.choice([1, 1, 2])
    least = [(w - 1) * dilations + 1 for w in window]
    size = [pick.randint(s, s + 9) for s in least]
    x = b.relu(b.input("x", (1, channels, *size)))
    w = b.constant("w", (filters, channels // groups, *window))
    padding = pick.choice([0, 0, 1])
    own = b.conv(x, w, strides=strides, dilations=dilations, groups=groups, padding=padding, name="own")
    return b.finish(own).seeded_constants(0)
