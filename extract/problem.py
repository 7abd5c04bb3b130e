"""Declares the problem, an e-graph with costs as plain arrays, and its answer, one e-node for each needed class."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

T = TypeVar("T")
Cost = tuple[int, ...]
_LEAST_SECONDS = 0.1
"""Least time for a block, if as much is left: a solver of a small one takes 10 ms."""


class ExtractionError(Exception):
    """A problem, a method or a file is invalid."""


@dataclass(frozen=True)
class Problem:
    """The e-nodes of each class, their children and their costs.

    A cost is a lexicographic vector of non-negative ints; the cost of an answer is the sum over its classes, each
    counted once. A boundary is a class, such as the root of a layer, that the `dag` extractor treats as free for its
    consumers: it limits how far sharing is tracked, but excludes no answer.
    """

    classes: tuple[tuple[int, ...], ...]
    """class -> its e-nodes; each e-node is in exactly one class."""
    children: tuple[tuple[int, ...], ...]
    """e-node -> the classes of its children, with repeats."""
    costs: tuple[Cost, ...]
    """e-node -> its own cost, without that of its children."""
    roots: tuple[int, ...]
    boundaries: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._check_nodes()
        self._check_costs()

    def _check_nodes(self) -> None:
        count = len(self.children)
        if sorted(node for nodes in self.classes for node in nodes) != list(range(count)):
            raise ExtractionError(
                f"Problem requires each of its {count} e-nodes in exactly one class, got another partition"
            )
        if not self.roots:
            raise ExtractionError("Problem requires at least one root, got none")
        references = {"children": {c for kids in self.children for c in kids}, "roots": set(self.roots)}
        for name, named in (references | {"boundaries": set(self.boundaries)}).items():
            if named and not (min(named) >= 0 and max(named) < len(self.classes)):
                wrong = min(named) if min(named) < 0 else max(named)
                raise ExtractionError(f"Problem requires {name} to be classes below {len(self.classes)}, got {wrong}")

    def _check_costs(self) -> None:
        if len(self.costs) != len(self.children):
            raise ExtractionError(
                f"Problem requires one cost for each of {len(self.children)} e-nodes, got {len(self.costs)}"
            )
        for cost in set(self.costs):
            if len(cost) != self.dimension or not all(isinstance(part, int) for part in cost) or min(cost) < 0:
                raise ExtractionError(
                    f"Problem requires costs of {self.dimension or 'some'} non-negative ints, got {cost}"
                )

    @property
    def dimension(self) -> int:
        """Number of components of a cost."""
        return len(self.costs[0]) if self.costs else 0

    @cached_property
    def digits(self) -> tuple[int, ...]:
        """Number of bits for each component when a cost vector is packed into one int.

        Each component has bits for the sum of the worst cost of every class, so sums of packed costs never carry into
        the next component. Comparing packed ints therefore compares the vectors.
        """
        worst = [0] * self.dimension
        for nodes in self.classes:
            for i, part in enumerate(map(max, zip(*(self.costs[n] for n in nodes), strict=True))):
                worst[i] += part
        return tuple(total.bit_length() for total in worst)

    @cached_property
    def weights(self) -> list[int]:
        """e-node -> its cost, packed into one int."""
        packed = {cost: self.pack(cost) for cost in set(self.costs)}
        return [packed[cost] for cost in self.costs]

    def pack(self, cost: Cost) -> int:
        """Packs a cost into one int that orders and adds up as the vector does."""
        total = 0
        for part, bits in zip(cost, self.digits, strict=True):
            total = (total << bits) | part
        return total

    def unpack(self, weight: int) -> Cost:
        """Unpacks a sum of packed costs over distinct classes."""
        parts: list[int] = []
        for bits in reversed(self.digits):
            parts.append(weight & ((1 << bits) - 1))
            weight >>= bits
        return tuple(reversed(parts))


@dataclass(frozen=True)
class Extraction:
    """One e-node for each class that the roots need, the cost, and a bound if one is known."""

    choice: Mapping[int, int]
    """class -> e-node, for exactly the classes reachable from the roots through chosen e-nodes."""
    cost: Cost
    """The sum over those classes, each counted once."""
    proven: bool = False
    """True if no answer is cheaper."""
    bound: Cost | None = None
    """A lower bound in lexicographic order, if one is known."""
    stopped: str = "heuristic"
    """Why the search ended: "optimal"; "time-limit", "node-limit", "size-limit", "numerics" (the solver failed) or
    "interrupted"; "heuristic" when nothing was searched."""

    @property
    def gap(self) -> Cost | None:
        """Cost minus bound, componentwise from the first component that differs; all zeros when proven optimal."""
        if self.bound is None:
            return None
        same = next((i for i, (a, b) in enumerate(zip(self.cost, self.bound, strict=True)) if a != b), len(self.cost))
        return (0,) * same + tuple(max(0, a - b) for a, b in zip(self.cost[same:], self.bound[same:], strict=True))


@dataclass(frozen=True)
class Limits:
    """Limits of an exact search; None means no limit.

    With limits on sizes and branches alone the answer is the same on every machine; if a deadline ends it, it is not.
    """

    deadline: float | None = None
    """On the clock of `time.monotonic`."""
    branches: int | None = None
    """Branch-and-bound nodes for each level of each block."""
    block_size: int | None = None
    """Largest block that is searched, in e-nodes."""

    @classmethod
    def after(cls, seconds: float | None, **others: int | None) -> Limits:
        """Returns limits whose deadline is `seconds` from now."""
        return cls(None if seconds is None else time.monotonic() + seconds, **others)

    @property
    def remaining(self) -> float:
        """Seconds left."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def refuses(self, size: int) -> str:
        """Returns why a block of this size is not searched, or ""."""
        return "" if self.block_size is None or size <= self.block_size else "size-limit"

    def share(self, size: int, left: int) -> Limits:
        """Returns limits for one block, of `left` e-nodes in all blocks to come: its share of the time."""
        if self.deadline is None:
            return self
        seconds = max(_LEAST_SECONDS, self.remaining * size / max(left, 1))
        return replace(self, deadline=min(self.deadline, time.monotonic() + seconds))


