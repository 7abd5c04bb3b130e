"""Generates programs from the examples of rules: each rule in turn, alone and composed with others."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

from glenside.fuzzing.generate import Generator
from glenside.fuzzing.searching import ONLY, WANTS
from glenside.fuzzing.turns import Turn
from glenside.ir.errors import GlensideError
from glenside.ir.operator import COMPUTES, Category, Compute
from glenside.ir.operators.compute import compute, compute_of, compute_text
from glenside.ir.program import Program
from glenside.ir.term import Term, build, make, rebuild, tensors, weave
from glenside.ir.text import print_program
from glenside.ir.types import Tensor, TupleType
from glenside.rewrites import RULES, Example, Rule

_TOGETHER = 5
"""Rules whose examples are in one program."""
_OTHER_COMPUTES = 0.6
"""The share of programs in which compute types are replaced by others of their category."""
_VARIANTS = 12
"""Variants of examples of one rule that are in one program, unless the demands are of its result."""
_ROOT = "$root"
_FAMILY = 0.5
"""The share of programs of one rule with which its whole family runs."""


def varied(pick: random.Random, turn: Turn) -> str:
    """Returns an example of the rule whose turn it is, at drawn sizes, after its demands; "" if they are not legal.

    Compute types change within their categories, and operands that are equal in the example differ.
    """
    ((done, rule),) = turn.rounds(list(RULES.values()))
    first = rule.examples[done % len(rule.examples)]
    if _ROOT in first.demands:
        drawn = [(first, _variant(pick, first, _Computes(pick) if pick.random() < _OTHER_COMPUTES else None))]
    else:
        named = [example for example in rule.examples if _ROOT not in example.demands]
        computes = [_Computes(pick) for _ in named]
        others = islice(cycle(zip(named, computes, strict=True)), max(0, _VARIANTS - len(named)))
        drawn = [(example, _variant(pick, example, None)) for example in named]
        drawn += [(example, _variant(pick, example, own)) for example, own in others]
    found = [(example, term) for example, term in drawn if term is not None]
    if not found:
        return ""
    terms = [term for _, term in found]
    program = Program(terms[0]) if len(terms) == 1 else joined(terms)
    demands = [_demands(*each, number if len(terms) > 1 else None) for number, each in enumerate(found)]
    rules = [own for own in RULES.values() if own.family == rule.family] if pick.random() < _FAMILY else [rule]
    return _named(rules) + _demanded(" ".join(demands)) + print_program(program)


def _demands(example: Example, term: Term, number: int | None) -> str:
    """Returns the demands of an example, with the names that its tensors have as part `number` of a program; "" if one
    is missing.
    """
    names = {leaf.attributes[0].name for leaf in tensors(term)}  # type: ignore[union-attr]
    known = True

    def renamed(word: re.Match[str]) -> str:
        nonlocal known
        name = max((name for name in names if re.fullmatch(f"{re.escape(name)}\\d*", word[1])), key=len, default="")
        known &= bool(name) or number is None
        return word[0] if number is None else f"${name}_{number}{word[1][len(name) :]}"

    text = re.sub(r"\$(\w+)", renamed, example.demands)
    return text if known else ""


class _Computes:
    """Draws compute types of each category without repetition, until all are drawn."""

    def __init__(self, pick: random.Random) -> None:
        self.pick, self.left = pick, dict[Category, list[Compute]]()

    def draw(self, category: Category) -> Compute:
        """Returns the next compute type of a category."""
        if not self.left.get(category):
            every = [kind for kind in COMPUTES.values() if kind.category is category]
            self.left[category] = self.pick.sample(every, len(every))
        return self.left[category].pop()


def _variant(pick: random.Random, example: Example, computes: _Computes | None) -> Term | None:
    """Returns an example at drawn sizes, if given with other compute types; None if that is not legal."""
    draw = Generator(pick)
    try:
        found = draw.instance(example)
        if found is not None and computes is not None:
            found = other_computes(pick, found, computes)
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
        computes = _Computes(pick)
        terms = [other_computes(pick, term, computes) or term for term in terms]
    return (_named(rules) if pick.random() < 0.8 else "") + print_program(joined(terms))


def _named(rules: Sequence[Rule]) -> str:
    return f"{ONLY}{' '.join(rule.name for rule in rules)}\n"


def _demanded(demands: str) -> str:
    return f"{WANTS}{' '.join(demands.split())}\n" if demands.strip() else ""


def other_computes(pick: random.Random, term: Term, computes: _Computes) -> Term | None:
    """Returns the term with compute types replaced by others of their category; None if the types do not allow it."""

    def change(own: Term, children: tuple[Term, ...]) -> Term | None:
        if own.operator is not compute or pick.random() < 0.2:
            return None
        kind, _ = compute_of(own)
        if kind.category is Category.CONTRACTION:
            return None
        other = computes.draw(kind.category)
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
