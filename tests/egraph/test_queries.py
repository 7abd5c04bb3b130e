"""Tests the egglog form of rules: a type is one row, a match that waits for a shape is found once, subsumed e-nodes do
not match.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from glenside.egraph.clause import ROOT, Clause, subsume, union, when
from glenside.egraph.encode import program_nodes
from glenside.egraph.pattern import variables
from glenside.egraph.queries import compiled
from glenside.egraph.rule import Rule
from glenside.egraph.saturation import SATURATED, Limits, Request, Saturation
from glenside.egraph.schema import dims, relation, split
from glenside.egraph.sorts import ACCESS, INT
from glenside.ir.term import build
from glenside.ir.types import Dims, Tensor
from glenside.rewrites import operators as op

measured = relation("test-measured", x=ACCESS, elements=INT)


def _rule(name: str, *clauses: Clause) -> Rule:
    return Rule(name, "test", "", clauses, ())


def _measuring() -> Rule:
    """It waits for the product of the dims of what it finds."""
    x, d, size = variables("x d size")
    found = (ROOT == op.negative(x), d == dims(x), split(x) == 0, size == d.product())
    return _rule("test-measuring", when(*found).then(measured(ROOT, size)))


def _cancelling() -> Rule:
    x, y = variables("x y")
    twice = op.negative(y)
    return _rule("test-cancelling", when(ROOT == twice, y == op.negative(x)).then(union(ROOT, x), subsume(twice)))


def _saturated(*rules: Rule) -> tuple[Saturation, set[tuple[int, int]]]:
    """Returns the search of -(-x) with these rules, and what `measured` holds then."""
    x = build("access-tensor", Tensor("x", Dims((2, 3)), "float32"))
    nodes = program_nodes(build("compute", "negative", build("compute", "negative", x)))
    search = Saturation(Request.of(nodes, rules, {}, Limits(iterations=20), reported=[measured.name]))
    search.run()
    assert search.progress.stopped == SATURATED
    rows = search.snapshot().facts[measured.name]
    return search, {(row[0], row[1]) for row in rows}


@pytest.mark.parametrize(("at", "matches"), [(0, 2), (1, 0)])
def test_a_guard_after_what_waits_for_a_shape_is_kept(at: int, matches: int) -> None:
    x, d, size = variables("x d size")
    found = (ROOT == op.negative(x), d == dims(x), size == d.product(), split(x) == at)
    search, rows = _saturated(_rule("test-measuring", when(*found).then(measured(ROOT, size))))
    assert len(rows) == search.progress.rules["test-measuring"].matches == matches


def test_what_waits_for_a_shape_is_found() -> None:
    search, rows = _saturated(_measuring())
    assert [size for _, size in sorted(rows)] == [6, 6]
    assert search.progress.rules["test-measuring"].matches == 2


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_subsumed_is_not_found_any_more_in_whatever_order_rules_are_given(turned: bool) -> None:
    rules = [_cancelling(), _measuring()][:: -1 if turned else 1]
    search, rows = _saturated(*rules)
    assert [size for _, size in rows] == [6]
    assert search.progress.rules["test-measuring"].matches == 1


def test_what_is_found_before_a_shape_is_known_is_not_searched_for_again() -> None:
    (text,) = [line for line in _measuring().egglog({}).splitlines() if line.endswith(':name "test-measuring")')]
    assert "compute" not in text
    assert "(found-test-measuring " in text
    assert "(typed ?x ?d " in _measuring().egglog({})


def test_a_type_is_one_row_where_two_parts_of_it_are_read() -> None:
    both = compiled("two", "rules", "(node ?x) (= ?d (dims ?x)) (= (split ?x) 0)", "(done ?x ?d)")[-1]
    assert "(typed ?x ?d any-split-of-?x any-dtype-of-?x) (= any-split-of-?x 0)" in both
    alone = compiled("one", "rules", "(node ?x) (node ?y) (= ?d (dims ?x)) (= ?n (split ?y))", "(done ?x ?d)")[-1]
    assert "typed" not in alone


def test_parts_of_a_type_that_must_be_equal_are_compared() -> None:
    text = compiled("same", "rules", "(= ?d (dims ?x)) (= ?e (dims ?x)) (= ?n (split ?x))", "(done ?x)")[-1]
    assert "(typed ?x ?d ?n any-dtype-of-?x) (= ?d ?e)" in text


def test_a_search_process_loads_no_rules() -> None:
    """They take longer to load than most searches last."""
    loaded = "import sys, glenside.egraph.worker, glenside.rewrites.layout.addressing"
    code = f"{loaded}; print('glenside.rewrites.layout.folding' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
