"""Defines doors of the search: every target, every rule, and extraction from its e-graphs."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import takewhile
from typing import Any

from glenside.check import EXACT, is_equal
from glenside.driver import optimize
from glenside.egraph.saturation import Limits
from glenside.extract.gym import parse_gym
from glenside.fuzzing.cases import Wrong
from glenside.fuzzing.doors import Visit, door
from glenside.fuzzing.oracle import computed
from glenside.fuzzing.soundness import saturated, unequal
from glenside.ir.program import Program
from glenside.ir.term import postorder
from glenside.passes.constant_folding import fold
from glenside.rewrites import RULES, of_families
from glenside.rewrites.secure.truncations import LATE
from glenside.targets import ConvolutionUnit, SystolicArray, parse_target
from glenside.targets.base import Target

LIMITS = Limits(nodes=20_000, seconds=15.0, iterations=40)
_FEW = Limits(nodes=4_000, seconds=10.0, iterations=12)

WANTS, ONLY = "; wants: ", "; rules: "
"""Prefixes of a case's first lines: of demands to put into the e-graph, and of rules that run with few others."""
_OTHER_RULES = (0, 0, 12, 24)
"""Numbers of rules that run in addition to the rules named by a case."""
TARGETS = {
    "systolic-array": "systolic-array:{rows}x{columns}",
    "output-stationary": "output-stationary:{rows}x{columns}",
    "double-buffered": "double-buffered:{rows}x{columns}",
    "convolution-unit": "convolution-unit:{unit}",
    "cpu": "cpu:{memory}",
    "mpc": "mpc:semi2k",
    "npu": "npu:{rows}x{columns}",
}
"""A target of each name in the registry, with sizes to draw."""


def drawn_target(visit: Visit) -> str:
    """Returns a target with drawn sizes, as on the command line."""
    pick = visit.pick
    return TARGETS[pick.choice(list(TARGETS))].format(
        rows=pick.choice((1, 2, 3, 4, 8)),
        columns=pick.choice((1, 2, 4, 5, 16)),
        unit=pick.choice(("nhwc", "nchw", "nchw16c")),
        memory=pick.choice(("1KB", "16KB", "8MB", "unlimited")),
    )


def compare(visit: Visit, what: str, optimized: Program, verdict: str) -> None:
    """Raises Wrong if the exact check or the interpreter finds that a program differs from the case."""
    if not is_equal(verdict) and not verdict.startswith("not checked"):
        raise Wrong(f"{what}: {verdict}")
    if not any(term.operator.opaque for term in postorder(visit.program.term)):
        visit.expected.compare(what, computed(optimized.term, {**optimized.constants, **visit.values}))


def _optimized(visit: Visit, target: Target, what: str, **way: Any) -> None:
    result = optimize(visit.valued, target, limits=LIMITS, seed=visit.seed, extract_seconds=5.0, **way)
    for name, run in result.report.rules.items():
        if run.matches:
            visit.note(f"rule {name}")
    compare(visit, what, result.program, result.report.checked)
    if result.program.term.type != visit.program.term.type:
        raise Wrong(f"{what}: the type is {result.program.term.type}, not {visit.program.term.type}")


@door("optimize", "can be run, got the black box", "is larger than the memory budget of", weight=3, examples=0.2)
def optimized(visit: Visit) -> None:
    """Optimizes for a target, and compares with the original exactly and in floats."""
    name = drawn_target(visit)
    _optimized(visit, parse_target(name), f"for {name}")


@door("tensorize", networks=0.6, examples=0.3)
def tensorized(visit: Visit) -> None:
    """Maps onto an array in each way of blocking, mapping and extraction."""
    pick = visit.pick
    target = SystolicArray(pick.choice((1, 2, 3, 4, 8)), pick.choice((1, 2, 3, 4, 8)))
    way = {
        "blocking": pick.choice(("tile-loops", "unrolled-tiles")),
        "mapping": pick.choice(("best", "baseline")),
        "method": pick.choice(("auto", "greedy", "dag", "exact")),
        "explain": pick.random() < 0.3,
    }
    _optimized(visit, target, f"for {target.name} with {way}", **way)


