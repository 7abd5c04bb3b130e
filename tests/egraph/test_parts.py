"""Tests programs with unshared parts, which are searched separately: the joint e-graph is that of one search."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import glenside as gl
import glenside.egraph.process as PROCESS
import glenside.egraph.search as SEARCHES
from glenside.egraph.clause import ROOT, let, union, when
from glenside.egraph.encode import MADE, WRITTEN
from glenside.egraph.part import MANY, joined, part, unshared
from glenside.egraph.pattern import Variable, variables
from glenside.egraph.rule import Example, Rule
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.search import SearchResult, program_snapshot, search
from glenside.egraph.snapshot import ENode, Snapshot
from glenside.ir.operators.leaves import access_tensor
from glenside.ir.operators.padding import access_pad
from glenside.ir.operators.views import access
from glenside.ir.term import Term, postorder
from glenside.ir.text import parse
from glenside.rewrites import of_families
from glenside.targets import ConvolutionUnit, SystolicArray

PARAMETERS = {**ConvolutionUnit().rule_parameters(), **SystolicArray(8, 4).rule_parameters()}
FAMILIES = ["analyses", "products", "through-products", "systolic-array"]
LO, HI, X, A = variables("lo hi x a")


def products(count: int, shared: str = "") -> list[Term]:
    """So many products of matrices of other sizes each, of the same first operand where its name is given."""
    found = []
    for i in range(count):
        a, b = shared or f"a{i}", f"{shared}b{i}"
        both = " ".join(f"(access (access-tensor {name}) 1)" for name in (a, b))
        text = f"(compute dot-product (access-cartesian-product {both}))"
        found.append(parse(text, shapes={a: (7, 20), b: (i + 2, 20)}).term)
    return found


def nodes_of(roots: list[Term]) -> tuple[Term, ...]:
    return tuple(postorder(*roots))


def content(found: SearchResult | Snapshot) -> tuple[Any, ...]:
    """Returns the content of an e-graph, independent of the numbers of its classes."""
    snapshot = found.snapshot if isinstance(found, SearchResult) else found
    kinds = Counter((node.operator, node.attributes, len(node.children), node.subsumed) for node in snapshot.nodes)
    of_class = Counter(
        (str(snapshot.types[c]), tuple(sorted(snapshot.nodes[n].operator for n in members)))
        for c, members in enumerate(snapshot.classes)
    )
    facts = {name: Counter(row[1:3] for row in rows) for name, rows in snapshot.facts.items() if name == "recipe"}
    return kinds, of_class, facts


@pytest.fixture(autouse=True)
def no_process_waits() -> Iterator[None]:
    PROCESS.end_idle()
    yield
    PROCESS.end_idle()


def two_processors(monkeypatch: pytest.MonkeyPatch, count: int = 2) -> None:
    monkeypatch.setattr(SEARCHES, "processors", lambda: count)


@pytest.mark.slow
def test_parts_share_no_node_and_are_alike() -> None:
    nodes = nodes_of(products(2 * MANY))
    parts = unshared(nodes, 2)
    assert sorted(place for own in parts for place in own) == [*range(len(nodes))]
    assert [len(own) for own in parts] == [len(nodes) // 2] * 2
    assert all(own == sorted(own) for own in parts), "children first"
    both = [{nodes[place] for place in own} for own in parts]
    assert not both[0] & both[1]
    assert all(child in own for own in both for term in own for child in term.children)


def test_what_shares_a_tensor_is_in_one_part_and_little_is_not_taken_apart() -> None:
    together = products(3, shared="a")
    nodes = nodes_of([*products(MANY), *together])
    assert sorted(sum(nodes[place] in together for place in own) for own in unshared(nodes, 2)) == [0, 3]
    for few in (products(MANY - 1), products(2 * MANY, shared="a")):
        assert unshared(nodes_of(few), 2) == [[*range(len(nodes_of(few)))]]
    assert unshared(nodes, 1) == [[*range(len(nodes))]]
    assert len(unshared(nodes, 3)) == 3
    assert unshared((), 2) == [[]]


@pytest.mark.parametrize("trace", [False, True])
def test_the_e_graph_is_that_of_a_search_of_all(trace: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, rules = nodes_of(products(MANY + 1)), list(of_families(FAMILIES))
    whole = search(nodes, rules, PARAMETERS, reported=("recipe",), trace=trace)
    two_processors(monkeypatch)
    found = search(nodes, rules, PARAMETERS, reported=("recipe",), trace=trace, parts=2)
    assert found.stopped == whole.stopped == "saturated"
    assert found.progress.iterations == whole.progress.iterations
    assert content(found) == content(whole)
    assert found.snapshot.tensors == whole.snapshot.tensors
    matches = [{name: run.matches for name, run in of.progress.rules.items()} for of in (found, whole)]
    assert matches[0] == matches[1]
    for own, other in zip(found.snapshot.program, whole.snapshot.program, strict=True):
        both = part(found.snapshot, own).snapshot, part(whole.snapshot, other).snapshot
        assert content(both[0]) == content(both[1]), "the class of each node holds the same"
    if trace:
        assert len(found.snapshot.facts[MADE]) == len(whole.snapshot.facts[MADE]) > 0
        assert len(found.snapshot.facts[WRITTEN]) == len(nodes)


@pytest.mark.slow
def test_it_is_the_same_whoever_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, rules = nodes_of(products(MANY)), list(of_families(FAMILIES))
    two_processors(monkeypatch)
    both = search(nodes, rules, PARAMETERS, parts=2).snapshot
    assert len(PROCESS.IDLE) == 2
    assert search(nodes, rules, PARAMETERS, parts=2).snapshot == both, "by the processes that waited"
    two_processors(monkeypatch, 1)
    PROCESS.end_idle()
    assert search(nodes, rules, PARAMETERS, parts=2).snapshot == both, "one after the other"
    assert len(PROCESS.IDLE) == 1
    two_processors(monkeypatch)
    worker = PROCESS.Worker()
    assert search(nodes, rules, PARAMETERS, parts=2, worker=worker).snapshot == both, "by one that is given"
    scarce = Limits(memory=(1 << 30) + 1)
    assert search(nodes, rules, PARAMETERS, scarce, parts=2).snapshot == both, "with little memory"


def test_what_rules_made_in_several_parts_is_one_node() -> None:
    """Two e-graphs that share a number, and terms computed from it."""
    number, more = ENode("full", ((3,), "0", "float32"), ()), ENode("access", (1,), (0,))
    parts = []
    for i in range(2):
        own = ENode("access-tensor", (f"t{i}",), ())
        rows = (number, more, own, ENode("access-pair", (), (1, 2)))
        facts = {"recipe": ((3, "same"), (1, "number")), MADE: ((1, "access", "rule", 1, 3, (1,), 0),)}
        parts.append((Snapshot(rows, (0, 1, 2, 3), (None,) * 4, (2, 3), {}, facts), (2 * i, 2 * i + 1)))
    found = joined(parts)
    assert (found.e_nodes, found.e_classes) == (6, 6)
    assert len(set(found.program)) == 4
    assert len(found.facts["recipe"]) == 3, "what is said of the number is said once"
    for eclass, *_, child in found.facts[MADE]:
        assert found.nodes[found.classes[eclass][0]].children == (child,)


def test_parts_have_their_share_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, rules = nodes_of(products(MANY)), list(of_families(FAMILIES))
    limits = Limits(nodes=len(nodes) + 20)
    found = [Saturation(Request.of(nodes, rules, PARAMETERS, limits)).run()]
    for count in (1, 2):
        two_processors(monkeypatch, count)
        found.append(search(nodes, rules, PARAMETERS, limits, parts=2).progress)
    assert {progress.stopped for progress in found} == {"node-limit"}
    assert found[1].rows == found[2].rows
    assert search(nodes, rules, PARAMETERS, Limits(iterations=2), parts=2).stopped == "iteration-limit"


EXPLOSIVE = Rule(
    "explosive",
    "test",
    "",
    (
        when(ROOT == access_pad(A, "zero-padding", X, LO, HI)).then(
            let(Variable("larger"), access_pad(ROOT, "zero-padding", 0, LO + 1, HI + LO))
        ),
    ),
    (Example("(access-tensor x)", {"x": "m"}),),
    False,
)


def endless(count: int = MANY) -> tuple[Term, ...]:
    text = "(access-pad (access-tensor {}) zero-padding 0 1 2)"
    return nodes_of([parse(text.format(f"a{i}"), shapes={f"a{i}": (3,)}).term for i in range(count)])


@pytest.mark.parametrize("processors", [1, 2])
def test_a_time_limit_is_one_for_all_parts(processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    two_processors(monkeypatch, processors)
    started, seen = time.perf_counter(), list[SearchResult]()
    limits = Limits(seconds=3.0, nodes=None, iterations=None, memory=None)
    found = search(endless(), [EXPLOSIVE], {}, limits, parts=2, on_snapshot=seen.append)
    assert time.perf_counter() - started < 3.0 + 3.0
    assert found.stopped == "time-limit"
    assert found.snapshot.e_nodes >= len(endless())
    assert len(found.snapshot.program) == len(endless())
    assert seen or processors == 1, "what there is is told while it goes on"
    assert all(len(result.snapshot.program) == len(endless()) for result in seen)


@pytest.mark.parametrize("processors", [1, 2])
def test_ctrl_c_ends_all_parts(
    processors: int, monkeypatch: pytest.MonkeyPatch, press_ctrl_c: Callable[[float], None]
) -> None:
    two_processors(monkeypatch, processors)
    press_ctrl_c(1.5)
    started = time.perf_counter()
    found = search(endless(), [EXPLOSIVE], {}, Limits(seconds=60.0, nodes=None, iterations=None), parts=2)
    assert found.stopped == "interrupted"
    assert time.perf_counter() - started < 1.5 + 2.0
    assert found.snapshot.program
    assert PROCESS.IDLE == []


def test_where_all_fail_each_says_why_and_no_process_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    two_processors(monkeypatch)
    begun: list[PROCESS.Worker] = []

    class Begun(PROCESS.Worker):
        def __init__(self) -> None:
            super().__init__()
            begun.append(self)

    monkeypatch.setattr(SEARCHES, "Worker", Begun)
    wrong = Rule(
        "wrong",
        "test",
        "",
        (when(ROOT == access_tensor(Variable("t"))).then(union(ROOT, access(ROOT, 1))),),
        (Example("(access-tensor x)", {"x": "m"}),),
        False,
    )
    found = search(nodes_of(products(MANY)), [wrong], {}, parts=2)
    assert (found.stopped, found.progress.wrong) == ("failed", "wrong")
    assert len(begun) == 2
    assert not any(worker.serves for worker in begun)
    assert PROCESS.IDLE == []


def test_processes_are_started_ahead_for_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process compiles expected searches after its next search, the others at once."""
    two_processors(monkeypatch)
    rules = list(of_families(FAMILIES))
    text = SEARCHES.Request.of((), rules, PARAMETERS, Limits()).declarations
    SEARCHES.start_workers_early(Limits(), lambda: text, behind=True, parts=2)
    first, second = PROCESS.IDLE
    assert (first.to_compile, second.to_compile, second.knows) == ([text], [], {text})
    nodes = nodes_of(products(1))
    search(nodes, list(of_families(["analyses"])), {})
    assert (first.to_compile, text in first.knows, PROCESS.IDLE) == ([], True, [second, first])
    search(nodes, rules, PARAMETERS)
    search(nodes, list(of_families(["analyses"])), {})
    assert PROCESS.IDLE == [second, first], "whichever knows what is declared"
    two_processors(monkeypatch, 1)
    PROCESS.end_idle()
    SEARCHES.start_workers_early(Limits(), parts=2)
    assert len(PROCESS.IDLE) == 1


