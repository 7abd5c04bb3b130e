"""Mutates the examples of every operator and compute type in one place: no mutant may be called exact."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest
from equal_rewrites import equals
from fuzzing import Fuzzing
from mutations import apart_where_defined, flat, mutants, unseen

from glenside.check import check, is_equal
from glenside.ir.operator import COMPUTES, OPERATORS, Compute, Operator
from glenside.ir.operators.compute import compute, parse_compute
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import TupleType

RECORDS = [*OPERATORS.values(), *COMPUTES.values()]
COUNT = 12  # mutants of an example in each of its programs
_NAMES_AXES = "only says which axes there are: another one of the same type gives the same elements"
UNREACHED = {
    **dict.fromkeys(("opaque", "opaque-pointwise", "opaque-items"), "has no meaning here, so numpy cannot tell"),
    "truncate": "is the identity on reals, and so is what is left when it is gone",
    **dict.fromkeys(("access-reshape", "access-flatten", "access-insert-axis", "access-squeeze"), _NAMES_AXES),
}
"""Records whose mutants are all equal to them, and why."""


def programs(record: Operator | Compute, seed: int) -> Iterator[Term]:
    """Its examples, as rows of elements that any mutant gives too; one sees the elements, one which are an item."""
    for example in record.examples:
        term = example.program(seed).term
        if isinstance(term.type, TupleType):
            term = build("tuple-get-item", term, 0)
        items = build("compute", "reduce-sum", build("cast", term, "float32"))
        yield from (flat(t, t.access.size) for t in (term, items) if t.access.size)


def places(record: Operator | Compute, term: Term) -> list[Term]:
    """Where the record is at work in a term."""
    if isinstance(record, Operator):
        return [t for t in postorder(term) if t.operator is record]
    found = [t for t in postorder(term) if t.operator is compute]
    return [t for t in found if parse_compute(str(t.attributes[0]))[0] is record]


def judged(record: Operator | Compute, seed: int) -> tuple[int, list[str]]:
    """Returns the number of mutants of its examples that numpy distinguishes, and those of them
    that the check misses.
    """
    wrong, missed = 0, []
    for term in programs(record, seed):
        changed = islice(mutants(term, random.Random(seed), places(record, term)), COUNT)
        count, texts = unseen(term, changed, seed, apart_where_defined)
        wrong += count
        missed += texts
    return wrong, missed


@pytest.mark.slow
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_no_mutant_of_an_example_is_called_equal(record: Operator | Compute, fuzzing: Fuzzing) -> None:
    judgements = [judged(record, seed) for seed in fuzzing.seeds(3, first=1)]
    missed = [text for _, texts in judgements for text in texts]
    wrong = sum(count for count, _ in judgements)
    assert not missed, f"{len(missed)} of {wrong}, such as\n{missed[0]}"
    assert (wrong == 0) == (record.name in UNREACHED), f"{wrong} mutants of {record.name} differ: see UNREACHED"


def alarms(record: Operator | Compute, seed: int) -> list[str]:
    """What the check says of programs that are equal to an example, and differ in how."""
    found = []
    for term in programs(record, seed):
        for names, other in islice(equals(term, random.Random(seed)), 2):
            verdict = check(Program(term), Program(other), layers=False).result
            if not is_equal(verdict):
                found.append(f"{record.name}, seed {seed}, {names}, {verdict}:\n{Program(term)}\n{Program(other)}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_an_example_in_another_way_is_called_equal(record: Operator | Compute, fuzzing: Fuzzing) -> None:
    assert [text for seed in fuzzing.seeds(1, first=1) for text in alarms(record, seed)] == []


@pytest.mark.parametrize("name", ["access-pad", "access-slice", "cast", "clip", "reduce-max"])
def test_a_few_mutants_of_examples(name: str) -> None:
    record = next(r for r in RECORDS if r.name == name)
    wrong, missed = judged(record, 0)
    assert wrong > 5
    assert missed == []
