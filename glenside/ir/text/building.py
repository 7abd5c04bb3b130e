"""Terms built where a text says so: what is wrong with one is told with the place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

from glenside.ir.errors import TypeMismatch
from glenside.ir.operator import OPERATORS
from glenside.ir.term import Term, make
from glenside.ir.text.arguments import LARGEST
from glenside.ir.text.reader import Reader, Token
from glenside.ir.types import AccessType

T = TypeVar("T")


def at(reader: Reader, opening: Token, build: Callable[[], T]) -> T:
    """The value of `build`; a TypeMismatch of it gets the place of that parenthesis."""
    try:
        return build()
    except TypeMismatch as error:
        error.place = error.place or reader.place(opening.offset)
        raise


def make_term(name: str, operator: str, arguments: Sequence[Any]) -> Term:
    """The term that the text calls `name`. Raises TypeMismatch, also for sizes that no machine has."""
    try:
        term = make(OPERATORS[operator], arguments)
    except TypeMismatch as error:
        # A spelling's user has not heard of the operator behind it.
        raise TypeMismatch(error.message.replace(f"{operator} ", f"{name} ", 1)) from None
    if isinstance(term.type, AccessType) and prod(n or 1 for n in term.type.dims) > LARGEST:
        raise TypeMismatch(f"{name} requires a result of less than 2^63 elements, got {term.type}")
    return term
