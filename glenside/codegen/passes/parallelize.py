"""Chooses the nests to parallelize.

A thread's stores are in its own cache. Between a serial nest and a parallel one, operands move from cache to cache,
line by line. So all nests are decided together: each costs its time, serial or parallel, and each pair of nests that
differ costs the bytes that pass between them. The minimum is a minimum cut of a graph (Greig, Porteous and Seheult,
"Exact maximum a posteriori estimation for binary images", 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from glenside.codegen.cost.count_work import EitherWay, either_way
from glenside.codegen.loop_ir.ir import Buffer, Nest, Way, is_parallel
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.processor.model import Machine

_FORK_JOIN_NS = 1500.0
"""Nanoseconds to start a loop on the other threads, and to be notified of its end."""
_TRANSFER_NS_PER_BYTE = 0.2
"""Nanoseconds to fetch a byte from another thread's cache: 13 for a line of 64 bytes."""


def parallelize(module: Module, machine: Machine) -> Module:
    """Makes nests serial that are predicted to cost less on one thread; assumes two threads if the machine has one."""
    nests, threads = module.nests, max(2, machine.threads)
    ways = [either_way(nest, machine, threads) for nest in nests]
    spared = [_saved_ns(nest, way) for nest, way in zip(nests, ways, strict=True)]
    shared = decided(spared, _transfer_costs(nests, ways, threads))
    return module.with_nests([nest if shared[i] or nest.steps else _serial(nest) for i, nest in enumerate(nests)])


def _saved_ns(nest: Nest, way: EitherWay) -> float:
    """Returns the nanoseconds that parallelizing a nest saves; minus infinity if it has no parallel loop."""
    handed = sum(loop.beside is None for loop in nest.body if is_parallel(loop))
    return way.alone - way.shared - _FORK_JOIN_NS * handed if handed else float("-inf")


def _transfer_costs(nests: Sequence[Nest], ways: Sequence[EitherWay], threads: int) -> dict[int, dict[int, float]]:
    """Returns the nanoseconds of cache transfers between nests, if only one of the two is parallel.

    Symmetric: nest -> nest that last filled a buffer that it touches -> cost.
    """
    found: dict[int, dict[int, float]] = {number: {} for number in range(len(nests))}
    last: dict[Buffer, int] = {}
    for number, (nest, way) in enumerate(zip(nests, ways, strict=True)):
        for buffer, n in way.touched.items():
            before = last.get(buffer, number)
            if before != number:
                cost = n * (1 - 1 / threads) * _TRANSFER_NS_PER_BYTE
                for a, b in ((before, number), (number, before)):
                    found[a][b] = found[a].get(b, 0.0) + cost
        last[nest.buffer] = number
    return found


def decided(spared: Sequence[float], passed: dict[int, dict[int, float]]) -> dict[int, bool]:
    """Chooses the nests to parallelize: maximizes time saved minus cache-transfer cost between nests that differ.

    A nest whose saving (or loss) exceeds all its transfer costs is decided at once; this may decide its neighbours. A
    minimum cut decides the rest.
    """
    found: dict[int, bool] = {}
    pull = dict(enumerate(spared))
    waiting = list(pull)
    while waiting:
        number = waiting.pop()
        if number in found or abs(pull[number]) < sum(n for to, n in passed[number].items() if to not in found):
            continue
        found[number] = pull[number] > 0
        for to, n in passed[number].items():
            if to not in found:
                pull[to] += n if found[number] else -n
                waiting.append(to)
    open_ = [number for number in pull if number not in found]
    return found | _cut({i: pull[i] for i in open_}, passed) if open_ else found


def _cut(pull: dict[int, float], passed: dict[int, dict[int, float]]) -> dict[int, bool]:
    """Decides the remaining nests by a minimum cut."""
    import networkx  # slow to import

    graph = networkx.DiGraph()
    for number, amount in pull.items():
        ends = ("shared", number) if amount > 0 else (number, "alone")
        graph.add_edge(*ends, capacity=abs(amount))
        for to, n in passed[number].items():
            if to in pull:
                graph.add_edge(number, to, capacity=n)
    graph.add_nodes_from(("shared", "alone"))
    _, (shared, _) = networkx.minimum_cut(graph, "shared", "alone")
    return {number: number in shared for number in pull}


def _serial(nest: Nest) -> Nest:
    """Returns a nest with its parallel loops made serial."""
    body = [replace(one, way=Way.LOOP, beside=None) if is_parallel(one) else one for one in nest.body]
    return replace(nest, body=tuple(body))
