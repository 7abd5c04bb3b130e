"""Splits a text into tokens with their places, one token at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from glenside.ir.errors import ParseError, Place, TypeMismatch
from glenside.ir.names import shortened

T = TypeVar("T")

OPEN, CLOSE, STRING, ATOM, END = "open", "close", "string", "atom", "end"

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(rf'\s+|;[^\n]*|(?P<open>\()|(?P<close>\))|(?P<string>{_STRING})|(?P<atom>[^\s()";]+)', re.DOTALL)
# Runs of parentheses: a text of ten million of them is a few matches.
_PARENTHESES = re.compile(rf';[^\n]*|{_STRING}|(?P<open>\(+)|(?P<close>\)+)|(?P<quote>")', re.DOTALL)

_NUMBER_LIKE = re.compile(r"[+-]?\.?[0-9]")


@dataclass(frozen=True, slots=True)
class Token:
    """A parenthesis, a string (unquoted), an atom, or the end of the text."""

    kind: str
    text: str
    offset: int

    @property
    def is_name(self) -> bool:
        """True if the token can be a name: any string, and an atom that does not look like a number."""
        return self.kind == STRING or (self.kind == ATOM and not _NUMBER_LIKE.match(self.text))

    def __str__(self) -> str:
        if self.kind == END:
            return "the end of the text"
        return {OPEN: "(", CLOSE: ")"}.get(self.kind) or shortened(self.text, quoted=self.kind == STRING)


class Reader:
    """A cursor over the tokens of a text. Raises ParseError at once if the parentheses are not balanced."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.depth = 0
        self._check_balance()
        self._rest = self.tokens_from(0)
        self.token = next(self._rest)

    def place(self, offset: int) -> Place:
        line = self.text.count("\n", 0, offset) + 1
        return Place(self.file, line, offset - self.text.rfind("\n", 0, offset))

    def error(self, message: str, offset: int) -> ParseError:
        return ParseError(message, self.place(offset))

    def at(self, opening: Token, build: Callable[[], T]) -> T:
        """Returns the value of `build`; adds the place of the parenthesis to a TypeMismatch."""
        try:
            return build()
        except TypeMismatch as error:
            error.place = error.place or self.place(opening.offset)
            raise

    def take(self) -> Token:
        """Returns the token under the cursor, and advances."""
        token = self.token
        if token.kind == OPEN:
            self.depth += 1
        elif token.kind == CLOSE:
            self.depth -= 1
        if token.kind != END:
            self.token = next(self._rest)
        return token

    def tokens_from(self, offset: int) -> Iterator[Token]:
        """Yields the tokens from an offset on, without moving the cursor; the last one is END."""
        for match in _TOKEN.finditer(self.text, offset):
            kind = match.lastgroup
            if kind == STRING:
                yield Token(STRING, self._unquoted(match.group(), match.start()), match.start())
            elif kind is not None:
                yield Token(kind, match.group(), match.start())
        yield Token(END, "", len(self.text))

    def _unquoted(self, quoted: str, offset: int) -> str:
        try:
            name: str = json.loads(quoted, strict=False)
            name.encode()
        except ValueError:
            raise self.error(f"a string requires the escapes of JSON, got {shortened(quoted)}", offset) from None
        return name

    def _check_balance(self) -> None:
        depth, outermost = 0, 0
        for match in _PARENTHESES.finditer(self.text):
            count = match.end() - match.start()
            if match.lastgroup == "open":
                outermost = outermost if depth else match.start()
                depth += count
            elif match.lastgroup == "close":
                depth -= count
                if depth < 0:
                    raise self.error("unbalanced parentheses: one ) too many", match.end() + depth)
            elif match.lastgroup == "quote":
                raise self.error("a string is not closed", match.start())
        if depth:
            raise self.error(f"unbalanced parentheses: {depth} not closed", outermost)
