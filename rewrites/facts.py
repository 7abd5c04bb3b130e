"""What rules find and say beside operators: the facts that every e-graph has, and the words that declare more.

Relations, functions and tables are declared once, with named columns of the sorts ACCESS, INT, INTS and TEXT.
"""

from __future__ import annotations

from glenside.egraph.schema import (
    access_at,
    category,
    constant,
    dims,
    dtype,
    function,
    keeps_zero,
    relation,
    source,
    split,
    varies,
    widened,
)
from glenside.egraph.sorts import ACCESS, INT, INTS, TEXT
from glenside.egraph.tables import table

__all__ = ["ACCESS", "INT", "INTS", "TEXT", "access_at", "category", "constant", "dims", "dtype", "function"]
__all__ += ["keeps_zero", "relation", "source", "split", "table", "varies", "widened"]
