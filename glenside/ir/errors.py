"""Defines the errors of bad input: each message is one sentence with the requirement and the given value."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a text; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


_LONG = re.compile(r"\S{200,}")  # too long to be read


class GlensideError(Exception):
    """The base of Glenside's errors, mostly bad input. The command line prints `str(error)` and exits with `status`."""

    status = 2

    def __init__(self, message: str, place: Place | None = None) -> None:
        message = _LONG.sub(lambda word: f"{word[0][:40]}...", message)
        super().__init__(message)
        self.message = message
        self.place = place

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message

    def __reduce__(self) -> tuple[type[GlensideError], tuple[str, Place | None]]:
        return type(self), (self.message, self.place)


class ParseError(GlensideError):
    """A text that is not a program: unbalanced parentheses, an unknown operator, a forward reference."""


class TypeMismatch(GlensideError):
    """A term that cannot be built: "access-pad requires axis < 4, got 5"."""


class BadInput(GlensideError):
    """A file, array, option or name that does not meet its requirement."""


class OutOfBounds(BadInput):
    """A computed index outside of the axis that it selects from."""


class Failed(GlensideError):
    """No answer, because a rule is wrong or a search process has died."""

    status = 3


def line_of_caller(depth: int) -> Place:
    """Returns the line of Python that called a function, `depth` frames above the caller of this one."""
    frame = sys._getframe(depth + 1)
    return Place(os.path.basename(frame.f_code.co_filename), frame.f_lineno, 1)
