"""A processor as data: what tiles fit its registers, and what its vectors are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """vector: bytes of a register; registers: how many; products and loads: vectors in a cycle; latency: cycles until
    a sum can be added to; l2: bytes of the cache that a core has alone; flags: for the compiler.
    """

    name: str
    vector: int
    registers: int
    products: int = 2
    loads: int = 2
    latency: int = 4
    l2: int = 1 << 20
    flags: tuple[str, ...] = ()


MACHINES = {
    machine.name: machine
    for machine in (
        Machine("avx512", 64, 32, l2=2 << 20, flags=("-march=x86-64-v4", "-mprefer-vector-width=512")),
        Machine("avx2", 32, 16, l2=1 << 20, flags=("-march=x86-64-v3",)),
        Machine("neon", 16, 32, l2=1 << 20),
    )
}
