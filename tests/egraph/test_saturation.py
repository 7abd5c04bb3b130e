"""Tests saturation: stop reasons, back-off, closure under congruence, determinism, interruption."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable

import pytest
from rule_checks import saturated

import glenside.egraph.process as PROCESS
import glenside.egraph.search as SEARCHES
from glenside.egraph.clause import ROOT, Clause, let, rewrite, union, when
from glenside.egraph.encode import program_nodes
from glenside.egraph.pattern import Variable, variables
from glenside.egraph.rule import Example, Rule
from glenside.egraph.saturation import Compiled, Limits, Request, Saturation, declared
from glenside.egraph.search import as_written, program_snapshot, search
from glenside.egraph.snapshot import ENode, closed
from glenside.ir.operators.folds import elementwise_add
from glenside.ir.operators.leaves import access_tensor
from glenside.ir.operators.padding import access_pad
from glenside.ir.operators.products import access_product
from glenside.ir.operators.views import access, access_flip
from glenside.ir.program import Program
from glenside.ir.text import parse
from glenside.rewrites import RULES, of_families
from glenside.targets import ConvolutionUnit, SystolicArray

MATMUL = parse(
    "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))",
    shapes={"a": (7, 50), "b": (33, 50)},
)
PARAMETERS = {
    **ConvolutionUnit().rule_parameters(),
    **SystolicArray(8, 4).rule_parameters(),
    "winograd": 0,
    "scatter": 0,
    "row_strips": 1,
}


def _rule(name: str, *clauses: Clause, expansive: bool = False) -> Rule:
    return Rule(name, "test", "", clauses, (Example("(access-tensor x)", {"x": "m"}),), expansive)


A, B, X, Y, N, LO, HI, LOW, HIGH, OTHER, LARGER = variables("a b x y n lo hi low high other larger")
# Each round doubles the widths of the pads: it never ends.
EXPLOSIVE = _rule(
    "explosive",
    when(ROOT == access_pad(A, "zero-padding", X, LO, HI), OTHER == access_pad(B, "zero-padding", Y, LOW, HIGH)).then(
        let(LARGER, access_pad(ROOT, "zero-padding", 0, LO + HIGH, HI + LOW))
    ),
)
PADDED = parse("(access-pad (access-tensor a) zero-padding 0 1 2)", shapes={"a": (3,)})


def _request(program: Program, rules: list[Rule], limits: Limits) -> Request:
    return Request.of(program_nodes(program.term), rules, PARAMETERS, limits)


@pytest.mark.parametrize(
    ("limits", "stopped"),
    [
        (Limits(), "saturated"),
        (Limits(iterations=3), "iteration-limit"),
        (Limits(nodes=20), "node-limit"),
        (Limits(seconds=0.0), "time-limit"),
    ],
)
def test_the_search_says_why_it_stopped(limits: Limits, stopped: str) -> None:
    rules = list(of_families(["analyses", "products", "through-products", "systolic-array"]))
    run = Saturation(_request(MATMUL, rules, limits))
    assert run.run().stopped == stopped


def test_an_expansive_rule_is_banned_but_not_forgotten() -> None:
    """Saturation is claimed only after all rules, the banned ones too, ran together and changed nothing."""
    commuted = rewrite(elementwise_add(access_product(A, B, N)), elementwise_add(access_product(B, A, N)))
    commute = _rule("commute", commuted, expansive=True)
    terms = "(access-tensor a)"
    for _ in range(8):
        terms = f"(compute elementwise-add (access-pair {terms} (access-tensor b)))"
    program = parse(terms, shapes={"a": (3,), "b": (3,)})
    plain, _ = saturated(program, [_rule("plain", commuted)], {})
    run = Saturation(_request(program, [commute], Limits()))
    run._limit["commute"] = 2
    assert run.run().stopped == "saturated"
    assert run.progress.iterations == 3, "found, banned, and run again once nothing else was left to do"
    snapshot = run.snapshot(program.tensors)
    assert (snapshot.e_nodes, snapshot.e_classes) == (plain.e_nodes, plain.e_classes)


WRONG = _rule("wrong", when(ROOT == access_tensor(Variable("a"))).then(union(ROOT, access(ROOT, 1))))


def test_a_contradiction_of_types_ends_the_search_and_says_which_rule_united_what() -> None:
    nodes = program_nodes(MATMUL.term)
    found = search(nodes, [WRONG, *of_families(["analyses", "products"])], PARAMETERS)
    assert found.stopped == "failed"
    assert found.progress.wrong == "wrong"
    said = "it makes (access-tensor a), of type ()(7 50) float32, equal to (access (access-tensor a) 1), of type (7)"
    assert said in found.progress.fault
    assert found.snapshot == program_snapshot(nodes)


def test_congruent_nodes_are_one() -> None:
    leaf_a, leaf_b = ENode("access-tensor", ("a",), ()), ENode("access-tensor", ("a",), ())
    rows = [(leaf_a, 0), (leaf_b, 1), (ENode("access", (1,), (0,)), 2), (ENode("access", (1,), (1,)), 3)]
    snapshot = closed(rows, 4, {}, [2, 3], {})
    assert (snapshot.e_nodes, snapshot.e_classes) == (2, 2)
    assert snapshot.program[0] == snapshot.program[1]


def test_the_same_search_gives_the_same_snapshot() -> None:
    nodes = program_nodes(MATMUL.term)
    rules = of_families(["analyses", "products", "through-products", "systolic-array"])
    first, second = (search(nodes, rules, PARAMETERS).snapshot for _ in range(2))
    assert first == second


def test_an_e_graph_is_as_new_for_the_next_search() -> None:
    """Compiled rules stay, whatever was found with them goes: another program, then the first again."""
    rules = list(of_families(["analyses", "products", "through-products", "systolic-array"]))
    compiled = Compiled()
    snapshots = []
    for program in (MATMUL, PADDED, MATMUL):
        request = Request.of(program_nodes(program.term), rules, PARAMETERS, Limits())
        again, fresh = Saturation(request, compiled), Saturation(request)
        again.run(), fresh.run()
        snapshots.append(again.snapshot())
        assert snapshots[-1] == fresh.snapshot()
    assert snapshots[0] == snapshots[2] != snapshots[1]


def test_a_search_process_serves_again_unless_memory_is_scarce_or_it_failed() -> None:
    nodes, rules = program_nodes(MATMUL.term), list(of_families(["analyses", "products"]))
    search(nodes, rules, PARAMETERS)
    (idle,) = PROCESS.IDLE
    assert search(nodes, rules, PARAMETERS).stopped == "saturated"
    assert PROCESS.IDLE == [idle]
    search(nodes, rules, PARAMETERS, Limits(memory=250 << 20))
    assert PROCESS.IDLE == [idle]
    idle.end()
    assert search(nodes, rules, PARAMETERS).stopped == "saturated", "one that died meanwhile is another one"
    assert search(nodes, [WRONG], {}).stopped == "failed"
    limits = Limits(seconds=1.0, nodes=None, iterations=None)
    assert search(program_nodes(PADDED.term), [EXPLOSIVE], {}, limits).stopped == "time-limit"
    assert PROCESS.IDLE == []


def test_a_new_search_process_compiles_what_is_to_come_and_finds_the_same() -> None:
    nodes, rules = program_nodes(MATMUL.term), list(of_families(["analyses", "products"]))
    known = search(nodes, rules, PARAMETERS).snapshot
    PROCESS.end_idle()
    asked: list[str] = []

    def coming() -> str:
        asked.append("coming")
        return declared(rules, PARAMETERS)[0]

    SEARCHES.start_workers_early(Limits(), coming, lambda: "(this is not egglog")
    SEARCHES.start_workers_early(Limits(), coming, behind=True)
    (idle,) = PROCESS.IDLE
    assert (asked, idle.is_new, len(idle.to_compile)) == (["coming"] * 2, True, 1)
    assert search(nodes, rules, PARAMETERS).snapshot == known, "what does not compile is no matter yet"
    assert (PROCESS.IDLE, idle.is_new, idle.to_compile) == ([idle], False, [])
    SEARCHES.start_workers_early(Limits(), coming)
    assert asked == ["coming"] * 2, "one that searched has its rules"
    PROCESS.end_idle()


def test_a_process_of_another_is_not_told_what_is_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the process that started it would write into its parent's pipe."""
    PROCESS.end_idle()
    SEARCHES.start_workers_early(Limits())
    (idle,) = PROCESS.IDLE
    with monkeypatch.context() as other:
        other.setattr(PROCESS.os, "getpid", lambda: -1)
        SEARCHES.start_workers_early(Limits(), lambda: pytest.fail("nobody compiles it"))
        assert (idle.serves, idle.to_compile) == (False, [])
    assert search(program_nodes(MATMUL.term), list(of_families(["analyses", "products"])), PARAMETERS).stopped
    PROCESS.end_idle()