@pytest.mark.slow
def test_an_npu_searches_in_two_parts_and_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    program, target = gl.models.mobilenet_v1(width=0.25, resolution=32), gl.NPU(8)
    seen = []
    for parts, processors in ((2, 2), (2, 1), (1, 1)):
        monkeypatch.setattr(type(target), "search_parts", parts)
        two_processors(monkeypatch, processors)
        result = gl.optimize(program, target)
        labels = [variant.label for variant in result.answer.variants["chosen"].values()]
        seen.append((result.report.e_nodes, result.report.total, labels))
    assert seen[0] == seen[1] == seen[2]


def test_what_is_subsumed_in_one_part_alone_is_not() -> None:
    """Its class has another e-node instead."""
    number, other = ENode("full", ((3,), "0", "float32"), ()), ENode("full", ((3,), "1", "float32"), ())
    subsumed = ENode(number.operator, number.attributes, (), True)
    parts = [
        (Snapshot(rows, (0,) * len(rows), (None,), (0,)), (i,)) for i, rows in enumerate([(number,), (subsumed, other)])
    ]
    found = joined(parts)
    assert (found.e_classes, set(found.nodes), found.program) == (1, {number, other}, (0, 0))


def test_a_program_of_nothing_has_an_e_graph() -> None:
    nothing = program_snapshot(())
    assert joined([(nothing, ()), (nothing, ())]) == joined([(nothing, ())]) == nothing
