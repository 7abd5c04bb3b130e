"""Tests that an answer of the e-graph costs at most as much as the program as written."""

from __future__ import annotations

import random
from itertools import product

import pytest
from slow_cases import quick

import glenside as gl
from glenside.builder import layout
from glenside.egraph.saturation import Limits
from glenside.egraph.search import search_here
from glenside.egraph.snapshot import Snapshot
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.passes.extraction import Choice, PricedGraph, no_dearer
from glenside.rewrites import of_families
from glenside.targets.base import Cost, Prices


def _program(seed: int) -> Program:
    """Returns transposes of sums of shared terms."""
    draw, b = random.Random(seed), gl.Builder("shared")
    terms: list[Term] = [b.input("x", (4, 4)), b.input("y", (4, 4))]
    for _ in range(8):
        a, c = draw.choice(terms[-3:]), draw.choice(terms)
        made = b.add(a, c) if draw.random() < 0.5 else b.relu(a)
        terms.append(layout.transpose(made, (1, 0)) if draw.random() < 0.6 else made)
    return b.finish(terms[-1])


def _saturated(program: Program) -> tuple[Snapshot, tuple[Term, ...]]:
    nodes = tuple(postorder(program.term))
    rules = of_families(("through-computes", "algebra"))
    return search_here(nodes, rules, {}, Limits(nodes=2_000, seconds=None, iterations=6)).snapshot, nodes


def _cost(priced: PricedGraph, nodes: dict[int, int]) -> Cost:
    found = Cost()
    for number in nodes.values():
        found = found.plus(priced.cost(number))
    return found


@pytest.mark.parametrize(
    ("seed", "method"),
    quick(product(range(12), ["greedy", "dag", "auto"]), *range(0, 36, 4), unpacked=True),
)
def test_an_answer_costs_at_most_as_much_as_the_program(seed: int, method: str) -> None:
    program = _program(seed)
    snapshot, nodes = _saturated(program)
    priced = PricedGraph(snapshot, Prices())
    root = snapshot.program[-1]
    answer = priced.choose([root], method=method)
    found = no_dearer(priced, answer, nodes, [root])
    order = priced.prices.objectives
    dear = Choice(answer.nodes, Cost(1 << 40, 1 << 40, 1 << 40), None)
    written = no_dearer(priced, dear, nodes, [root])
    assert written is not dear
    assert snapshot.terms(written.nodes, [root])[root] is program.term, "each class has one form of the program"
    assert written.cost == _cost(priced, dict(written.nodes))
    assert found.cost.ordered(order) == min(answer.cost.ordered(order), written.cost.ordered(order))
    if written.cost.ordered(order) >= answer.cost.ordered(order):
        assert found is answer
