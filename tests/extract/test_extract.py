"""Tests extractors against brute force, and on e-graphs that are hard for naive ones: cycles, exponential sharing,
depth.
"""

from __future__ import annotations

import pickle
import random
import time
from collections.abc import Callable
from typing import Any

import highspy
import pytest
from extraction_problems import Node, answers, hard, is_acyclic, problem, random_problem, vector_sum

from glenside.extract import (
    METHODS,
    Extraction,
    ExtractionError,
    Limits,
    NoExtraction,
    Problem,
    children_first,
    extract_dag,
    extract_exact,
    extract_greedy,
    total_cost,
    tree_cost,
)
from glenside.extract import extract as run
from glenside.extract.dag import derive
from glenside.extract.graph import prepare
from glenside.extract.integer_program import Block
from glenside.extract.lower_bound import exclusive_costs, landmarks, lower_bound, scopes
from glenside.extract.reduction import blocks, reduce

BATCHES = range(8)


def check(p: Problem, answer: Extraction) -> None:
    """Roots and children chosen, nothing else; each from its own class; no cycle; the cost adds up."""
    needed, stack = set(), list(p.roots)
    while stack:
        c = stack.pop()
        if c not in needed:
            needed.add(c)
            assert answer.choice[c] in p.classes[c]
            stack += p.children[answer.choice[c]]
    choice = dict(answer.choice)
    assert needed == set(choice)
    assert is_acyclic(p, choice) if len(choice) < 200 else len(children_first(p, choice)) == len(choice)
    assert answer.cost == vector_sum(p, choice) == total_cost(p, choice)


@pytest.mark.parametrize("batch", BATCHES)
def test_every_method_agrees_with_brute_force(batch: int) -> None:
    for seed in range(batch * 100, batch * 100 + 100):
        p = random_problem(seed)
        known = list(answers(p))
        if not known:
            for method in METHODS:
                with pytest.raises(NoExtraction):
                    run(p, method)
            continue
        best = min(vector_sum(p, choice) for choice in known)
        found = {method: run(p, method) for method in METHODS}
        for answer in found.values():
            check(p, answer)
            assert answer.bound is None or answer.bound <= best
            assert not answer.proven or answer.cost == best == answer.bound
        assert found["exact"].proven
        assert found["auto"].proven
        assert found["dag"].cost <= found["greedy"].cost
        assert tree_cost(p, dict(found["greedy"].choice)) == min(tree_cost(p, choice) for choice in known)