def test_a_time_limit_ends_an_explosive_rule() -> None:
    started = time.perf_counter()
    found = search(program_nodes(PADDED.term), [EXPLOSIVE], {}, Limits(seconds=1.0, nodes=None, iterations=None))
    assert found.stopped == "time-limit"
    assert time.perf_counter() - started < 5.0
    assert found.snapshot.e_nodes >= 2


def test_a_memory_limit_ends_an_explosive_rule() -> None:
    limits = Limits(seconds=60.0, nodes=None, iterations=None, memory=250 << 20)
    found = search(program_nodes(PADDED.term), [EXPLOSIVE], {}, limits)
    assert found.stopped == "memory-limit"


def test_ctrl_c_keeps_the_best_so_far_within_two_seconds(press_ctrl_c: Callable[[float], None]) -> None:
    press_ctrl_c(1.5)
    started = time.perf_counter()
    found = search(program_nodes(PADDED.term), [EXPLOSIVE], {}, Limits(seconds=60.0, nodes=None, iterations=None))
    assert found.stopped == "interrupted"
    assert time.perf_counter() - started < 1.5 + 2.0
    assert found.snapshot.program


def test_a_deep_program_goes_in_and_comes_out() -> None:
    text = "(access-tensor a)"
    program = parse(text, shapes={"a": (3,)})
    from glenside.ir.term import build

    term = program.term
    for _ in range(2_000):
        term = build("compute", "relu", term)
    nodes = program_nodes(term)
    found = search(nodes, of_families(["algebra", "analyses"]), PARAMETERS)
    assert found.stopped == "saturated"
    assert found.snapshot.e_nodes == 2_001 == program_snapshot(nodes).e_nodes


