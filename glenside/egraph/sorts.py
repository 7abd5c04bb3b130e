"""Sorts of values in an e-graph, and typed columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from glenside.ir.dtypes import DTYPES
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.operator import COMPUTES, Field, Kind


class Sort(Enum):
    """The sort of a pattern's value; the text is egglog's name."""

    ACCESS = "Access"
    ACCESSES = "Accesses"
    INTS = "Ints"
    INT = "i64"
    TEXT = "String"

    @property
    def words(self) -> str:
        """The name of the sort in messages."""
        return _WORDS[self]


ACCESS, ACCESSES, INTS, INT, TEXT = Sort
_WORDS = {ACCESS: "an access pattern", ACCESSES: "access patterns", INTS: "sizes", INT: "a number", TEXT: "a text"}


class PatternError(BadInput, ValueError):
    """A pattern or rule is ill-formed."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: an argument of a signature; a text must be one of `choices`, if there are any."""

    name: str
    sort: Sort
    choices: Collection[str] = ()

    def check(self, text: str, of: str) -> None:
        """Raises PatternError unless the text, or the first word of one such as `(clip 0 6)`, is a choice."""
        word = text.strip("()").split(" ")[0]
        if self.choices and word not in self.choices:
            hint = suggestion(word, self.choices) or f"; it is one of {', '.join(self.choices)}"
            raise PatternError(f"{of} has no {self.name} {text!r}{hint}")


def columns(**sorts: Sort) -> tuple[Column, ...]:
    """Returns columns with these names and sorts; underscores become hyphens."""
    return tuple(Column(name.replace("_", "-"), sort) for name, sort in sorts.items())


_SORTS = {Kind.TERM: ACCESS, Kind.TERMS: ACCESSES, Kind.INT: INT, Kind.INTS: INTS, Kind.SHAPE: INTS}


def columns_of(field: Field) -> tuple[Column, ...]:
    """Returns the columns of an operator's field in its e-nodes: two for an access shape."""
    if field.kind is Kind.ACCESS_SHAPE:
        return Column(f"{field.name}-shape", INTS), Column(f"{field.name}-item", INTS)
    choices: dict[Kind, Collection[str]] = {Kind.KEYWORD: field.choices, Kind.DTYPE: DTYPES, Kind.COMPUTE: COMPUTES}
    return (Column(field.name, _SORTS.get(field.kind, TEXT), choices.get(field.kind, ())),)
