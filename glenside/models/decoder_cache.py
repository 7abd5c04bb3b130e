"""Stores the keys and values of decoders: rows of float32, of halves, or of int8 with a scale for each row and head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from glenside.builder.layout import broadcast, concatenate, reshape, transpose
from glenside.builder.pointwise import cast, combine, compute, divide, filled, multiply
from glenside.builder.reductions import reduce_axes
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.term import Term, build

CACHES = ("float32", "bfloat16", "float16", "int8")
"""The dtypes of a cache."""
SCALES = ".scales"
"""The ending of the names of the scales of int8."""
_MOST = 127
_LEAST_MAGNITUDE = str(np.float32(1e-30))
"""Rows whose magnitudes are below are stored as 0: the inverse of their scale would not be finite."""


def require_cache(dtype: str) -> str:
    """Returns a dtype of `CACHES`. Raises BadInput."""
    if dtype not in CACHES:
        raise BadInput(f"a cache is of {', '.join(CACHES)}, got {dtype!r}{suggestion(str(dtype), CACHES)}")
    return dtype


@dataclass(frozen=True)
class Rows:
    """Keys or values as they are stored: `numbers` ()(.. head), times `scales` ()(..) if there are any."""

    numbers: Term
    scales: Term | None = None

    def parts(self) -> dict[str, Term]:
        """Returns the stored tensors by the endings of their names."""
        return {"": self.numbers} | ({} if self.scales is None else {SCALES: self.scales})

    def behind(self, past: Mapping[str, Term], axis: int) -> Rows:
        """Returns the rows of a cache with these behind them."""
        return rows_of({ending: concatenate([past[ending], own], axis) for ending, own in self.parts().items()})

    def replacing(self, past: Mapping[str, Term], slots: Term) -> Rows:
        """Returns the rows of a cache, of which those at indices ()(rows) are these."""
        indices = reshape(slots, (slots.access.size, 1))
        parts = self.parts().items()
        return rows_of({end: build("access-scatter-nd", past[end], indices, own, 0, "replace") for end, own in parts})

    def transposed(self, order: tuple[int, int, int]) -> Rows:
        """Returns the rows with the axes of `numbers` in another order, of which the last stays."""
        scales = None if self.scales is None else transpose(self.scales, order[:2])
        return Rows(transpose(self.numbers, order), scales)

    def floats(self) -> Term:
        """Returns the numbers as float32, without the scales."""
        return self.numbers if self.numbers.access.dtype == "float32" else cast(self.numbers, "float32")

    def scaled(self, x: Term) -> Term:
        """Returns x ()(heads rows columns) times the scale of each column; scales are ()(heads columns)."""
        if self.scales is None:
            return x
        heads, columns = self.scales.access.dims
        return multiply(x, broadcast(reshape(self.scales, (heads, 1, columns)), x.access.dims))


def rows_of(parts: Mapping[str, Term]) -> Rows:
    """Returns the rows of stored tensors, by the endings of their names."""
    return Rows(parts[""], parts.get(SCALES))


def stored(x: Term, dtype: str) -> Rows:
    """Returns rows x ()(.. head) of float32, rounded to a dtype of `CACHES`; those of int8 by the largest magnitude."""
    if dtype != "int8":
        return Rows(x if dtype == "float32" else cast(x, dtype))
    dims, last = x.access.dims, x.access.rank - 1
    largest = reduce_axes("reduce-max", compute("abs", x), [last], keep=True)
    largest = combine("maximum", largest, filled(largest, _LEAST_MAGNITUDE))
    inverse = divide(filled(largest, _MOST), largest)
    numbers = cast(compute("round", multiply(x, broadcast(inverse, dims))), "int8")
    return Rows(numbers, reshape(divide(largest, filled(largest, _MOST)), dims[:-1]))


def kinds(dims: tuple[int, ...], dtype: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Returns the dims and dtypes of the tensors that store rows ()(.. head), by the endings of their names."""
    return {"": (dims, dtype)} | ({SCALES: (dims[:-1], "float32")} if dtype == "int8" else {})
