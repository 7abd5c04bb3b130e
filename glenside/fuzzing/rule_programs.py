"""Generates programs from the examples of rules: each rule in turn, alone and composed with others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from glenside.fuzzing.generate import Generator
from glenside.fuzzing.searching import ONLY, WANTS
from glenside.fuzzing.turns import Turn
from glenside.ir.errors import GlensideError
from glenside.ir.operator import COMPUTES, Category
from glenside.ir.operators.compute import compute, compute_of, compute_text
from glenside.ir.program import Program
from glenside.ir.term import Term, build, make, rebuild, weave
from glenside.ir.text import print_program
from glenside.ir.types import Tensor, TupleType
from glenside.rewrites import RULES, Example, Rule

_TOGETHER = 5
"""Rules whose examples are in one program."""
_OTHER_COMPUTES = 0.6
"""The share of programs in which compute types are replaced by others of their category."""
_VARIANTS = 4
"""Variants of examples of one rule that are in one program, if nothing is demanded."""
_FAMILY = 0.5
"""The share of programs of one rule with which its whole family runs."""


def varied(pick: random.Random, turn: Turn) -> str:
    """Returns an example of the rule whose turn it is, at drawn sizes, after its demands; "" if they are not legal.

    Compute types change within their categories, and operands that are equal in the example differ.
    """
    ((done, rule),) = turn.rounds(list(RULES.values()))
    example = rule.examples[done % len(rule.examples)]
    examples = [example] if example.demands else [example, *pick.choices(rule.examples, k=_VARIANTS - 1)]
    found = [term for each in examples if (term := _variant(pick, each)) is not None]
    if not found:
        return ""
    program = Program(found[0]) if len(found) == 1 else joined(found)
    rules = [own for own in RULES.values() if own.family == rule.family] if pick.random() < _FAMILY else [rule]
    return _named(rules) + _demanded(example) + print_program(program)


def _variant(pick: random.Random, example: Example) -> Term | None:
    draw = Generator(pick)
    try:
        found = draw.instance(example)
        if found is not None and pick.random() < _OTHER_COMPUTES:
            found = other_computes(pick, found)
        return None if found is None else draw.apart(found)
    except GlensideError:
        return None


def composed(pick: random.Random, turn: Turn) -> str:
    """Returns a program in which the examples of several rules, whose turn it is, are operands of each other."""
    draw = Generator(pick)
    draw.pool = [draw.input(draw.dims(), "float32") for _ in range(3)]
    rules = turn.of([rule for rule in RULES.values() if not rule.analysis], _TOGETHER)
    several = [draw.applied(pick.choice(rule.examples)) for rule in rules]
    terms = [term for term in several if term is not None]
    if not terms:
        return ""
    if pick.random() < _OTHER_COMPUTES:
        terms = [other_computes(pick, term) or term for term in terms]
    return (_named(rules) if pick.random() < 0.8 else "") + print_program(joined(terms))


def _named(rules: Sequence[Rule]) -> str:
    return f"{ONLY}{' '.join(rule.name for rule in rules)}\n"


def _demanded(example: Example) -> str:
    return f"{WANTS}{' '.join(example.demands.split())}\n" if example.demands else ""


def other_computes(pick: random.Random, term: Term) -> Term | None:
    """Returns the term with compute types replaced by others of their category; None if the types do not allow it."""

    def change(own: Term, children: tuple[Term, ...]) -> Term | None:
        if own.operator is not compute or pick.random() < 0.2:
            return None
        kind, _ = compute_of(own)
        if kind.category is Category.CONTRACTION:
            return None
        alike = [other for other in COMPUTES.values() if other.category is kind.category]
        other = pick.choice(alike)
        parameters = [pick.choice(field.choices or ("1/2", "2", "-1")) for field in other.parameters]
        text = compute_text(other.name, *parameters)
        try:
            return make(own.operator, weave(own.operator, children, [text]))
        except GlensideError:
            return None

    try:
        return rebuild(term, change)
    except GlensideError:
        return None


def joined(terms: Sequence[Term]) -> Program:
    """Returns one program of several terms, whose tensors are renamed apart."""
    made: list[Term] = []
    for number, term in enumerate(terms):

        def renamed(leaf: Term, _: tuple[Term, ...], number: int = number) -> Term | None:
            tensor = leaf.attributes[0] if leaf.operator.name == "access-tensor" else None
            if not isinstance(tensor, Tensor):
                return None
            return build("access-tensor", replace(tensor, name=f"{tensor.name}_{number}"))

        own = rebuild(term, renamed)
        made += own.children if isinstance(own.type, TupleType) and own.children else [own]
    return Program(build("construct-tuple", *made))
