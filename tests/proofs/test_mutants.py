"""Mutants of proven clauses: a guard dropped, a number or an order of the right side changed, operands exchanged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice

import pytest

from glenside.egraph.clause import Action, Clause, union
from glenside.egraph.pattern import Call, Pattern
from glenside.egraph.sorts import ACCESS, INT, INTS, PatternError
from glenside.ir.errors import GlensideError
from glenside.proofs import status
from glenside.proofs.access_patterns import Case, Choices, Impossible, NotExpressible
from glenside.proofs.assumptions import Effort, OutOfTime
from glenside.proofs.clause_cases import equations
from glenside.proofs.counterexamples import counterexample
from glenside.proofs.inlined_relations import variants
from glenside.proofs.prove_rule import Verdict, _matched, prove_clause
from glenside.rewrites import EQUATIONS, all_rules

_COMPARED = ("=", "!=", "<", "<=", ">", ">=", "category", "keeps-zero")


def _changed(pattern: Pattern) -> Iterator[Pattern]:
    """Yields a right side with one change at a time."""
    if not isinstance(pattern, Call) or pattern.sort is not ACCESS:
        return
    arguments = pattern.arguments
    for k, a in enumerate(arguments):
        others: list[Pattern] = []
        if a.sort is ACCESS:
            others = list(_changed(a))
        elif a.sort is INT:
            others = [a + 1]
        elif a.sort is INTS and pattern.head.columns[k].name == "order":
            others = [a.permute(a)]
        for other in others:
            yield Call(pattern.head, (*arguments[:k], other, *arguments[k + 1 :]), ACCESS)
    places = [k for k, a in enumerate(arguments) if a.sort is ACCESS]
    if len(places) == 2:
        swapped = list(arguments)
        swapped[places[0]], swapped[places[1]] = arguments[places[1]], arguments[places[0]]
        yield Call(pattern.head, tuple(swapped), ACCESS)


def _mutants(clause: Clause) -> Iterator[Clause]:
    for k, fact in enumerate(clause.facts):
        if fact.head.name in _COMPARED and k:
            try:
                yield Clause((*clause.facts[:k], *clause.facts[k + 1 :]), clause.actions)
            except PatternError:
                continue  # the fact binds a variable
    for k, action in enumerate(clause.actions):
        if isinstance(action, Action) and action.name == "union":
            left, right = action.arguments
            for other in _changed(right):
                yield Clause(clause.facts, (*clause.actions[:k], union(left, other), *clause.actions[k + 1 :]))


def _all_mutants(seed: int, rules: Collection[str]) -> list[tuple[str, Clause]]:
    found = []
    for name, result in status.results().items():
        rule, _, number = name.partition("#")
        if rule in rules and result["status"] == "proven" and not result.get("lemmas"):
            clause = all_rules()[rule].clauses[int(number) - 1]
            found += [(name, mutant) for mutant in _mutants(clause)]
    random.Random(seed).shuffle(found)
    return found


def _is_wrong(clause: Clause, seed: int, seconds: float = 4) -> bool:
    """True if programs of some cases differ, by evaluation alone."""
    rng = random.Random(seed)
    facts = variants(clause.facts)[0].facts
    effort, choices, more = Effort(seconds), Choices(), True
    try:
        while more:
            effort.check()
            case = Case(choices, effort, "float32", 2)
            try:
                found = _matched(facts, case)
                pairs = equations(clause)
                found.bind_all(part for pair in pairs for part in pair)
                if any(counterexample(clause, pair, found, case.known, rng, 3) is not None for pair in pairs):
                    return True
            except Impossible:
                pass
            more = choices.advance()
    except (OutOfTime, NotExpressible, GlensideError):
        return False
    return False


def _counted(mutants: Iterator[tuple[str, Clause]], wanted: int, seconds: float) -> Counter[str]:
    """Returns the verdicts on mutants that are wrong, until there are so many."""
    counts = Counter[str]()
    for name, mutant in mutants:
        found = prove_clause(mutant, seconds)
        assert found is not None
        if found.verdict is Verdict.REFUTED:  # with programs that were evaluated
            counts["refuted"] += 1
        elif _is_wrong(mutant, counts.total()):
            counts[found.verdict.value] += 1
            print(f"{found.verdict.value}, and wrong: {name} as {mutant}")
            assert found.verdict is not Verdict.PROVEN, f"proven, and wrong: {name} as {mutant}"
        if counts.total() == wanted:
            break
    return counts


FAMILIES = {"searched": all_rules().keys() - EQUATIONS.keys(), "product-algebra": EQUATIONS.keys()}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_wrong_mutants_are_not_proven(family: str) -> None:
    counts = _counted(islice(iter(_all_mutants(0, FAMILIES[family])), 40), wanted=8, seconds=2)
    assert counts["refuted"] > counts.total() // 2


@pytest.mark.slow
@pytest.mark.parametrize(("family", "refuted"), [("searched", 90), ("product-algebra", 100)])
@pytest.mark.parametrize("seed", [1])
def test_a_hundred_wrong_mutants_are_not_proven(family: str, refuted: int, seed: int) -> None:
    counts = _counted(iter(_all_mutants(seed, FAMILIES[family])), wanted=100, seconds=4)
    print(dict(counts))
    assert counts.total() == 100
    assert counts["proven"] == 0
    assert counts["refuted"] >= refuted
