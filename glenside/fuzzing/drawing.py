"""Draws the case of a door: a new program or model, or a mutated one of the corpus."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from glenside.fuzzing.cases import Case
from glenside.fuzzing.doors import Door
from glenside.fuzzing.generate import Generator
from glenside.fuzzing.leaves import Settings
from glenside.fuzzing.networks import Networks
from glenside.fuzzing.onnx_recipes import drawn_model
from glenside.fuzzing.searching import ONLY, WANTS
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder, rebuild
from glenside.ir.text import parse, print_program
from glenside.ir.types import Tensor, TupleType
from glenside.rewrites import RULES

_TOGETHER = 6
"""Rules whose examples are in one program."""
_JOINED = 0.7
"""The share of random programs that are several in one, at doors with a fixed cost per case."""
_MUTATED = 0.4
"""The share of cases that extend a program of the corpus."""


def drawn_case(pick: random.Random, door: Door, kept: Sequence[Case]) -> Case:
    """Returns the case that this random number generator draws for a door."""
    seed = pick.randrange(1 << 16)
    own = [case for case in kept if case.form == door.form]
    if door.form == "model":
        return Case("model", drawn_model(pick), seed)
    if pick.random() < door.examples:
        text = _example(pick)
        if text:
            return Case("program", text, seed)
    return Case("program", print_program(_program(pick, door, own)), seed)


def _example(pick: random.Random) -> str:
    """Returns the example of a rule at drawn sizes, after its demands, or a program composed of several examples.

    Returns "" if the sizes are not legal.
    """
    draw = Generator(pick)
    draw.pool = [draw.input(draw.dims(), "float32") for _ in range(3)]
    if pick.random() < 0.8:
        rules = pick.sample([rule for rule in RULES.values() if not rule.analysis], _TOGETHER)
        several = (draw.applied(example) for rule in rules for example in pick.sample(rule.examples, 1))
        terms = [term for term in several if term is not None]
        only = f"{ONLY}{' '.join(rule.name for rule in rules)}\n" if pick.random() < 0.8 else ""
        return only + print_program(_joined(terms)) if terms else ""
    example = pick.choice([example for rule in RULES.values() for example in rule.examples])
    try:
        found = draw.instance(example)
    except GlensideError:
        return ""
    wants = f"{WANTS}{' '.join(example.demands.split())}\n" if example.demands else ""
    return "" if found is None else wants + print_program(Program(found))


def _joined(terms: Sequence[Term]) -> Program:
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


def _program(pick: random.Random, door: Door, kept: Sequence[Case]) -> Program:
    if kept and pick.random() < _MUTATED:
        try:
            known = parse(pick.choice(kept).text)
        except GlensideError:  # a file that was changed by hand
            return Generator(pick).program()
        parts = [*postorder(known.term)]
        settings = Settings(steps=4)
        return Generator(pick, settings, parts[: pick.randint(1, len(parts))]).program()
    if pick.random() < door.networks:
        return Networks(pick).program()
    if door.joined and pick.random() < _JOINED:
        return _joined([Generator(pick).term() for _ in range(pick.randint(2, 4))])
    return Generator(pick, Settings(opaque=pick.random() < 0.02)).program()
