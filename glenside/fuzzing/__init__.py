"""Fuzzes the package: puts random programs and models through its doors, and shrinks each failure to a few lines.

`print(gl.fuzz(minutes=1, seed=0, doors=["compile", "onnx"]))` shows the results as tables.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Integral, Real

from glenside.fuzzing import compiling, importing, searching, writing  # noqa: F401 (they register doors)
from glenside.fuzzing.cases import Case, Failure, Outcome, Verdict
from glenside.fuzzing.corpus import Corpus
from glenside.fuzzing.doors import DOORS, Door
from glenside.fuzzing.fuzzer import Fuzzer, Listener
from glenside.fuzzing.report import FuzzReport
from glenside.fuzzing.visiting import visited as _visited
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion

__all__ = ["DOORS", "Case", "Failure", "FuzzReport", "Outcome", "Verdict", "chosen_doors", "fuzz", "visited"]

CASE_SECONDS = 45.0
"""Processor time after which a case counts as a hang."""


def fuzz(
    minutes: float = 1.0,
    seed: int = 0,
    doors: Sequence[str] | str | None = None,
    *,
    corpus: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    cases: int | None = None,
    case_seconds: float = CASE_SECONDS,
    stop_at_first: bool = False,
    listener: Listener = lambda _: None,
) -> FuzzReport:
    """Tries random programs and models at every door, or at the named ones, and shrinks failures.

      minutes   of the whole run; the last failure may still be shrunk afterwards
      corpus    a folder of programs to mutate, which keeps failures and programs that reached something new
      jobs      processes
      cases     a number of cases after which it ends too; such a run is repeatable
      listener  called with the progress

    Ctrl-C ends it early and keeps the findings. Raises BadInput.
    """
    if not (isinstance(minutes, Real) and 0 < minutes < 1e6):
        raise BadInput(f"minutes must be a number above 0, got {minutes!r}")
    if not (isinstance(jobs, Integral) and 1 <= jobs <= 256):
        raise BadInput(f"jobs must be from 1 to 256, got {jobs!r}")
    if cases is not None and not (isinstance(cases, Integral) and cases >= 1):
        raise BadInput(f"cases must be at least 1, got {cases!r}")
    run = Fuzzer(chosen_doors(doors), seed, minutes, cases, jobs, Corpus(corpus), case_seconds, stop_at_first, listener)
    return run.run()


def chosen_doors(names: Sequence[str] | str | None) -> list[Door]:
    """Returns the doors of these names, a list or a text with commas; by default all that can be tried here.

    Raises BadInput.
    """
    if names is None:
        return [door for door in DOORS.values() if not door.missing()]
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    if not names:
        raise BadInput(f"doors are some of {', '.join(DOORS)}, got none")
    for name in names:
        if name not in DOORS:
            raise BadInput(f"a door is one of {', '.join(DOORS)}, got {name!r}{suggestion(name, DOORS)}")
        if missing := DOORS[name].missing():
            raise BadInput(f"the door {name} requires the package {missing}")
    return [DOORS[name] for name in dict.fromkeys(names)]


def visited(text: str, door: str, seed: int = 0) -> Outcome:
    """Puts one program, or one model described as JSON, through a door, in this process. Raises BadInput."""
    (found,) = chosen_doors([door])
    return _visited(Case(found.form, text, seed), found)
