"""The prover of rules: results that are current, and what it must not prove."""

from __future__ import annotations

import pytest

from glenside.egraph.clause import Clause, rewrite
from glenside.egraph.pattern import Variable
from glenside.ir.text import parse
from glenside.proofs import status
from glenside.proofs.prove_all import prove_all
from glenside.proofs.prove_rule import Verdict, prove_clause
from glenside.rewrites import EQUATIONS, all_rules
from glenside.rewrites import operators as op
from glenside.rewrites.facts import dims, split
from glenside.rewrites.terms import dot, padded


def test_results_are_current() -> None:
    """After a change of a rule or of the prover: `python -m glenside.proofs`."""
    assert status.outdated() == []


def test_a_rule_that_is_not_there_is_named() -> None:
    with pytest.raises(
        SystemExit, match="no rule is named scale-goes-into-weight; did you mean scale-goes-into-weights"
    ):
        prove_all(["scale-goes-into-weight"])


def test_no_rule_is_refuted_or_vacuous() -> None:
    wrong = {
        k: r.get("counterexample", "") for k, r in status.results().items() if r["status"] in ("refuted", "vacuous")
    }
    assert wrong == {}


def test_most_equations_are_proven() -> None:
    proven = [name for name, r in status.results().items() if r["status"] == "proven"]
    assert len(proven) > 125
    assert all(status.results()[name]["cases"] > 0 and status.results()[name]["example"] for name in proven)


def test_every_equation_of_the_algebra_between_layers_is_proven() -> None:
    found = {
        name: r["status"]
        for rule in EQUATIONS.values()
        for name, _ in status.clause_names(rule)
        if (r := status.results()[name])["status"] != "proven" or r.get("lemmas")
    }
    assert found == {}


_FEW = (
    "slice-of-slice-is-one-slice#1",
    "transposes-compose#1",
    "flip-sinks#3",
    "sum-of-parts-is-a-sum#1",
    "subtracting-a-constant-adds-it#1",
)


@pytest.mark.parametrize("name", _FEW)
def test_a_proof_is_repeated(name: str) -> None:
    rule, _, number = name.partition("#")
    found = prove_clause(all_rules()[rule].clauses[int(number) - 1])
    assert found is not None
    assert found.verdict is Verdict.PROVEN
    assert found.cases == status.results()[name]["cases"]


@pytest.mark.slow
def test_all_proofs_are_repeated() -> None:
    """The whole proof: a clause that was proven is proven again."""
    for rule in all_rules().values():
        for name, clause in status.clause_names(rule):
            if status.results()[name]["status"] == "proven":
                found = prove_clause(clause)
                assert found is not None
                assert (name, found.verdict) == (name, Verdict.PROVEN)


def _v(*names: str) -> list[Variable]:
    return [Variable(name) for name in names]


def _wrong() -> dict[str, Clause]:
    a, b, n, x, lo, hi, d, p, q, s = _v("a", "b", "n", "x", "lo", "hi", "d", "p", "q", "s")
    return {
        "a slice from another place": rewrite(op.slice(op.flip(a, x), x, lo, hi), op.flip(op.slice(a, x, lo, hi), x)),
        "transposes in the other order": rewrite(
            op.transpose(op.transpose(a, p), q), op.transpose(a, d), d == q.permute(p)
        ),
        "a pad of the tuple axis": rewrite(
            dot(a, b, n), op.dot_product(padded(op.product(a, b, n), s, 1)), s == split(a)
        ),
        "a sum of an operand alone": rewrite(dot(a, b, n), dot(a, a, n)),
        "a flip of one operand": rewrite(dot(op.flip(a, x), b, n), dot(a, b, n), x >= split(a)),
        "a pad that is a pad of other elements": rewrite(
            op.compute("exp", padded(a, x, 1)), padded(op.compute("exp", a), x, 1)
        ),
        "of a size 0": rewrite(op.flip(a, x), op.slice(a, x, 0, d[x] - 1), d == dims(a), d[x] > 1),
    }


@pytest.mark.parametrize("name", _wrong())
def test_a_wrong_equation_is_refuted_with_a_program(name: str) -> None:
    found = prove_clause(_wrong()[name])
    assert found is not None
    assert found.verdict is Verdict.REFUTED
    assert found.counterexample is not None
    parse(found.counterexample.left, shapes=dict(found.counterexample.shapes))


def test_guards_that_never_hold_prove_nothing() -> None:
    a, x, d = _v("a", "x", "d")
    impossible = rewrite(op.flip(a, x), op.slice(a, x, 0, 0), d == dims(a), d[x] > 3, d[x] < 3)
    assert prove_clause(impossible).verdict is Verdict.VACUOUS  # type: ignore[union-attr]


def test_an_equation_of_empty_tensors_alone_proves_nothing() -> None:
    a, x, d = _v("a", "x", "d")
    empty = rewrite(op.flip(a, x), a, d == dims(a), d[x] == 0)
    assert prove_clause(empty).verdict is Verdict.VACUOUS  # type: ignore[union-attr]


def test_what_a_table_computes_from_sizes_is_not_proven() -> None:
    found = status.results()["rearrangement-leaves-windows#1"]
    assert found["status"] == "not expressible"
    assert "table" in found["reason"]