def follow(problem: Problem, pick: Mapping[int, int] | Sequence[int]) -> dict[int, int]:
    """Returns the part of `pick` that the roots reach, parents first."""
    choice: dict[int, int] = {}
    stack = list(reversed(problem.roots))
    while stack:
        current = stack.pop()
        if current not in choice:
            choice[current] = node = pick[current]
            stack += reversed(problem.children[node])
    return choice


def postorder(roots: Sequence[T], below: Callable[[T], Sequence[T]]) -> list[T]:
    """Returns all nodes that the roots reach, children before parents; raises ExtractionError for a cycle."""
    order: list[T] = []
    state: dict[T, bool] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        current, ready = stack.pop()
        if ready:
            state[current] = True
            order.append(current)
        elif state.get(current) is False:
            raise ExtractionError(f"an extraction requires a choice without cycles, got class {current} below itself")
        elif current not in state:
            state[current] = False
            stack.append((current, True))
            # A child in progress is an ancestor; a finished one needs no second visit.
            stack += [(child, False) for child in reversed(below(current)) if not state.get(child)]
    return order


def children_first(problem: Problem, choice: Mapping[int, int]) -> list[int]:
    """Returns the chosen classes, children before parents; raises ExtractionError if `choice` is invalid."""

    def below(c: int) -> Sequence[int]:
        node = choice.get(c)
        if node is None or node not in problem.classes[c]:
            raise ExtractionError(f"an extraction requires an e-node of class {c}, got {node}")
        return problem.children[node]

    return postorder(problem.roots, below)


def total_cost(problem: Problem, choice: Mapping[int, int]) -> Cost:
    """Returns the sum over the classes of a choice, each counted once."""
    return problem.unpack(sum(problem.weights[node] for node in choice.values()))