@door("layout", networks=0.6, examples=0.3)
def laid_out(visit: Visit) -> None:
    """Chooses layouts for a convolution unit."""
    pick = visit.pick
    unit, loads, stores = (
        pick.choice(("nhwc", "nchw", "nchw16c", "any")),
        pick.choice(("none", "runs", "all")),
        pick.choice(("none", "runs", "all")),
    )
    target = ConvolutionUnit(unit, loads=loads, stores=stores)
    _optimized(visit, target, f"layouts for {unit}, loads {loads}, stores {stores}")


@door("fold")
def folded(visit: Visit) -> None:
    """Folds constants, and compares with the original in floats."""
    compare(visit, "folded", fold(visit.valued), EXACT)


@door("rules", weight=4, examples=0.7)
def ruled(visit: Visit) -> None:
    """Applies all or some rules in a drawn order, and compares every e-node of every class."""
    late, pick = of_families([LATE]), visit.pick
    named = _comment(visit.case.text, ONLY).split()
    of_late = any(rule.name in named for rule in late) if named else pick.random() < 0.1
    every = late if of_late else tuple(rule for rule in RULES.values() if rule not in late)
    rules = pick.sample(every, len(every) if pick.random() < 0.7 else max(1, len(every) // 2))
    if named:
        some = pick.sample(every, min(pick.choice(_OTHER_RULES), len(every)))
        rules = [rule for rule in every if rule.analysis or rule.name in named or rule in some]
        pick.shuffle(rules)
    wants = _comment(visit.case.text, WANTS)
    try:
        snapshot, search = saturated(visit.valued, rules, _FEW, wants=wants, compiled=every)
    except KeyError:  # a demanded term is no longer in the program
        snapshot, search = saturated(visit.valued, rules, _FEW, compiled=every)
    for name, run in search.progress.rules.items():
        if run.matches:
            visit.note(f"rule {name}")
    if said := unequal(visit.valued, snapshot, visit.seed):
        raise Wrong(said)


def _comment(text: str, begin: str) -> str:
    """Returns the rest of the line after a prefix, among the comments above a case's program, or ""."""
    comments = takewhile(lambda line: line.startswith(";"), text.lstrip().split("\n"))
    return next((line.removeprefix(begin) for line in comments if line.startswith(begin)), "")


@door("extract")
def extracted(visit: Visit) -> None:
    """Extracts from the e-graph of a search by every method, and compares costs and bounds."""
    result = optimize(visit.valued, SystolicArray(2, 3), limits=_FEW, verify=False, seed=visit.seed)
    snapshot, pick = result.egraph, visit.pick
    costs: list[float] = [pick.choice((0, 1, 1, 2, 3, 7)) / pick.choice((1, 1, 4)) for _ in snapshot.nodes]
    nodes = {
        f"n{number}": {
            "op": node.operator,
            "children": [f"n{snapshot.classes[child][0]}" for child in node.children],
            "eclass": f"c{snapshot.owner[number]}",
            "cost": cost,
        }
        for number, (node, cost) in enumerate(zip(snapshot.nodes, costs, strict=True))
    }
    if not nodes:
        return
    text = json.dumps({"nodes": nodes, "root_eclasses": [f"c{snapshot.program[-1]}"]})
    graph = parse_gym(text)
    found = {method: graph.extract(method, 2.0) for method in ("greedy", "dag", "exact", "auto")}
    spent = {method: answer.cost for method, answer in found.items()}
    for method, answer in found.items():
        total = sum((Fraction(costs[int(name[1:])]) for name in graph.choice(answer).values()), Fraction(0))
        if graph.cost(answer.cost) != total:
            raise Wrong(f"{method} says a cost of {graph.cost(answer.cost)}, and its e-nodes cost {total}")
        if answer.bound is not None and answer.bound > answer.cost:
            raise Wrong(f"{method} has a bound of {answer.bound} above its cost of {answer.cost}")
        if answer.bound is not None and answer.bound > min(spent.values()):
            raise Wrong(f"{method} has a bound of {answer.bound}, and another method found {min(spent.values())}")
    if found["exact"].proven and spent["exact"] > min(spent.values()):
        raise Wrong(f"exact calls a cost of {spent['exact']} least, and another method found {min(spent.values())}")
