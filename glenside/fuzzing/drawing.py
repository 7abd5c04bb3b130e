"""Draws the case of a door: a new program or model, or a mutated one of the corpus."""

from __future__ import annotations

import random
from collections.abc import Sequence

from glenside.fuzzing.applications import TOGETHER, Applications, applications
from glenside.fuzzing.cases import Case
from glenside.fuzzing.doors import Door
from glenside.fuzzing.generate import Generator
from glenside.fuzzing.leaves import Settings
from glenside.fuzzing.networks import Networks
from glenside.fuzzing.onnx_recipes import drawn_model
from glenside.fuzzing.rule_programs import composed, joined, varied
from glenside.fuzzing.turns import Turn
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.term import postorder
from glenside.ir.text import parse, print_program

_JOINED = 0.7
"""The share of random programs that are several in one, at doors with a fixed cost per case."""
_MUTATED = 0.4
"""The share of cases that extend a program of the corpus."""


def drawn_case(pick: random.Random, door: Door, kept: Sequence[Case], turn: Turn | None = None) -> Case:
    """Returns the case that this random number generator draws for a door.

    turn  the number of the case, so that a run draws all operators, dtypes and rules evenly; by default drawn
    """
    seed = pick.randrange(1 << 16)
    turn = turn or Turn(pick.randrange(1 << 16), pick.randrange(1 << 10))
    own = [case for case in kept if case.form == door.form]
    if door.form == "model":
        return Case("model", drawn_model(pick, turn), seed)
    if pick.random() < door.examples:
        alone, own_turn = turn.halved()
        text = varied(pick, own_turn) if alone else composed(pick, own_turn)
        if text:
            return Case("program", text, seed)
    alone, own_turn = turn.halved()
    if alone and door.joined:
        chosen = own_turn.of(applications(), TOGETHER)
        return Case("program", print_program(Applications(pick).program_of(chosen)), seed)
    return Case("program", print_program(_program(pick, door, own)), seed)


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
        return joined([Generator(pick).term() for _ in range(pick.randint(2, 4))])
    return Generator(pick, Settings(opaque=pick.random() < 0.02)).program()
