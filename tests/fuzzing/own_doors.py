"""Defines doors with known faults, for tests of the fuzzer. The worker process imports this module."""

from __future__ import annotations

import os
import signal

from glenside.fuzzing.cases import Wrong
from glenside.fuzzing.doors import Visit, door
from glenside.ir.errors import BadInput
from glenside.ir.term import postorder
from glenside.ir.types import AccessType


def _has(visit: Visit, name: str) -> bool:
    return any(t.operator.name == name or name in t.attributes for t in postorder(visit.program.term))


@door("own-wrong")
def wrong(visit: Visit) -> None:
    """Wrong for programs that cast."""
    if _has(visit, "cast"):
        raise Wrong("it differs")


@door("own-crash")
def crash(visit: Visit) -> None:
    """Raise an error of Python."""
    raise KeyError("nothing")


@door("own-fault")
def fault(visit: Visit) -> None:
    """End with a signal."""
    os.kill(os.getpid(), signal.SIGSEGV)


@door("own-hang")
def hang(visit: Visit) -> None:
    """Never answer."""
    while True:
        pass


@door("own-refusals", r"^this is expected")
def refusals(visit: Visit) -> None:
    """Refuse in three ways."""
    if visit.seed == 0:
        raise BadInput("this is expected, for 3 tensors")
    raise BadInput("this is not" if visit.seed == 1 else "got NoneType")


@door("own-runtime")
def runtime(visit: Visit) -> None:
    """A library of others ends the process."""
    visit.stage("a library")
    os.kill(os.getpid(), signal.SIGKILL)


@door("own-wide")
def wide(visit: Visit) -> None:
    """Wrong for axes of more than 8."""
    if any(isinstance(t.type, AccessType) and max(t.access.dims, default=0) > 8 for t in postorder(visit.program.term)):
        raise Wrong("a wide axis")
