"""Puts one case through one door, in this process, and returns its outcome."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from glenside.fuzzing import compiling, importing, searching, writing  # noqa: F401 (they register doors)
from glenside.fuzzing.cases import Case, Invalid, Outcome, Verdict, Wrong, flaw, pattern_of
from glenside.fuzzing.doors import DOORS, Door, Visit
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.text import parse
from glenside.ir.types import AccessType

_DETAIL = 600
_NOTHING = Program(build("construct-tuple"))
"""The program of a model that is not imported yet."""


def visited(case: Case, door: Door, stage: Callable[[str], None] = lambda _: None) -> Outcome:
    """Puts a case through a door."""
    notes: dict[str, None] = {}
    began = time.perf_counter()

    def outcome(verdict: Verdict, place: str = "", detail: str = "") -> Outcome:
        return Outcome(door.name, verdict, place, detail[:_DETAIL], tuple(notes), time.perf_counter() - began)

    try:
        program = parse(case.text) if case.form == "program" else _NOTHING
        for shape in kinds_of(program):
            notes[shape] = None
        pick = random.Random(f"{case.seed}/{door.name}")
        door.run(Visit(case, program, case.seed, pick, lambda note: notes.update({note: None}), stage))
    except Wrong as error:
        return outcome(Verdict.WRONG, _sentence(error), str(error))
    except Invalid as error:
        return outcome(Verdict.INVALID, pattern_of(str(error)), str(error))
    except GlensideError as error:
        message = str(error)
        if said := flaw(error):
            return outcome(Verdict.REFUSAL, pattern_of(message), f"{said}: {message}")
        if door.refusals.allow(message):
            return outcome(Verdict.REFUSED, pattern_of(message), message)
        return outcome(Verdict.REFUSAL, pattern_of(message), message)
    except RecursionError as error:
        return outcome(Verdict.CRASH, f"RecursionError in {place_of(error)}", "RecursionError")
    except Exception as error:
        return outcome(
            Verdict.CRASH, f"{type(error).__name__} in {place_of(error)}", f"{type(error).__name__}: {error}"
        )
    return outcome(Verdict.PASSED)


def _sentence(error: Exception) -> str:
    """Returns what differs, without numbers and without the door's choices."""
    return pattern_of(str(error).split(": ", 1)[-1])


def place_of(error: BaseException) -> str:
    """Returns our innermost function in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/glenside/" in f.filename or "/rewrites/" in f.filename or "/extract/" in f.filename]
    last = (own or frames)[-1]
    return f"{Path(last.filename).parent.name}/{Path(last.filename).name} {last.name}"


def kinds_of(program: Program) -> Iterator[str]:
    """Yields the properties of a program: operators with dtypes and kinds of shapes."""
    for term in program.info.order:
        yield f"{_name(term)} {_shape(term)}"


def _name(term: Term) -> str:
    return str(term.attributes[0]).strip("()").split(" ")[0] if term.operator.name == "compute" else term.operator.name


def _shape(term: Term) -> str:
    """Returns the dtype, the rank, and whether sizes are 0, 1, long or odd."""
    kind = term.type
    if not isinstance(kind, AccessType):
        return "tuple"
    sizes = {
        "0" if size == 0 else "1" if size == 1 else "page" if size % 512 == 0 else "odd" if size % 2 else "even"
        for size in kind.dims
    }
    return f"{kind.dtype} {kind.rank} {'+'.join(sorted(sizes))}"


__all__ = ["DOORS", "visited"]
