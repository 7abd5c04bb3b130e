"""Tests every rule beyond its examples: random operands of its left side, and examples at other sizes and splits.

A guard that is missing shows as two types in one class, as an e-node that cannot be built, or as two values.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fuzzing import Fuzzing
from rule_checks import assert_all_equal, whole_numbers
from rule_instances import Instance, instance, mutant
from slow_cases import quick

from glenside.egraph.clause import Action, Clause
from glenside.egraph.encode import PROGRAM_NODE, program_nodes
from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.saturation import Limits
from glenside.egraph.sexpr import literal, row_said
from glenside.fuzzing.soundness import saturated
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.text import parse
from glenside.rewrites import EQUATIONS, RULES
from glenside.rewrites.secure.truncations import LATE
from glenside.semantics.interpreter import evaluate
from glenside.targets import ConvolutionUnit, SystolicArray

PARAMETERS: Parameters = {
    **{name: value for t in (ConvolutionUnit(), SystolicArray(3, 2)) for name, value in t.rule_parameters().items()},
    **{"scatter": 0, "winograd": 0, "row_strips": 0},
}
_LIMITS = Limits(nodes=2_500, iterations=6, seconds=900.0)
SEARCHED = tuple(rule for rule in RULES.values() if rule.family != LATE)
APART = tuple(EQUATIONS.values())
CLAUSES = [(rule, clause) for rule in (*SEARCHED, *APART) if not rule.analysis for clause in rule.clauses]
_TOGETHER = 10
"""Instances that share an e-graph: each search has a price of its own."""


def instances(seed: int, count: int, *, rules: Sequence[Rule] = SEARCHED) -> Iterator[Instance]:
    """So many programs: half of them match a clause, and half are examples that were changed."""
    drawn = random.Random(seed)
    found = tried = 0
    clauses = [(rule, clause) for rule, clause in CLAUSES if rule in rules]
    while found < count and tried < 20 * count:
        rule, clause = drawn.choice(clauses)
        tried += 1
        how = drawn.random() < 0.5
        made = instance(clause, 1000 * seed + tried, PARAMETERS) if how else _changed(rule, 1000 * seed + tried, drawn)
        if made is not None:
            found += 1
            yield made


def _changed(rule: Rule, seed: int, drawn: random.Random) -> Instance | None:
    return mutant(drawn.choice(rule.examples), seed)


def fault(some: Sequence[Instance], rules: Sequence[Rule] = SEARCHED) -> str:
    """What is wrong where these rules run on these programs together, or ""."""
    terms = list(dict.fromkeys(term for one in some for term in one.terms))
    program = Program(terms[0] if len(terms) == 1 else build("construct-tuple", *terms))
    if not _is_legal(program):
        return ""
    told = _told(program, [want for one in some for want in one.wants])
    try:
        apart = all(rule in APART for rule in rules)
        compiled = APART if apart else SEARCHED
        snapshot, search = saturated(program, rules, _LIMITS, {}, told, compiled)
        with np.errstate(all="ignore"):
            assert_all_equal(snapshot, rounded=True, reals=apart)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # egglog's panics are not Exceptions
        return f"{type(error).__name__}: {error}"
    FIRED.update(name for name, run in search.progress.rules.items() if run.matches)
    return ""


def _is_legal(program: Program) -> bool:
    """Whether it has a value: an index that is drawn may be out of range."""
    try:
        with np.errstate(all="ignore"):
            evaluate([program.term], whole_numbers(program.tensors, 0))
    except GlensideError:
        return False
    return True


def _told(program: Program, wants: Sequence[tuple[str, Sequence[Any]]]) -> str:
    """Returns rows of relations, of terms of the program and values, as actions."""
    places = {term: f"({PROGRAM_NODE} {i})" for i, term in enumerate(program_nodes(program.term))}
    said = ((name, [places[a] if isinstance(a, Term) else literal(a) for a in values]) for name, values in wants)
    return "\n".join(row_said(f"({name} {' '.join(values)})") for name, values in said)


FIRED: Counter[str] = Counter()


def culprit(some: Sequence[Instance]) -> str:
    """Returns the first of the programs that has a fault by itself, in words, and which rules it takes."""
    for one in some:
        if fault([one]):
            rules = list(SEARCHED)
            size = len(rules) // 2
            while size:
                for start in range(0, len(rules), size):
                    fewer = rules[:start] + rules[start + size :]
                    if fault([one], fewer):
                        rules = fewer
                        break
                else:
                    size //= 2
            names = [rule.name for rule in rules if not rule.analysis]
            return f"{names}: {fault([one], rules)}\n{[*map(str, one.terms)]}\n{one.wants}"
    return f"only together: {fault(some)}"


def check(seed: int, count: int) -> None:
    some = list(instances(seed, count))
    for start in range(0, len(some), _TOGETHER):
        batch = some[start : start + _TOGETHER]
        if fault(batch):
            pytest.fail(f"seed {seed}: {culprit(batch)}")


@pytest.mark.parametrize("seed", quick(range(2), 1))
def test_rules_are_sound_at_random_operands(seed: int) -> None:
    check(seed, 10)


def _apart(seed: int, count: int) -> None:
    """Each equation of the algebra between layers by itself: together they do not end."""
    for rule in APART:
        for one in instances(seed, count, rules=[rule]):
            assert not (found := fault([one], [rule])), f"{rule.name}, seed {seed}: {found}"


def test_equations_between_layers_are_sound_at_random_operands() -> None:
    _apart(0, 2)


@pytest.mark.slow
def test_equations_between_layers_are_sound_at_many_random_operands(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(10, first=100):
        _apart(seed, 30)


@pytest.mark.slow
def test_rules_are_sound_at_many_random_operands(fuzzing: Fuzzing) -> None:
    """10,000 programs: no panic, no e-node that is of another type or value than its class."""
    for seed in fuzzing.seeds(200, first=100):
        check(seed, 50)


@pytest.mark.slow
def test_most_clauses_that_unite_classes_are_reached_at_random() -> None:
    """What the random programs do not reach they do not check."""
    FIRED.clear()
    for seed in range(60):
        check(seed, 50)
    uniting = {rule.name for rule, clause in CLAUSES if _unites(clause) and rule in SEARCHED}
    missed = sorted(name for name in uniting if not FIRED[name])
    assert len(missed) <= len(uniting) // 20, missed


def _unites(clause: Clause) -> bool:
    return any(isinstance(action, Action) and action.name == "union" for action in clause.actions)


def test_a_guard_that_is_missing_is_found() -> None:
    """The rules as they were in 0.5: a pad that leaves a reshape of an empty axis."""
    (rule,) = (rule for rule in SEARCHED if rule.name == "reshape-leaves-the-leading-axis")
    pad = rule.clauses[1]
    unguarded = replace(pad, facts=pad.facts[:-1])
    without = [*(r for r in SEARCHED if r.analysis), replace(rule, clauses=(unguarded,))]
    made = (instance(pad, seed, PARAMETERS) for seed in range(5))
    assert all(one is None or not fault([one]) for one in made)
    seeds = range(200)
    found = (one for seed in seeds if (one := instance(unguarded, seed, PARAMETERS)) is not None and _empty(one.terms))
    assert any(_unsound(one, without) for one in found)


def _empty(terms: Sequence[Term]) -> bool:
    return any(0 in term.access.dims for term in terms[0].children[:1])


def _unsound(one: Instance, rules: Sequence[Rule]) -> bool:
    program = Program(one.terms[0])
    told = _told(program, [want for want in one.wants if want[0] == "source"])
    try:
        snapshot, _ = saturated(program, rules, Limits(iterations=3), {}, told)
        assert_all_equal(snapshot, rounded=True)
    except Exception:
        return True
    return False


CRASHED = {
    "a padded product, of other operands, that a program adds up itself": (
        "(truncate (access-overlap-add (access-slice (access (compute dot-product (access-cartesian-product"
        " (access (access-tensor x) 1) (access (access-tensor w) 1))) 1) 0 0 5) (shape 6) (shape 1)))",
        {"x": (5, 2), "w": (2, 2)},
    ),
    "no operands": (
        "(compute dot-product (access-reshape (access-tensor x) (access-shape (shape) (shape 0))))",
        {"x": (0, 2, 0)},
    ),
    "gaps along several axes, no rows": (
        "(compute dot-product (access-cartesian-product (access-squeeze (access-windows (access (access-dilate"
        " (access-dilate (access-dilate (access-tensor x) 2 1) 3 2) 4 1) 1) (shape 3 2 2 3) (shape 1 1 1 1)) 1)"
        " (access (access-tensor w) 1)))",
        {"x": (0, 3, 3, 2, 3), "w": (1, 3, 2, 2, 3)},
    ),
}


@pytest.mark.parametrize("name", CRASHED)
def test_what_random_operands_found_stays_mended(name: str) -> None:
    text, shapes = CRASHED[name]
    assert not fault([Instance([parse(text, shapes=shapes).term], [])])
