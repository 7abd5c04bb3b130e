"""Which nests threads share: those that take longer alone than it takes to hand them over.

What one thread stores lies in its own cache. A nest that it shares with others, or that it does alone after they shared
the one before, fetches what they hold, line by line. So one decides for all nests together: each costs what it takes,
alone or shared, and what passes between two that differ costs its bytes. The least of that is a minimum cut of a graph
(Greig, Porteous and Seheult, "Exact maximum a posteriori estimation for binary images", 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from glenside.codegen.cost.count_work import EitherWay, either_way
from glenside.codegen.loop_ir.ir import Buffer, Nest, Way, is_parallel
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.processor.model import Machine

_HANDING = 1500.0
"""Nanoseconds until other threads have begun a loop, and have told that they are done."""
_FETCHING = 0.2
"""Nanoseconds for a byte that another thread's cache has: 13 for a line of 64."""


def parallelize(module: Module, machine: Machine) -> Module:
    """Makes nests serial that are predicted to cost less on one thread; for two threads, where the machine has one."""
    nests, threads = module.nests, max(2, machine.threads)
    ways = [either_way(nest, machine, threads) for nest in nests]
    spared = [_spared(nest, way) for nest, way in zip(nests, ways, strict=True)]
    shared = decided(spared, _passed(nests, ways, threads))
    return module.with_nests([nest if shared[i] else _alone(nest) for i, nest in enumerate(nests)])


def _spared(nest: Nest, way: EitherWay) -> float:
    """Nanoseconds less that a nest takes where threads share it; what takes all there are where they cannot."""
    handed = sum(loop.beside is None for loop in nest.body if is_parallel(loop))
    return way.alone - way.shared - _HANDING * handed if handed else float("-inf")


def _passed(nests: Sequence[Nest], ways: Sequence[EitherWay], threads: int) -> dict[int, dict[int, float]]:
    """For each nest what fetching costs between it and those whose results it touches, where only one is shared."""
    found: dict[int, dict[int, float]] = {number: {} for number in range(len(nests))}
    last: dict[Buffer, int] = {}
    for number, (nest, way) in enumerate(zip(nests, ways, strict=True)):
        for buffer, n in way.touched.items():
            before = last.get(buffer, number)
            if before != number:
                cost = n * (1 - 1 / threads) * _FETCHING
                for a, b in ((before, number), (number, before)):
                    found[a][b] = found[a].get(b, 0.0) + cost
        last[nest.buffer] = number
    return found


def decided(spared: Sequence[float], passed: dict[int, dict[int, float]]) -> dict[int, bool]:
    """Which nests are shared, so that what they spare less what passes between those that differ is most.

    One that spares more, or costs more, than all that can pass is sure; others may be once it is. The rest is a cut.
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
    """The same of nests of which none is sure."""
    import networkx  # takes a while

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


def _alone(nest: Nest) -> Nest:
    """A nest whose steps one thread takes."""
    body = [replace(one, way=Way.LOOP, beside=None) if is_parallel(one) else one for one in nest.body]
    return replace(nest, body=tuple(body))
