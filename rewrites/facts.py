"""The facts that every e-graph has besides operators, and the functions that declare more.

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
    """Declares the demand `want-NAME`, and NAME, which meets it. One value is enough, since all are equal."""
    return relation(f"want-{name}", rows=(), **columns), function(name, ACCESS, "old", **columns)
