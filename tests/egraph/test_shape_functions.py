"""Tests shape functions: expanded in a rule or read from their table, they have the same value."""

from __future__ import annotations

import pytest

from glenside.egraph.encode import declarations
from glenside.egraph.queries import compiled
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.sexpr import read_all
from glenside.egraph.shape_functions import WRITTEN_OUT, demands, written_out

CASES = {
    "take": ["(vec-of 5 6 7) 2", "(vec-of 5 6 7) 0", "(vec-of 5 6 7) 3", "(vec-empty) 0", "(vec-of 5) 2"],
    "drop": ["(vec-of 5 6 7) 2", "(vec-of 5 6 7) 0", "(vec-of 5 6 7) 3", "(vec-empty) 0", "(vec-of 5) 2"],
    "shift": ["(vec-of 5 6 7) 2", "(vec-of 5 6) -1", "(vec-empty) 4"],
    "insert": ["(vec-of 5 6 7) 9 0", "(vec-of 5 6 7) 9 2", "(vec-of 5 6 7) 9 3", "(vec-empty) 9 0"],
    "permute": ["(vec-of 5 6 7) (vec-of 2 0 1)", "(vec-of 5 6 7) (vec-of 1)"],
}
NAMES = {"take": "v n", "drop": "v n", "shift": "v n", "insert": "v size n", "permute": "u v"}
LONG = "(vec-of 1 2 3 4 5 6 7 8 9 10)"


def found(name: str, looked_up: bool) -> set[str]:
    """Returns the lines of a relation with arguments and values, by the table where the value is a key of a look-up."""
    arguments, sorts = NAMES[name], {"insert": "Ints i64 i64", "permute": "Ints Ints"}.get(name, "Ints i64")
    cases = [*CASES[name], *([f"{LONG} 9"] if name in ("take", "drop") else [])]
    facts = f"(given-to {arguments}) (= x ({name} {arguments}))" + (" (any x y)" if looked_up else "")
    lines = [
        declarations(),
        f"(relation given-to ({sorts}))",
        f"(relation gives ({sorts} Ints))",
        "(relation any (Ints i64))",
        "(ruleset tried)",
        *compiled("tried", "tried", facts, f"(gives {arguments} x)"),
        f"(rule ((= x ({name} {arguments}))) ((any x 0)) :ruleset shapes)",
    ]
    program = "\n".join(f"(given-to {case})" for case in cases)
    search = Saturation(Request("\n".join(lines), program, (("tried", False),), (), 0, Limits()))
    search.run()
    (printed,) = search._command(f"(print-function want-{name} 99)")
    assert ("vec" in str(printed)) == looked_up
    (printed,) = search._command("(print-function gives 99)")
    return {line for line in str(printed).splitlines() if "->" in line}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_a_map_says_what_the_table_holds_and_nothing_where_it_holds_nothing(name: str) -> None:
    by_table, by_map = found(name, True), found(name, False)
    assert by_table == by_map != set()


def test_what_a_look_up_needs_as_its_key_stays_a_table() -> None:
    """A look-up by an expanded key would scan all rows, and so would a look-up by a value computed from it."""
    facts = "(known v n) (= first (take v n)) (= rest (drop first n)) (= size (product rest)) (= last (take v 1))"
    rule = compiled("rule", "rules", facts, "(done first last size)")[-1]
    assert "(= first (take v n))" in rule
    assert "(= rest (drop first n))" in rule
    assert "(take v 1)" not in rule


def test_a_call_on_the_left_is_demanded_as_one_on_the_right() -> None:
    left, right = (written_out(read_all(fact)) for fact in ("(= (take v n) x)", "(= x (take v n))"))
    assert left == right
    assert demands(written_out(read_all("(= (product d) 1)"))) == [([], ["want-product", "d"])]
