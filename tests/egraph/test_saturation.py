"""The search: why it stops, back-off, closure under congruence, determinism, interruption."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from rule_checks import saturated

from glenside.egraph.clause import Clause
from glenside.egraph.encode import program_nodes
from glenside.egraph.rule import Example, Rule
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.search import SearchFailed, program_snapshot, search
from glenside.egraph.snapshot import ENode, closed
from glenside.ir.program import Program
from glenside.ir.text import parse
from glenside.targets.convolution_unit.target import convolution_unit
from glenside.targets.systolic_array.target import systolic_array
from rewrites import RULES, of_families

MATMUL = parse(
    "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))",
    shapes={"a": (7, 50), "b": (33, 50)},
)
PARAMETERS = {
    **convolution_unit().rule_parameters(),
    **systolic_array(8, 4).rule_parameters(),
    "winograd": 0,
    "scatter": 0,
    "bands": 1,
}


def _rule(name: str, *clauses: tuple[str, str], expansive: bool = False) -> Rule:
    example = Example("(access-tensor x)", {"x": "m"})
    return Rule(name, "test", "", tuple(Clause(*c) for c in clauses), (example,), expansive=expansive)


# Each round doubles the widths of the pads: it never ends.
EXPLOSIVE = _rule(
    "explosive",
    (
        '(= root (access-pad a "zero-padding" x lo hi)) (= other (access-pad b "zero-padding" y l h))',
        '(access-pad root "zero-padding" 0 (+ lo h) (+ hi l))',
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
    commute = _rule(
        "commute",
        (
            '(= root (compute "elementwise-add" (access-product a b n)))',
            '(union root (compute "elementwise-add" (access-product b a n)))',
        ),
        expansive=True,
    )
    terms = "(access-tensor a)"
    for _ in range(8):
        terms = f"(compute elementwise-add (access-pair {terms} (access-tensor b)))"
    program = parse(terms, shapes={"a": (3,), "b": (3,)})
    plain, _ = saturated(program, [_rule("plain", *[(c.facts, c.actions) for c in commute.clauses])], {})
    run = Saturation(_request(program, [commute], Limits()))
    run._limit["commute"] = 2
    assert run.run().stopped == "saturated"
    assert run.progress.iterations == 3, "found, banned, and run again once nothing else was left to do"
    snapshot = run.snapshot(program.tensors)
    assert (snapshot.e_nodes, snapshot.e_classes) == (plain.e_nodes, plain.e_classes)


def test_a_contradiction_of_types_is_an_error() -> None:
    wrong = _rule("wrong", ("(= root (access-tensor a))", "(union root (access root 1))"))
    with pytest.raises(SearchFailed):
        search(program_nodes(MATMUL.term), [wrong], {})


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


def test_ctrl_c_keeps_the_best_so_far_within_two_seconds() -> None:
    threading.Timer(1.5, lambda: signal.raise_signal(signal.SIGINT)).start()
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
    for _ in range(5_000):
        term = build("compute", "relu", term)
    nodes = program_nodes(term)
    found = search(nodes, of_families(["algebra", "analyses"]), PARAMETERS)
    assert found.stopped == "saturated"
    assert found.snapshot.e_nodes == 5_001 == program_snapshot(nodes).e_nodes


def test_rules_see_wide_sharing_in_linear_time() -> None:
    from glenside.ir.term import build

    term = build("access", parse("(access-tensor a)", shapes={"a": (3, 2)}).term, 1)
    for _ in range(68):
        pair = build("access-product", term, term, 1)
        term = build("compute", "elementwise-add", pair)
    found = search(program_nodes(term), RULES.values(), PARAMETERS)
    assert found.stopped == "saturated"