@pytest.mark.parametrize("classes", [0, 150])
@pytest.mark.parametrize("batch", BATCHES)
def test_each_search_alone_finds_the_optimum(batch: int, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the reduction, every choice is left to the integer program, or to branch and bound."""
    monkeypatch.setattr("glenside.extract.branch_and_bound.MAX_CLASSES", classes)
    monkeypatch.setattr("glenside.extract.reduction._without_hopeless", lambda live, *rest: list(live.nodes))
    monkeypatch.setattr("glenside.extract.reduction._without_dominated", lambda live, forced, c, own: own)
    solved = 0
    for seed in range(5000 + batch * 40, 5040 + batch * 40):
        p = random_problem(seed, most=9)
        known = list(answers(p))
        if known:
            start = Extraction(known[-1], vector_sum(p, known[-1]))
            answer = extract_exact(p, start=start)
            check(p, answer)
            assert answer.proven
            assert answer.cost == min(vector_sum(p, choice) for choice in known)
            solved += answer.cost < start.cost
    assert solved > 5


@pytest.mark.parametrize("batch", BATCHES)
def test_reduction_keeps_the_optimum_and_landmarks_are_in_every_answer(batch: int) -> None:
    for seed in range(9000 + batch * 60, 9060 + batch * 60):
        p = random_problem(seed)
        known = list(answers(p))
        if not known:
            continue
        live = prepare(p)
        best = min(vector_sum(p, choice) for choice in known)
        reduced = reduce(live)
        kept = {n for nodes in reduced.live.nodes for n in nodes}
        assert min(vector_sum(p, choice) for choice in known if kept.issuperset(choice.values())) == best
        needed = set.intersection(*({*choice} for choice in known))
        assert set(landmarks(live)) <= needed
        forced = landmarks(live)
        assert p.unpack(lower_bound(forced, exclusive_costs(live, scopes(live, forced)))) <= best


def test_dag_is_valid_and_never_worse_than_greedy_on_a_thousand_graphs() -> None:
    optimal = 0
    for seed in range(20_000, 21_000):
        p = random_problem(seed, most=14)
        try:
            dag, greedy = extract_dag(p), extract_greedy(p)
        except NoExtraction:
            continue
        check(p, dag)
        check(p, greedy)
        assert dag.cost <= greedy.cost
        optimal += dag.cost == run(p).cost
    assert optimal > 600


def test_dag_sees_sharing_that_a_tree_does_not() -> None:
    # Two uses of class 3 (7 in all) beat two separate leaves (5 + 5), though each leaf alone is cheaper.
    p = problem(
        [((1, 2), (0,))],
        [((3,), (0,)), ((), (5,))],
        [((3,), (0,)), ((), (5,))],
        [((), (7,))],
    )
    assert extract_greedy(p).cost == (10,)
    assert run(p).cost == (7,)
    assert run(p).proven


def test_costs_are_lexicographic() -> None:
    p = problem([((), (1, 0, 0)), ((), (0, 900, 1)), ((), (0, 900, 0))])
    for method in METHODS:
        assert run(p, method).cost == (0, 900, 0)


@pytest.mark.parametrize("method", METHODS)
def test_exponential_sharing(method: str) -> None:
    depth = 200
    p = problem(*[[((i + 1, i + 1), (1, 2))] for i in range(depth)], [((), (1, 2))])
    answer = run(p, method)
    check(p, answer)
    assert answer.cost == (depth + 1, 2 * (depth + 1))
    assert tree_cost(p, dict(answer.choice)) == (2 ** (depth + 1) - 1, 2 * (2 ** (depth + 1) - 1))


def test_tree_costs_saturate_and_stay_acyclic() -> None:
    depth = 3000
    p = problem(*[[((i + 1, i + 1), (1,)), ((max(i - 1, 0), i + 1), (0,))] for i in range(depth)], [((), (1,))])
    check(p, extract_greedy(p))


@pytest.mark.parametrize("method", METHODS)
def test_a_deep_chain_needs_no_recursion(method: str) -> None:
    depth = 5_000
    chain: list[list[Node]] = [[((i + 1,), (0, 3)), ((i + 1, depth), (0, 2))] for i in range(depth - 1)]
    p = problem(*chain, [((depth,), (0, 1))], [((), (0, 1))])
    start = time.perf_counter()
    answer = run(p, method)
    assert time.perf_counter() - start < 20
    check(p, answer)
    assert answer.cost == ((0, 3 * (depth - 1) + 2) if method == "greedy" else (0, 2 * (depth - 1) + 2))


def layers(count: int, seed: int, mark: bool) -> Problem:
    """Returns a chain of layers whose alternatives stay inside the layer, and views that undo each other."""
    r = random.Random(seed)
    classes: list[list[Node]] = [[((), (0, 1))]]
    below, marks = 0, [0]
    for _ in range(count):
        first = len(classes)
        view, a, b, shared, top = range(first, first + 5)
        classes.append([((below,), (0, 1))])
        classes.append([((shared,), (0, r.randrange(4))), ((view,), (r.randrange(2), r.randrange(9)))])
        classes.append([((shared,), (0, r.randrange(4))), ((a, view), (0, r.randrange(9))), ((b,), (0, 0))])
        classes.append([((view, a), (0, 1)), ((view,), (0, r.randrange(7)))])
        classes.append([((a, b), (0, 1)), ((shared, b, b), (0, r.randrange(3)))])
        below = top
        marks.append(top)
    return problem(*classes, roots=(below,), boundaries=frozenset(marks if mark else ()))


@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.slow if n > 5 else ()) for n in range(12)])
def test_boundaries_keep_the_cost_of_a_chain_of_layers(seed: int) -> None:
    marked, plain = layers(30, seed, True), layers(30, seed, False)
    check(marked, extract_dag(marked))
    assert extract_dag(marked).cost == extract_dag(plain).cost
    assert run(marked).cost == extract_exact(plain).cost
    assert run(marked).proven


def test_boundaries_do_not_hide_a_cycle() -> None:
    # Each of two boundaries is free for the other, and so cheapest through the other.
    p = problem([((1,), (0,)), ((), (9,))], [((0,), (0,)), ((), (8,))], roots=(0, 1), boundaries=frozenset({0, 1}))
    for method in METHODS:
        check(p, run(p, method))
        assert run(p, method).cost == (8,)


def test_sets_over_the_limit_cost_quality_not_validity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glenside.extract.dag.SET_LIMIT", 2)
    for seed in range(300):
        p = random_problem(seed, most=14)
        try:
            check(p, extract_dag(p))
        except NoExtraction:
            continue
        assert run(p).cost == extract_exact(p).cost


def test_the_cost_of_a_derivation_is_exact_when_dominators_compress_it() -> None:
    for seed in range(300):
        p = random_problem(seed, most=12)
        try:
            live = prepare(p)
        except NoExtraction:
            continue
        pick, total = derive(live, scopes(live), frozenset())
        for root in live.roots:
            alone = Problem(p.classes, p.children, p.costs, (root,))
            below = {c: pick[c] for c in range(len(pick)) if pick[c] >= 0}
            stack, closed = [root], {}
            while stack:
                c = stack.pop()
                closed[c] = below[c]
                stack += [d for d in p.children[below[c]] if d not in closed]
            assert p.unpack(total[root]) == total_cost(alone, closed)


def test_a_cyclic_class_is_named() -> None:
    p = problem([((1,), (1,))], [((2, 3), (1,))], [((1,), (1,))], [((), (1,))])
    for method in METHODS:
        with pytest.raises(NoExtraction, match=r"3 classes: 0, 1, 2$") as raised:
            run(p, method)
        assert raised.value.classes == (0, 1, 2)
        assert isinstance(raised.value, ExtractionError)
        assert pickle.loads(pickle.dumps(raised.value)).classes == (0, 1, 2)


def test_an_underivable_class_that_no_root_needs_is_no_error() -> None:
    p = problem([((), (4,)), ((1,), (0,))], [((1,), (0,))], [])
    assert [run(p, method).cost for method in METHODS] == [(4,)] * 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"classes": ((0, 1), (1,))}, "exactly one class"),
        ({"classes": ((0,), ())}, "exactly one class"),
        ({"children": ((1,), (2,))}, "children to be classes below 2, got 2"),
        ({"children": ((-1,), ())}, "children to be classes below 2, got -1"),
        ({"roots": ()}, "at least one root"),
        ({"roots": (5,)}, "roots to be classes below 2, got 5"),
        ({"boundaries": frozenset({3})}, "boundaries to be classes below 2, got 3"),
        ({"costs": ((1, 2),)}, "one cost for each of 2 e-nodes, got 1"),
        ({"costs": ((1, 2), (1,))}, "costs of 2 non-negative ints"),
        ({"costs": ((1, 2), (1, -1))}, r"got \(1, -1\)"),
        ({"costs": ((1, 2), (1, 0.5))}, r"got \(1, 0.5\)"),
    ],
)
def test_bad_problems_are_refused(fields: dict[str, Any], message: str) -> None:
    good = {"classes": ((0,), (1,)), "children": ((1,), ()), "costs": ((1, 2), (0, 0)), "roots": (0,)}
    with pytest.raises(ExtractionError, match=message):
        Problem(**{**good, **fields})


def test_unknown_method() -> None:
    with pytest.raises(ExtractionError, match="got 'tree'"):
        run(problem([((), (1,))]), "tree")


def test_a_deadline_keeps_the_best_answer_and_a_bound() -> None:
    p = hard(6000)
    start = time.perf_counter()
    answer = run(p, "exact", time_limit=1.0)
    assert time.perf_counter() - start < 6
    check(p, answer)
    assert answer.stopped == "time-limit"
    assert answer.bound is not None
    assert answer.bound <= answer.cost <= extract_dag(p).cost
    assert answer.gap is not None
    assert answer.gap > (0, 0)


def test_ctrl_c_keeps_the_best_answer(monkeypatch: pytest.MonkeyPatch, press_ctrl_c: Callable[[float], None]) -> None:
    p, solve, began = hard(6000), Block.solve, list[float]()

    def solve_and_press(*arguments: Any) -> Any:
        began.append(time.perf_counter())
        press_ctrl_c(1.0)
        return solve(*arguments)

    monkeypatch.setattr(Block, "solve", solve_and_press)
    answer = extract_exact(p, Limits.after(60))
    assert time.perf_counter() - began[0] < 1 + 5
    check(p, answer)
    assert answer.stopped == "interrupted"


def test_auto_leaves_large_blocks_to_the_heuristics_and_is_deterministic() -> None:
    p = hard(3000)
    first, second = run(p, node_limit_for_exact=200), run(p, node_limit_for_exact=200)
    check(p, first)
    assert first.stopped == "size-limit"
    assert first == second
    assert list(first.choice) == list(second.choice)


def _merging_layers(count: int, products: int, seed: int = 0) -> Problem:
    """Layers of products of one input, each apart or a slice of a merged one, of this layer or of those before it."""
    r = random.Random(seed)
    classes: list[list[Node]] = [[((), (1,))]]
    below, merged = 0, list[int]()
    for _ in range(count):
        own = len(classes)
        classes.append([((below,), (r.randint(60, 120),)), *(((m,), (r.randint(30, 100),)) for m in merged[-2:])])
        for _ in range(products):
            other = [((r.choice(merged[-3:]),), (r.randint(1, 30),))] if merged else []
            classes.append([((below,), (r.randint(25, 45),)), ((own,), (1,)), *other])
        classes.append([(tuple(range(own + 1, len(classes))), (5,))])
        classes.append([((len(classes) - 1, below), (3,))])
        merged.append(own)
        below = len(classes) - 1
    return problem(*classes, roots=(below,))


def test_auto_proves_whole_networks_of_layers_that_share_choices() -> None:
    """The reduction leaves one block of some thousand e-nodes, where no product is merged by the heuristics."""
    p = _merging_layers(300, 3)
    answer = run(p)
    check(p, answer)
    assert answer.stopped == "optimal"
    assert answer.cost < extract_dag(p).cost
    assert answer.gap == (0,)


def test_auto_proves_thousands_of_small_blocks() -> None:
    """Each layer is a block of its own: branch and bound decides it without the integer program."""
    layers = [_merging_layers(1, 8, seed) for seed in range(1_000)]
    classes: list[list[Node]] = []
    roots = []
    for layer in layers:
        first = len(classes)
        classes += [
            [(tuple(first + d for d in layer.children[n]), layer.costs[n]) for n in own] for own in layer.classes
        ]
        roots.append(first + layer.roots[0])
    p = problem(*classes, roots=tuple(roots))
    began = time.process_time()
    answer = run(p)
    assert answer.stopped == "optimal"
    assert answer.cost < extract_dag(p).cost
    assert time.process_time() - began < 10


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_auto_ends_in_time_with_the_best_answer_and_a_gap(seconds: float) -> None:
    p = hard(6000)
    began = time.perf_counter()
    answer = run(p, time_limit=seconds)
    assert time.perf_counter() - began < seconds + 5
    check(p, answer)
    assert answer.stopped == "time-limit"
    assert answer.cost <= extract_dag(p).cost
    assert answer.gap is not None


@pytest.mark.parametrize("busy", [0.2, 60.0])
def test_a_solver_waits_for_one_that_has_not_stopped(busy: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS runs once in a process: an earlier search may still be ending when the next one begins."""
    running, free = highspy.Highs.is_solver_running, time.monotonic() + busy
    monkeypatch.setattr(highspy.Highs, "is_solver_running", lambda self: time.monotonic() < free or running(self))
    monkeypatch.setattr("glenside.extract.branch_and_bound.MAX_CLASSES", 0)
    p = hard(400)
    answer = run(p, time_limit=1.0 if busy > 1 else 20.0)
    check(p, answer)
    assert answer.stopped == ("time-limit" if busy > 1 else "optimal")


def test_large_costs_stay_exact() -> None:
    # Beyond 2^53 in total, where doubles cannot tell the two answers apart.
    big = 1 << 60
    p = problem(
        [((1, 2), (big, big)), ((1,), (big, big + 1))], [((), (1, big)), ((), (0, 3))], [((), (0, 1)), ((), (0, 0))]
    )
    answer = run(p)
    assert answer.cost == min(vector_sum(p, choice) for choice in answers(p))


def test_a_block_is_no_larger_than_what_is_undecided() -> None:
    """A long chain of layers falls apart into blocks of one layer each, however long it is."""
    reduced = reduce(prepare(layers(200, 3, False)))
    groups = blocks(reduced)
    assert max((len(group) for group in groups), default=0) <= 5


@pytest.mark.parametrize("most", [10**8, 10**15])
def test_proofs_are_claimed_only_where_doubles_can_carry_them(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glenside.extract.branch_and_bound.MAX_CLASSES", 0)
    monkeypatch.setattr("glenside.extract.reduction._without_hopeless", lambda live, *rest: list(live.nodes))
    monkeypatch.setattr("glenside.extract.integer_program.TIES", 0)
    proven = unproven = 0
    for seed in range(30_000, 30_060):
        p = random_problem(seed, most=7)
        r = random.Random(seed)
        p = Problem(p.classes, p.children, tuple((r.randrange(most),) for _ in p.costs), p.roots)
        known = list(answers(p))
        if known:
            best = min(vector_sum(p, choice) for choice in known)
            answer = extract_exact(p, start=Extraction(known[0], vector_sum(p, known[0])))
            check(p, answer)
            assert answer.bound is not None
            assert answer.bound <= best
            assert not answer.proven or answer.cost == best
            proven += answer.proven
            unproven += answer.stopped == "numerics"
    assert proven
    assert bool(unproven) == (most > 10**12)
