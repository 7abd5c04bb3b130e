"""Tables: what a rule asks a Python function for is there in the next iteration, once for each arguments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from glenside.egraph.clause import rewrite
from glenside.egraph.pattern import variables, vec
from glenside.egraph.rule import Example, Rule
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.schema import dims
from glenside.egraph.sorts import INT, INTS, TEXT
from glenside.egraph.tables import RESULTS, TABLES, Table, table, used
from glenside.ir.operators.pointwise import relu
from glenside.ir.operators.views import access_reshape
from glenside.ir.term import postorder
from glenside.ir.text import parse
from glenside.ir.types import Dims

CALLS: list[tuple[object, ...]] = []


def of_sorted(d: Dims, least: int, word: str) -> tuple[Dims, int, str] | None:
    """Dims in descending order, the first of them and a word; no row where the first is below `least`."""
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
    """The dims of what relu was applied to."""
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
    key = 'dx 0 "a word"'
    assert used(f"(= d (of-sorted-dims {key}))") == [declared]
    assert used("(= d (of-sorted-dimsy x)) (of-sorted y)") == []


def test_no_table_is_asked_by_a_request_whose_rules_read_none(declared: Table) -> None:
    nodes = list(postorder(parse("(compute relu (access-tensor x))", shapes={"x": (2,)}).term))
    (x,) = variables("x")
    clause = rewrite(relu(x), relu(relu(x)))
    plain = Rule("twice", "made-up", "Sound because it is a test.", (clause,), (Example(""),))
    assert Request.of(nodes, [plain], {}, Limits()).tables == ()
    assert Request.of(nodes, [plain, _rule(0)], {}, Limits()).tables == ((__name__, "of-sorted"),)


def test_rows_are_written_as_they_are_read(declared: Table) -> None:
    rows = declared.commands([["vec-of", "2", "7"], "0", '"a"'])
    assert rows == [
        '(set (of-sorted-dims (vec-of 2 7) 0 "a") (vec-of 7 2))',
        '(set (of-sorted-first (vec-of 2 7) 0 "a") 7)',
        '(set (of-sorted-shouted (vec-of 2 7) 0 "a") "A")',
    ]
    assert declared.commands([["vec-empty"], "0", '"a"']) == []
