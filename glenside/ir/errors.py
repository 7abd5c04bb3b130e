"""The errors that bad input raises: each message is one sentence that says what is required and what was given."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a text something stands; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


_LONG = re.compile(r"\S{200,}")  # nobody reads such a word


class GlensideError(Exception):
    """Something is wrong, most often what a user gave. The command line prints `str(error)` and exits with `status`."""

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
    """The text is not a program: unbalanced parentheses, an unknown operator, a forward reference."""


class TypeMismatch(GlensideError):
    """A term cannot be built: "access-pad requires axis < 4, got 5"."""


class BadInput(GlensideError):
    """A file, an array, a flag or a name is not what is needed."""


class OutOfBounds(BadInput):
    """A computed index is outside of the axis that it selects from."""


class Failed(GlensideError):
    """A rule is wrong, or a search process died, and there is no answer without it."""

    status = 3
