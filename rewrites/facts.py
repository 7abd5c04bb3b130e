"""What rules find and say beside operators: the facts that every e-graph has, and the words that declare more.

Relations, functions and tables are declared once, with named columns of the sorts ACCESS, INT, INTS and TEXT.
"""

from __future__ import annotations

from glenside.egraph.pattern import Function, Relation
from glenside.egraph.schema import (
    access_at,
    category,
    constant,
    dims,
    dtype,
    function,
    given,
    inverse,
    keeps_zero,
    relation,
    source,
    split,
    varies,
    widened,
)
from glenside.egraph.sorts import ACCESS, INT, INTS, TEXT, Sort
from glenside.egraph.tables import table

__all__ = ["ACCESS", "INT", "INTS", "TEXT", "access_at", "category", "constant", "dims", "dtype", "function"]
__all__ += ["given", "inverse", "keeps_zero", "on_demand", "relation", "source", "split", "table", "varies", "widened"]


def on_demand(name: str, **columns: Sort) -> tuple[Relation, Function]:
    """The demand `want-NAME`, and what is made for it, as NAME. One is enough: all of them are equal."""
    return relation(f"want-{name}", rows=(), **columns), function(name, ACCESS, "old", **columns)
