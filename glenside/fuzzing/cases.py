"""Defines cases, their outcomes at a door, and the keys that distinguish failures."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from glenside.ir.errors import GlensideError


class Verdict(Enum):
    """The outcome of a case at a door. All but the first two are failures."""

    PASSED = "passed"
    REFUSED = "refused"
    """Unsupported, with an expected message."""
    WRONG = "wrong answer"
    CRASH = "crash"
    HANG = "hang"
    REFUSAL = "unexpected refusal"
    INVALID = "invalid file"


FAILURES = tuple(v for v in Verdict if v not in (Verdict.PASSED, Verdict.REFUSED))


@dataclass(frozen=True)
class Case:
    """One program or model as text, and the seed of the numbers and choices of every door.

    form  "program", the text format of programs, or "model", a description of an ONNX model as JSON
    """

    form: str
    text: str
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case at a door.

    place   the function of Glenside that failed, or what differs: with the door and the kind it distinguishes
            failures
    detail  the verdict or the message, in a few lines
    notes   what the case reached, such as a rule that fired
    """

    door: str
    verdict: Verdict = Verdict.PASSED
    place: str = ""
    detail: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.verdict in FAILURES

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that failures of one cause share, as far as known."""
        return self.door, self.verdict.value, self.place


@dataclass
class Failure:
    """A failure that was found.

    case      the shrunk case
    found     the case as it was generated
    count     the number of cases that failed in this way
    test      the path of the test that was written, or ""
    """

    case: Case
    outcome: Outcome
    found: Case
    count: int = 1
    test: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.outcome.door}: {self.outcome.verdict.value}: {self.outcome.detail}"


class Wrong(Exception):
    """The answer of a door is wrong."""


class Invalid(Exception):
    """A file that a door wrote is not valid."""


@dataclass(frozen=True)
class Refusals:
    """Messages with which a door may refuse a case, as patterns."""

    patterns: tuple[str, ...] = ()
    compiled: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compiled", re.compile("|".join(f"(?:{p})" for p in self.patterns) or r"(?!)"))

    def allow(self, message: str) -> bool:
        return self.compiled.search(message) is not None


_NO_SENTENCE = re.compile(
    r"\b(NoneType|ndarray|TypeError|KeyError|ValueError|IndexError|AttributeError|ZeroDivisionError|AssertionError|"
    r"OverflowError|Traceback|AccessType|Dims)\b|<class|object at 0x|np\.\w+\("
)


def flaw(error: GlensideError) -> str:
    """Returns the fault of an error message; "" for one printable sentence without names of Python types."""
    message = str(error)
    if not message.strip():
        return "the message is empty"
    if not message.isprintable():
        return "the message is not one printable line"
    found = _NO_SENTENCE.search(message)
    return f"the message names {found[0]!r}" if found else ""


def pattern_of(message: str) -> str:
    """Returns a message without its numbers and names, so that refusals of one kind are equal."""
    message = re.sub(r"'[^']*'|\"[^\"]*\"", "'..'", message)
    message = re.sub(r"\([^()]*\)", "(..)", re.sub(r"\([^()]*\)", "", message))
    message = re.sub(r"-?\d[\d.,e+-]*", "N", message)
    message = re.sub(r"\b[xwi]N\b|\bxN?\b", "X", message)
    return " ".join(message.split())[:160]
