"""Defines doors, the entry points of the product that the fuzzer tries, one record each, by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec

from glenside.fuzzing.cases import Case, Refusals
from glenside.fuzzing.oracle import Expected, values_of
from glenside.ir.operand import Array
from glenside.ir.program import Program


@dataclass
class Visit:
    """A case at a door.

    program  of a case that is a program, or that a model was imported as
    pick     draws the door's own choices, such as a target; equal for equal seeds
    note     records what the case reached: a rule that fired, a loop nest
    stage    is called before code of others runs, which may crash the process
    """

    case: Case
    program: Program
    seed: int
    pick: random.Random
    note: Callable[[str], None]
    stage: Callable[[str], None]

    @cached_property
    def values(self) -> dict[str, Array]:
        """A value for every tensor of the program."""
        return values_of(self.program, self.seed)

    @cached_property
    def valued(self) -> Program:
        """The program with the values of its constants."""
        return self.program.with_constants({name: self.values[name] for name in self.program.constants_declared})

    @cached_property
    def expected(self) -> Expected:
        """The results of the interpreter."""
        return Expected(self.valued, self.values, self.seed)


@dataclass(frozen=True)
class Door:
    """An entry point of the product.

    form      of its cases: "program" or "model"
    run       raises Wrong, Invalid, GlensideError, or anything else for a crash
    refusals  messages with which it may refuse
    doc       one sentence
    weight    its share of the time, relative to others
    networks  the share of cases that are networks of layers
    examples  the share of cases that are composed of the examples of rules
    joined    True if random programs are mostly several in one, for doors with a fixed cost per case
    needs     packages
    """

    name: str
    form: str
    run: Callable[[Visit], None]
    refusals: Refusals
    doc: str
    weight: float = 1.0
    networks: float = 0.3
    examples: float = 0.0
    joined: bool = False
    needs: tuple[str, ...] = ()

    def missing(self) -> str:
        """Returns the first required package that is not installed, or ""."""
        return next((name for name in self.needs if find_spec(name) is None), "")


_ANYWHERE = (r"requires indices from -?\d+ to -?\d+",)
"""Refusals of any door: the case is undefined for the values that were drawn."""
DOORS: dict[str, Door] = {}


def door(
    name: str,
    *refusals: str,
    form: str = "program",
    weight: float = 1.0,
    networks: float = 0.3,
    examples: float = 0.0,
    joined: bool = False,
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[[Visit], None]], Callable[[Visit], None]]:
    """Registers a function as a door; the first line of its docstring describes it, `needs` are packages."""

    def declare(run: Callable[[Visit], None]) -> Callable[[Visit], None]:
        doc = (run.__doc__ or "").strip().split("\n")[0]
        allowed = Refusals((*refusals, *_ANYWHERE))
        DOORS[name] = Door(name, form, run, allowed, doc, weight, networks, examples, joined, needs)
        return run

    return declare
