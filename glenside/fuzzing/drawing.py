"""Draws the case of a door: a new program or model, or a kept one that is changed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from glenside.fuzzing.cases import Case
from glenside.fuzzing.doors import Door
from glenside.fuzzing.generate import Generator
from glenside.fuzzing.leaves import Settings
from glenside.fuzzing.networks import Networks
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.term import postorder
from glenside.ir.text import parse, print_program

_MUTATED = 0.4
"""The share of cases that continue a kept program."""


def drawn_case(pick: random.Random, door: Door, kept: Sequence[Case]) -> Case:
    """The case that this generator of random numbers draws for a door."""
    seed = pick.randrange(1 << 16)
    own = [case for case in kept if case.form == door.form]
    return Case("program", print_program(_program(pick, door, own)), seed)


def _program(pick: random.Random, door: Door, kept: Sequence[Case]) -> Program:
    if kept and pick.random() < _MUTATED:
        try:
            known = parse(pick.choice(kept).text)
        except GlensideError:  # a file that somebody changed
            return Generator(pick).program()
        parts = [*postorder(known.term)]
        settings = Settings(steps=4)
        return Generator(pick, settings, parts[: pick.randint(1, len(parts))]).program()
    if pick.random() < door.networks:
        return Networks(pick).program()
    return Generator(pick, Settings(opaque=pick.random() < 0.02)).program()