def test_rules_see_wide_sharing_in_linear_time() -> None:
    from glenside.ir.term import build

    term = build("access", parse("(access-tensor a)", shapes={"a": (3, 2)}).term, 1)
    for _ in range(68):
        pair = build("access-product", term, term, 1)
        term = build("compute", "elementwise-add", pair)
    found = search(program_nodes(term), RULES.values(), PARAMETERS)
    assert found.stopped == "saturated"


def test_a_trace_says_which_rule_made_each_node_when_and_from_what() -> None:
    rules = list(of_families(["analyses", "products", "through-products", "systolic-array"]))
    nodes = program_nodes(MATMUL.term)
    plain, traced = (Saturation(Request.of(nodes, rules, PARAMETERS, Limits(), trace=trace)) for trace in (False, True))
    plain.run(), traced.run()
    snapshot = traced.snapshot()
    assert (snapshot.e_nodes, snapshot.e_classes) == (plain.snapshot().e_nodes, plain.snapshot().e_classes)
    earliest: dict[tuple[int, str], int] = {}
    for eclass, operator, rule, iteration, source, *_ in snapshot.facts["made"]:
        assert rule in RULES
        assert 0 <= source < snapshot.e_classes
        assert 1 <= iteration <= traced.progress.iterations
        earliest[eclass, operator] = min(iteration, earliest.get((eclass, operator), iteration))
    program = {(eclass, node.operator.name) for eclass, node in zip(snapshot.program, nodes, strict=True)}
    made = {(owner, node.operator) for owner, node in zip(snapshot.owner, snapshot.nodes, strict=True)} - program
    assert made <= set(earliest)
    assert len(set(earliest.values())) > 2, "what is built upon is made before what builds on it"
    owned = zip(snapshot.owner, snapshot.nodes, strict=True)
    keys = {(owner, n.operator, n.attributes, *n.children) for owner, n in owned}
    rows = {(eclass, operator, *node) for eclass, operator, _, _, _, *node in snapshot.facts["made"]}
    written = {*as_written(snapshot, nodes)}
    assert rows | written == keys, "each e-node is one that the program has, or has its own row"
    assert len(written) == len(nodes)
    assert "made" not in plain.snapshot().facts
    assert "made" not in plain.request.declarations


def test_a_trace_names_the_class_that_a_rule_matched_at() -> None:
    """The rule matches at the root, so that is the source, in the first iteration; the program has no maker."""
    program = parse("(access-flip (access-flip (access-tensor a) 0) 0)", shapes={"a": (3,)})
    twice = _rule("twice", rewrite(access_flip(access_flip(A, X), X), access_pad(A, "zero-padding", X, 0, 0)))
    run = Saturation(Request.of(program_nodes(program.term), [twice], PARAMETERS, Limits(), trace=True))
    run.run()
    root, leaf = run.snapshot().program[-1], run.snapshot().program[0]
    assert run.snapshot().facts["made"] == ((root, "access-pad", "twice", 1, root, ("zero-padding", 0, 0, 0), leaf),)


def test_the_caller_is_told_the_time_while_an_iteration_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS, "_SHOWN", 0.1)
    worker = PROCESS.Worker()
    try:
        seen = [kind for _, (kind, *_) in PROCESS.messages([worker], time.perf_counter() + 1.5)]
    finally:
        worker.end()
    assert seen.count("waiting") >= 2


def test_an_e_graph_goes_with_who_held_it() -> None:
    """Egglog lets go of one in its own thread alone, and what only cycles hold any thread may find."""
    gc.collect()
    gc.disable()
    try:
        run = Saturation(_request(MATMUL, list(of_families(["analyses", "products"])), Limits()))
        run.run(), run.snapshot()
        held = weakref.ref(run)
        del run
        assert held() is None
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [own for own in gc.garbage if type(own).__module__.startswith("glenside.egraph")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
