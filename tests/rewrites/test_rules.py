"""Tests every rule from its record alone: it fires, all that it adds is equal, types are kept."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rule_checks import assert_all_equal, saturated

from glenside.builder import Builder
from glenside.egraph.rule import Example, Rule
from glenside.ir.term import Term, build, postorder
from glenside.ir.text import parse
from glenside.rewrites import EQUATIONS, RULES, all_rules, of_families
from glenside.rewrites.layout import folding
from glenside.rewrites.secure.truncations import LATE
from glenside.targets import CPU, MPC, NPU, ConvolutionUnit, SystolicArray
from glenside.targets.base import Way

BY_CLAUSE = {
    rule.name: [rule]
    if rule.analysis
    else [replace(rule, name=f"{rule.name}-{i}", clauses=(clause,)) for i, clause in enumerate(rule.clauses)]
    for rule in all_rules().values()
}
PARAMETERS = {"rows": 3, "columns": 2, "layout": 1, "loads": 2, "stores": 2}


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda r: r.name)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_rule_fires_and_is_sound(rule: Rule, seed: int) -> None:
    """On each example; and a clause that no example reaches is a rule without a test."""
    clauses = BY_CLAUSE[rule.name]
    own = EQUATIONS.values() if rule.name in EQUATIONS else of_families((rule.family,))
    family = tuple(clause for other in own for clause in BY_CLAUSE[other.name])
    missing = dict.fromkeys(clauses)
    for example in rule.examples:
        snapshot, search = saturated(
            example.program(seed),
            clauses,
            {**PARAMETERS, **example.parameters},
            example.demands,
            compiled=family,
        )
        fired = [clause for clause in clauses if search.progress.rules[clause.name].matches > 0]
        assert fired, f"{rule.name} does not fire on its example {example.text}"
        assert search.progress.stopped == "saturated"
        assert_all_equal(snapshot, seed, reals=rule.name in EQUATIONS)
        for clause in fired:
            missing.pop(clause, None)
    assert not missing, f"no example of {rule.name} reaches {[str(c.clauses[0]) for c in missing]}"


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda r: r.name)
def test_rule_says_its_equation(rule: Rule) -> None:
    assert rule.equation
    assert "Sound because" in rule.doc


_FLAT = "(access-reshape {} (access-shape (shape) (shape 30)))"
_TURNED = (
    _FLAT.format("(compute relu (access-transpose (access-tensor x) (list 1 0)))"),
    _FLAT.format(
        "(access-transpose (access-reshape (compute relu (access-tensor x)) (access-shape (shape) (shape 2 3 5)))"
        " (list 1 0 2))"
    ),
)


@pytest.mark.parametrize("seed", range(3))
def test_rules_are_sound_in_whatever_order_they_run(seed: int) -> None:
    """What is known of a layout may not hang on which rule took another form of it away before."""
    rules = tuple(rule for rule in RULES.values() if rule.family != LATE)
    order = [*reversed(rules)]
    if seed:
        random.Random(seed).shuffle(order)
    program = parse(f"(access-concatenate {' '.join(_TURNED)} 0)", shapes={"x": (6, 5)})
    snapshot, search = saturated(program, order, PARAMETERS, iterations=300, compiled=rules)
    assert search.progress.stopped == "saturated"
    assert_all_equal(snapshot)


def _everything() -> tuple[Term, ...]:
    """Nodes for which targets want all of their families: windows, gaps, a transpose between pairs and their sum."""
    b = Builder("everything")
    gaps = b.conv_transpose(b.input("x", (1, 2, 5)), b.constant("w", (2, 3, 2)), strides=2)
    pairs = build("access-product", *(build("access", b.input(name, (3, 4)), 1) for name in "yz"), 0)
    between = build("compute", "dot-product", build("access-transpose", pairs, (1, 0, 2, 3)))
    return tuple(postorder(gaps, between))


WAYS = (Way(), Way(mapping="baseline"), Way(blocking="unrolled-tiles"))
TOGETHER = [
    *(SystolicArray(3, 2).families(way, _everything()) for way in WAYS),
    *(SystolicArray(3, 2, dataflow="output-stationary").families(way, _everything()) for way in WAYS[:2]),
    folding.TOGETHER,
    ConvolutionUnit("nhwc").families(Way(), _everything()),
    SystolicArray(3, 2, objectives=("cycles", "copies")).families(Way(), _everything()),
    NPU(3, 2).families(Way(), _everything()),
]
OF_FORMS = [
    MPC().families(Way(), _everything()),
    ("constant-analyses", "late-truncations"),
    CPU().families(Way(), _everything()),
    ("analyses", "recipe-analyses", "transposed-analyses", "transposed", "adjoints"),  # of no target: of gradients
    ("analyses", "recipe-analyses", "row-strip-analyses", "row-strips", "cpu-products"),
]


def _together() -> Iterator[object]:
    """Each rule with each set of families, on its first example and on those after it. Slow are the latter, and all but
    the first rule of each family that no set before has; of a set that has none, its first rule is not.
    """
    before = set[str]()
    for i, families in enumerate((*TOGETHER, *OF_FORMS)):
        rules = [rule for rule in of_families(families) if rule.examples]
        first_of = {rule.family: rule for rule in reversed(rules) if rule.family not in before}
        new = [*first_of.values()] or rules[:1]
        for rule in rules:
            for first, examples in ((True, rule.examples[:1]), (False, rule.examples[1:])):
                marks = [] if rule in new and first else [pytest.mark.slow]
                name = f"{rule.name}-{i}{'' if first else '-others'}"
                if examples:
                    yield pytest.param(examples, families, first, id=name, marks=marks)
        before.update(families)


@pytest.mark.parametrize(("examples", "families", "first"), list(_together()))
def test_rules_of_a_target_together_end_and_are_sound(
    examples: tuple[Example, ...], families: tuple[str, ...], first: bool
) -> None:
    """The rules that run together saturate without a limit, and every e-node of a class is equal.

    Winograd's forms multiply all others, so they are there in a rule's first example, and in those that ask for them.
    """
    for example in examples:
        parameters = {**PARAMETERS, "winograd": 1 << 2 if first else 0, **example.parameters}
        snapshot, search = saturated(
            example.program(2), of_families(families), parameters, example.demands, iterations=200
        )
        assert search.progress.stopped == "saturated"
        assert_all_equal(snapshot)


def test_every_rule_runs_on_some_target() -> None:
    assert {rule.name for rule in RULES.values()} == {
        rule.name for families in (*TOGETHER, *OF_FORMS) for rule in of_families(families)
    }
