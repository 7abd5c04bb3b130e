"""The order of the elements of an item."""

from __future__ import annotations

import numpy as np

from glenside.ir.blockwise import block_size, in_blocks, items_of
from glenside.ir.example import of_compute
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Category, Compute, Field, Kind, register


def _evaluate_argsort(_: object, a: Operand, direction: str) -> Array:
    item, axes = a.access.item, len(a.item_axes)

    def part(block: Array) -> Array:
        items = block.reshape((*block.shape[: block.ndim - axes], item.product()))
        if direction == "ascending":
            order = np.argsort(items, -1, kind="stable")
        else:  # sorted from the last to the first and read backwards, equal elements keep their order
            order = items.shape[-1] - 1 - np.flip(np.argsort(np.flip(items, -1), -1, kind="stable"), -1)
        return order.astype(np.int64, copy=False).reshape(block.shape)

    return in_blocks(part, a.access.shape, a.array, dtype=np.int64, item=item, part=items_of(item.product()))


def _scratch(a: Operand, _: str) -> int:
    """A block of positions, before and after they are counted from the other end, and one of items."""
    length, copied = a.access.item.product(), 0 if a.array.flags.c_contiguous else a.array.itemsize
    return block_size(a.access.shape, items_of(length)) * length * (3 * 8 + copied)


argsort = register(
    Compute(
        name="argsort",
        category=Category.NORMALIZATION,
        parameters=(Field("direction", Kind.KEYWORD, ("ascending", "descending")),),
        evaluate=_evaluate_argsort,
        scratch=_scratch,
        doc="Where in the item the elements stand, in the order in which they follow each other when it is sorted: "
        "places count in row-major order from 0, and the first of equal elements comes first.",
        dtype="int64",
        examples=of_compute("(argsort ascending)"),
    )
)
