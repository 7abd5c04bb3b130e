"""Other texts of an operator: they are read into it, and printed where they say the same in fewer words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glenside.ir.operator import Field, Kind, fields, require


@dataclass(frozen=True)
class Spelling:
    """A record. `expand` takes the arguments of this text, and gives those of the operator; it may raise TypeMismatch.

    `contract` is its inverse: it takes the operator's arguments, and gives None for a term that has no such text.
    """

    name: str
    operator: str
    fields: tuple[Field, ...]
    expand: Callable[..., tuple[Any, ...]]
    contract: Callable[..., tuple[Any, ...] | None]
    doc: str


def _expand_pair(a: Any, b: Any) -> tuple[Any, ...]:
    require(a.access.shape == b.access.shape, "access-pair", "shapes to agree", f"{a.type} and {b.type}")
    return a, b, a.access.split


def _contract_pair(a: Any, b: Any, n: int) -> tuple[Any, ...] | None:
    return (a, b) if n == a.access.split == b.access.split else None


_RECORDS = (
    Spelling(
        name="access-cartesian-product",
        operator="access-product",
        fields=fields(a=Kind.TERM, b=Kind.TERM),
        expand=lambda a, b: (a, b, 0),
        contract=lambda a, b, n: (a, b) if n == 0 else None,
        doc="Every item of a with every item of b: (SA ++ SB)(2, I).",
    ),
    Spelling(
        name="access-pair",
        operator="access-product",
        fields=fields(a=Kind.TERM, b=Kind.TERM),
        expand=_expand_pair,
        contract=_contract_pair,
        doc="Each item of a with that of b at the same place: (S)(2, I).",
    ),
)

# The first that applies is printed: a product of two single items is a cartesian product.
SPELLINGS: dict[str, Spelling] = {spelling.name: spelling for spelling in _RECORDS}

# Their access shape may be written as a plain shape, which is then split as the first operand is.
SPLIT_AS_OPERAND = frozenset({"access-broadcast"})
