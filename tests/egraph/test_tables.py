"""Tests tables: a rule's request to a Python function is answered in the next iteration, once per arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glenside.egraph import saturation
from glenside.egraph.clause import rewrite
from glenside.egraph.pattern import variables, vec
from glenside.egraph.rule import Example, Rule
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.schema import dims
from glenside.egraph.sexpr import literal, read_all, write
from glenside.egraph.sorts import INT, INTS, TEXT
from glenside.egraph.table_rows import values_of
from glenside.egraph.tables import RESULTS, TABLES, Table, rows, table, used
from glenside.ir.operators.pointwise import relu
from glenside.ir.operators.views import access_reshape
from glenside.ir.term import postorder
from glenside.ir.text import parse
from glenside.ir.types import Dims

CALLS: list[tuple[object, ...]] = []


def of_sorted(d: Dims, least: int, word: str) -> tuple[Dims, int, str] | None:
    """Returns dims in descending order, the first of them and a word; no row where the first is below `least`."""
    CALLS.append((d, least, word))
    found = Dims(sorted(d, reverse=True))
    return (found, found[0], word.upper()) if found and found[0] >= least else None


@pytest.fixture
def declared() -> Iterator[Table]:
    made = table(dims=Dims, first=int, shouted=str)(of_sorted)
    CALLS.clear()
    yield made
    del TABLES[made.name]
    for result in ("dims", "first", "shouted"):
        del RESULTS[f"{made.name}-{result}"]


def _rule(least: int) -> Rule:
    """relu(x) = relu(a reshape of x), to the dims that the table gives; the other results are read too."""
    x, dx, d, n, word = variables("x dx d n word")
    clause = rewrite(
        relu(x),
        access_reshape(relu(access_reshape(x, vec(), d)), vec(), dx),
        *(dx == dims(x), TABLES["of-sorted"].facts(dx, least, "a word", dims=d, first=n, shouted=word)),
        *(word == "A WORD", n == d[0], d != dx),
    )
    return Rule(f"reshape-{least}", "made-up", "Sound because it is a test.", (clause,), (Example(""),))


def _saturated(text: str, shapes: dict[str, tuple[int, ...]], *rules: Rule) -> Saturation:
    nodes = list(postorder(parse(text, shapes=shapes).term))
    search = Saturation(Request.of(nodes, rules, {}, Limits(iterations=20)))
    search.run()
    assert search.progress.stopped == "saturated"
    return search


def _reshaped(search: Saturation) -> set[tuple[int, ...]]:
    """Returns the dims of what relu was applied to."""
    snapshot = search.snapshot()
    owners = [n.children[0] for n in snapshot.nodes if n.operator == "compute" and n.attributes[0] == "relu"]
    return {tuple(snapshot.types[c].dims) for c in owners}


def test_a_rule_reads_what_a_table_gives(declared: Table) -> None:
    search = _saturated("(compute relu (access-tensor x))", {"x": (2, 7, 3)}, _rule(0))
    assert search.progress.rules["reshape-0"].matches > 0
    assert _reshaped(search) == {(2, 7, 3), (7, 3, 2)}


def test_a_rule_does_not_fire_where_there_is_no_row(declared: Table) -> None:
    search = _saturated("(compute relu (access-tensor x))", {"x": (2, 7, 3)}, _rule(8))
    assert ((2, 7, 3), 8, "a word") in CALLS
    assert search.progress.rules["reshape-8"].matches == 0
    assert _reshaped(search) == {(2, 7, 3)}
    search = _saturated(
        "(construct-tuple (compute relu (access-tensor x)) (compute relu (access-tensor y)))",
        {"x": (2, 7, 3), "y": (2, 9)},
        _rule(8),
    )
    assert _reshaped(search) == {(2, 7, 3), (2, 9), (9, 2)}


def test_each_arguments_are_computed_once(declared: Table) -> None:
    text = "(construct-tuple (compute relu (access-tensor x)) (compute relu (access-tensor y)))"
    _saturated(text, {"x": (2, 7, 3), "y": (2, 7, 3)}, _rule(0), _rule(8))
    assert ((2, 7, 3), 0, "a word") in CALLS
    assert ((2, 7, 3), 8, "a word") in CALLS
    assert len(CALLS) == len(set(CALLS))


def test_a_table_is_declared_once_and_found_in_the_rules_that_read_it(declared: Table) -> None:
    assert TABLES["of-sorted"] is RESULTS["of-sorted-first"] is declared
    assert [column.sort for column in declared.columns] == [INTS, INT, TEXT]
    assert declared.module == __name__
    with pytest.raises(ValueError, match="declared twice"):
        table(dims=Dims)(of_sorted)
    assert used(f'({declared.row} dx 0 "a word" d f s)') == [declared]
    assert used("(of-sorted-rowy x) (of-sorted y)") == []


def test_no_table_is_asked_by_a_request_whose_rules_read_none(declared: Table) -> None:
    nodes = list(postorder(parse("(compute relu (access-tensor x))", shapes={"x": (2,)}).term))
    (x,) = variables("x")
    clause = rewrite(relu(x), relu(relu(x)))
    plain = Rule("twice", "made-up", "Sound because it is a test.", (clause,), (Example(""),))
    assert Request.of(nodes, [plain], {}, Limits()).tables == ()
    assert Request.of(nodes, [plain, _rule(0)], {}, Limits()).tables == ((__name__, "of-sorted"),)


def test_results_of_the_same_arguments_are_read_from_one_row(declared: Table) -> None:
    one, other = '(of-sorted-{} d 0 "a word")', '(of-sorted-{} d 8 "a word")'
    texts = [f"(= e {one.format('dims')})", f"(= 7 {one.format('first')})", f"(= f {other.format('dims')})", "(> f 1)"]
    assert [write(fact) for fact in rows(read_all(" ".join(texts)))] == [
        '(of-sorted-row d 0 "a word" e 7 any-result-0-2)',
        '(of-sorted-row d 8 "a word" f any-result-1-1 any-result-1-2)',
        "(> f 1)",
    ]
    twice = rows(read_all(f"(= e {one.format('dims')}) (= f {one.format('dims')})"))
    assert [fact[4] for fact in twice] == ["e", "f"]


@pytest.mark.parametrize("files", [True, False])
def test_many_rows_come_in_at_once_and_without_files_too(
    declared: Table, files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    command, exists = saturation._run, os.path.exists

    def listening(egraph: Any, text: str) -> list[Any]:
        told.append(text)
        return command(egraph, text)

    monkeypatch.setattr(saturation, "_run", listening)
    monkeypatch.setattr(os.path, "exists", lambda path: (files or not str(path).startswith("/dev")) and exists(path))
    sizes = {f"x{i}": (2 + i, 3 + 2 * i) for i in range(20)}
    text = " ".join(f"(compute relu (access-tensor {name}))" for name in sizes)
    search = _saturated(f"(construct-tuple {text})", sizes, _rule(0))
    assert _reshaped(search) == {size for a, b in sizes.values() for size in ((a, b), (b, a))}
    assert any("(input " in text for text in told) == (files and exists("/dev/fd"))
    assert len(CALLS) == len(set(CALLS))


@given(st.lists(st.lists(st.integers(-9, 999)).map(Dims) | st.integers(-9, 99) | st.sampled_from(["", "a b"])))
def test_values_are_read_as_egglog_prints_them(values: list[object]) -> None:
    assert values_of(" ".join(map(literal, values))) == values
