"""Tests patterns and clauses: their egglog text and their printed form; mistakes are errors at their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from glenside.egraph.clause import ROOT, let, rewrite, set_, union, when
from glenside.egraph.pattern import Variable, variables, vec
from glenside.egraph.rule import Example
from glenside.egraph.schema import dims, formula, function, parameter, relation
from glenside.egraph.sorts import ACCESS, INT, PatternError
from glenside.ir.operator import OPERATORS
from glenside.ir.operators.compute import compute
from glenside.ir.operators.padding import access_pad
from glenside.ir.operators.pointwise import clip
from glenside.ir.operators.reductions import dot_product
from glenside.ir.operators.slices import access_slice
from glenside.ir.operators.views import access, access_reshape
from glenside.ir.term import Term
from glenside.ir.types import Dims, Tensor
from glenside.rewrites import RULES
from glenside.rewrites.declare import Clauses, V, rule

EXAMPLE = Example("(access-tensor x)", {"x": "n"})
wanted = relation("test-wanted", access=ACCESS, axis=INT, size=INT)
best = function("test-best", INT, "min", access=ACCESS)


def test_an_operator_of_patterns_is_a_pattern_and_of_terms_a_term() -> None:
    a, x, lo = variables("a x lo")
    assert access_slice(a, x, lo, lo + 2).egglog() == "(access-slice ?a ?x ?lo (+ ?lo 2))"
    assert access_reshape(a, vec(), vec(x, 3)).egglog() == "(access-reshape ?a (vec-empty) (vec-of ?x 3))"
    assert dot_product(a).egglog() == '(compute "dot-product" ?a)'
    assert clip("0", "6", a).egglog() == '(compute "(clip 0 6)" ?a)'
    tensor = OPERATORS["access-tensor"](Tensor("x", Dims((3, 4))))
    assert isinstance(access(tensor, 1), Term)
    assert isinstance(clip("0", "6", tensor), Term)


def test_sizes_and_numbers_read_as_in_python() -> None:
    d, n = variables("d n")
    assert d.set(0, d[1] - n).append(vec(n)).egglog() == "(vec-append (vec-set ?d 0 (- (vec-get ?d 1) ?n)) (vec-of ?n))"
    assert (d.take(n) == d.drop(n)).egglog() == "(= (take ?d ?n) (drop ?d ?n))"
    assert ((1 << n) % 3).egglog() == "(% (<< 1 ?n) 3)"
    assert (d.length > n).egglog() == "(> (vec-length ?d) ?n)"


def test_columns_may_be_named() -> None:
    a, x = variables("a x")
    assert wanted(a, size=2, axis=x).egglog() == "(test-wanted ?a ?x 2)"
    assert wanted.declaration == "(function test-wanted (Access i64 i64) Unit :merge old)"
    assert best.declaration == "(function test-best (Access) i64 :merge (min old new))"


def test_rows_of_a_relation_always_hold() -> None:
    number = relation("test-number", rows=range(2), number=INT)
    assert number.declaration.splitlines()[1:] == ["(set (test-number 0) ())", "(set (test-number 1) ())"]


def _slice_of_slice() -> tuple[V, V]:
    a, x, lo, hi, low, high = variables("a x lo hi low high")
    return access_slice(access_slice(a, x, lo, hi), x, low, high), access_slice(a, x, lo + low, lo + high)


def test_a_clause_reads_as_its_equation() -> None:
    a, b, d, n = variables("a b d n")
    assert (
        str(rewrite(*_slice_of_slice()))
        == "slice(slice(a, x, lo, hi), x, low, high) = slice(a, x, lo + low, lo + high)"
    )
    assert str(rewrite(access(a, 0), a, d == dims(a), d[0] > 1)) == "access(a, 0) = a where d = dims(a), d[0] > 1"
    late = when(wanted(a, 0, 1), ROOT == access(a, n)).then(union(ROOT, a))
    assert str(late) == "access(a, n) = a where test-wanted(a, 0, 1)"
    named = when(ROOT == access(a, n)).then(let(b, access(a, 0)), union(ROOT, access(b, n)))
    assert str(named) == "access(a, n) = access(b, n) where b := access(a, 0)"
    assert (
        str(when(wanted(ROOT, 0, 1)).then(wanted(ROOT, 1, 1))) == "test-wanted(root, 0, 1) => test-wanted(root, 1, 1)"
    )


def test_a_rule_declares_what_its_clauses_use() -> None:
    a, n = variables("a n")
    price = formula("price", "n")
    clause = when(wanted(a, 0, n), n > parameter("rows")).then(set_(best(a), price(n)))

    @rule("test", EXAMPLE)
    def test_best_is_known() -> Clauses:
        """best(a) = price.

        Sound because nothing is added.
        """
        return clause

    del RULES["test-best-is-known"]
    assert test_best_is_known.declarations == (wanted.declaration, best.declaration)
    assert test_best_is_known.parameters == {"rows", "price"}
    assert "(set (test-best ?a) (+ ?n 1))" in test_best_is_known.egglog({"rows": 2, "price": lambda n: n + 1})
    with pytest.raises(ValueError, match="the rule test-best-is-known requires the parameter price"):
        test_best_is_known.egglog({"rows": 2})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda a, x: access_slice(a, x, 0), r"access-slice\(a, axis, lo, hi\) takes 4 arguments, got 3"),
        (lambda a, x: access_pad(a, "zero-pading", x, 0, 1), "no kind 'zero-pading'; did you mean zero-padding?"),
        (lambda a, x: compute("rleu", a), "compute has no kind 'rleu'; did you mean relu?"),
        (lambda a, x: access(a, a), r"access pattern elsewhere"),
        (lambda a, x: access(a, "1"), r"split of access\(a, split\) takes a number, got '1'"),
        (lambda a, x: access(a, x).length, "takes sizes, and access.a, x. is an access pattern"),
        (lambda a, x: wanted(a, x, sise=1), "no column sise; did you mean size?"),
        (lambda a, x: wanted(a, x, axis=1), "has axis twice"),
        (lambda a, x: wanted(x + 1, x, 1), "takes an access pattern, and x . 1 is a number"),
        (lambda a, x: bool(a == x), "has no truth value"),
        (lambda a, x: union(a, x + 1), "union of .* takes an access pattern"),
        (lambda a, x: set_(access(a, x), a), "set_ takes a call of a declared function"),
        (
            lambda a, x: when(access(a, x) == ROOT).then(wanted(a, 0, Variable("y"))),
            "binds the variable y; bound are a",
        ),
        (lambda a, x: when(x > 0).then(wanted(a, 0, x)), "no fact before x > 0 binds the variable x"),
        (
            lambda a, x: when(access(a, x) == ROOT, wanted(Variable("x"), 0, 0)).then(wanted(a, 0, 0)),
            "the variable x is of two sorts",
        ),
        (lambda a, x: when(Variable("p") == Variable("q"), access(Variable("p"), x) == ROOT).then(), "binds"),
    ],
)
def test_a_mistake_in_a_pattern_is_an_error_that_says_what_is_right(build: Callable[..., Any], message: str) -> None:
    with pytest.raises(PatternError, match=message):
        build(*variables("a x"))


def _mistaken(a: V) -> Clauses:
    """f(a) = a. Sound because it is a test."""
    return rewrite(acess(a, 0), a)  # type: ignore[name-defined]  # noqa: F821


def _unbound(a: V, b: V) -> Clauses:
    """f(a) = b. Sound because it is a test."""
    return rewrite(access(a, 0), access(b, 0))


def _unused(a: V, b: V) -> Clauses:
    """f(a) = a. Sound because it is a test."""
    return rewrite(access(a, 0), a)


def _of_two_sorts(a: V, x: V) -> Clauses:
    """f(a) = a. Sound because it is a test."""
    return rewrite(access(a, x), a, x == dims(a))


def _of_a_misspelt_column(a: V) -> Clauses:
    """f(a) = a. Sound because it is a test."""
    return when(wanted(a, axes=0, size=1)).then(wanted(a, 0, 1))


def _of_an_empty_let(a: V, b: V) -> Clauses:
    """f(a) = a. Sound because it is a test."""
    return when(access(a, 0) == ROOT).then(let(b, access(a, 1)), union(b, Variable("c")))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (_mistaken, "the rule -mistaken: name 'acess' is not defined; did you mean access?"),
        (_unbound, "the rule -unbound: the right side access.b, 0. has the variable b, .* bind; they bind a"),
        (_unused, "the rule -unused: no clause uses its parameter b"),
        (_of_two_sorts, "the rule -of-two-sorts: b of =.* takes a number, and dims.a. is sizes"),
        (_of_a_misspelt_column, "the rule -of-a-misspelt-column: test-wanted.* has no column axes; did you mean axis?"),
        (_of_an_empty_let, "the rule -of-an-empty-let: .* binds the variable c; bound are a b root"),
    ],
)
def test_a_mistake_in_a_rule_is_an_error_with_its_name(mistake: Callable[..., Any], message: str) -> None:
    with pytest.raises(PatternError, match=message):
        rule("test", EXAMPLE)(mistake)


def test_two_declarations_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="test-wanted is declared twice"):
        relation("test-wanted", access=ACCESS)
