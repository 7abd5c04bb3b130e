"""The order of the elements of an item."""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Category, Compute, Field, Kind, register


def _evaluate_argsort(_: object, a: Operand, direction: str) -> Array:
    items = a.array.reshape((*a.access.shape, a.access.item.product()))
    if direction == "ascending":
        order = np.argsort(items, -1, kind="stable")
    else:  # sorted from the last to the first and read backwards, equal elements keep their order
        order = items.shape[-1] - 1 - np.flip(np.argsort(np.flip(items, -1), -1, kind="stable"), -1)
    return order.astype(np.int64).reshape(a.access.dims)


argsort = register(
    Compute(
        name="argsort",
        category=Category.NORMALIZATION,
        parameters=(Field("direction", Kind.KEYWORD, ("ascending", "descending")),),
        evaluate=_evaluate_argsort,
        doc="Where in the item the elements stand, in the order in which they follow each other when it is sorted: "
        "places count in row-major order from 0, and the first of equal elements comes first.",
        dtype="int64",
    )
)
