"""Reads arguments of a text that contain no terms: names, numbers, keywords, shapes, compute types."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from glenside.ir.bounds import LARGEST
from glenside.ir.dtypes import DTYPES
from glenside.ir.errors import ParseError
from glenside.ir.names import shortened, suggestion
from glenside.ir.operator import COMPUTES, Compute, Field, Kind
from glenside.ir.operators import compute_text
from glenside.ir.rational import exact
from glenside.ir.text.reader import ATOM, CLOSE, OPEN, STRING, Reader, Token
from glenside.ir.types import Dims

_INTEGER = re.compile(r"[+-]?[0-9]+")

WANTED = {
    Kind.TERM: "a term",
    Kind.TERMS: "a term",
    Kind.SHAPE: "a shape, such as (shape 3 3)",
    Kind.INTS: "a list, such as (list 1 0)",
    Kind.ACCESS_SHAPE: "an access shape, such as (access-shape (shape 4) (shape 3 3))",
    Kind.INT: "an integer",
    Kind.NUMBER: "an exact number, such as -2, 1.5, 1e-5 or 1/3",
    Kind.TEXT: 'a text in quotes, such as "gelu"',
    Kind.TENSOR: "the name of a tensor",
    Kind.DTYPE: f"a dtype ({', '.join(DTYPES)})",
    Kind.COMPUTE: "a compute type",
}


class Arguments:
    """Reads one argument at the cursor, or raises ParseError. `owner` is the form to which the argument belongs."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def error(self, owner: str, what: str, wanted: str, token: Token, got: str = "") -> ParseError:
        return self.reader.error(f"{owner} requires {what} to be {wanted}, got {got or token}", token.offset)

    def missing(self, owner: str, what: str, names: str, count: int, opening: Token) -> ParseError:
        return self.reader.error(f"{owner} requires the {what} {names}, got {count} of them", opening.offset)

    def plain(self, owner: str, field: Field) -> str | int:
        """Reads an integer, a number, a keyword, a text, a dtype or a compute type, depending on the field."""
        if field.kind is Kind.COMPUTE:
            return self.compute_kind()
        if field.kind is Kind.INT:
            return self.integer(owner, field.name)
        if field.kind is Kind.DTYPE:
            return self.keyword(owner, field.name, DTYPES, WANTED[Kind.DTYPE])
        if field.kind is Kind.KEYWORD:
            return self.keyword(owner, field.name, field.choices, " or ".join(field.choices))
        if field.kind is Kind.TEXT:
            return self.text(owner, field.name)
        return self.number(owner, field.name)

    def _taken(self, owner: str, what: str, wanted: str, fits: Callable[[Token], bool]) -> str:
        token = self.reader.take()
        if not fits(token):
            raise self.error(owner, what, wanted, token)
        return token.text

    def number(self, owner: str, what: str) -> str:
        return self._taken(owner, what, WANTED[Kind.NUMBER], lambda t: t.kind == ATOM and exact(t.text) is not None)

    def keyword(self, owner: str, what: str, choices: Sequence[str], wanted: str) -> str:
        return self._taken(owner, what, wanted, lambda t: t.kind == ATOM and t.text in choices)

    def text(self, owner: str, what: str) -> str:
        return self._taken(owner, what, WANTED[Kind.TEXT], lambda t: t.kind == STRING)

    def open(self, owner: str, what: str, wanted: str) -> None:
        self._taken(owner, what, wanted, lambda t: t.kind == OPEN)

    def optional_dtype(self, owner: str, default: str) -> str:
        """Reads the dtype before the closing parenthesis, or returns the default."""
        if self.reader.token.kind == CLOSE:
            return default
        return self.keyword(owner, "dtype", DTYPES, WANTED[Kind.DTYPE])

    def compute_kind(self) -> str:
        """Reads a compute type, relu or (clip 0 6), and returns its canonical text."""
        opening = self.reader.token
        if opening.kind == OPEN:
            self.reader.take()
        head = self.reader.take()
        record = COMPUTES.get(head.text) if head.kind == ATOM else None
        if record is None:
            hint = suggestion(head.text, COMPUTES)
            raise self.reader.error(f"compute requires a compute type, got {head}{hint}", head.offset)
        if opening.kind == OPEN:
            return compute_text(record.name, *self._parameters(record, opening))
        if record.parameters:
            names = " ".join(field.name for field in record.parameters)
            message = f"{record.name} requires the parameters {names}, written ({record.name} {names}), got none"
            raise self.reader.error(message, head.offset)
        return record.name

    def _parameters(self, record: Compute, opening: Token) -> list[str | int]:
        names = " ".join(field.name for field in record.parameters)
        parameters: list[str | int] = []
        for field in record.parameters:
            if self.reader.token.kind == CLOSE:
                raise self.missing(record.name, "parameters", names, len(parameters), opening)
            parameters.append(self.plain(record.name, field))
        self.close(record.name, names, "parameters")
        return parameters

    def shape(self, owner: str) -> Dims:
        """Reads (shape 1 2)."""
        self.open(owner, "shape", WANTED[Kind.SHAPE])
        head = self.reader.take()
        if head.kind != ATOM or head.text != "shape":
            raise self.error(owner, "shape", WANTED[Kind.SHAPE], head, f"({head}")
        return Dims(self.integers("shape"))

    def integers(self, owner: str) -> list[int]:
        """Reads all integers up to and including the closing parenthesis."""
        values = []
        while self.reader.token.kind != CLOSE:
            values.append(self.integer(owner, "each argument"))
        self.reader.take()
        return values

    def integer(self, owner: str, what: str) -> int:
        token = self.reader.take()
        if token.kind != ATOM or not _INTEGER.fullmatch(token.text):
            raise self.error(owner, what, WANTED[Kind.INT], token)
        # Check the length first: Python refuses to read thousands of digits, with an error of its own.
        if len(token.text) > 20 or abs(int(token.text)) > LARGEST:
            raise self.reader.error(f"{owner} requires {what} to fit into 64 bits, got {token}", token.offset)
        return int(token.text)

    def name(self, owner: str, what: str, wanted: str = "a name") -> str:
        token = self.reader.take()
        if not token.is_name:
            hint = f' (such a name is quoted: "{shortened(token.text)}")' if token.kind == ATOM else ""
            raise self.error(owner, what, wanted, token, f"{token}{hint}")
        return token.text

    def close(self, owner: str, names: str, what: str = "arguments") -> None:
        token = self.reader.take()
        if token.kind != CLOSE:
            message = f"{owner} requires the {what} {names or '(none)'}, got {token} after them"
            raise self.reader.error(message, token.offset)
