"""Holds what an import has declared: the builder, and the values that are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from glenside.builder import Builder
from glenside.builder.layout import broadcast
from glenside.importers.known_values import KnownValues
from glenside.ir.dtypes import REALS, RECORDS
from glenside.ir.names import numbered
from glenside.ir.operand import Array
from glenside.ir.term import Term, build


@dataclass
class Declarations:
    """The builder of a program, and the values of its constants that are known at import."""

    builder: Builder
    known: KnownValues = field(default_factory=lambda: KnownValues({}))

    def constant(self, name: str, value: Array) -> Term:
        """Declares a constant under that name, or a similar one."""
        fresh = numbered(name, self.builder.tensors)
        leaf = self.builder.constant(fresh, value.shape, value.dtype.name, value)
        self.known.tensors[fresh] = value
        return leaf

    def layer_name(self, name: str) -> str:
        """Returns the name, or a similar one that no layer has yet."""
        return numbered(name, self.builder.layers)

    def filled(self, dims: Sequence[int], value: float, dtype: str, name: str = "value") -> Term:
        """Returns one number everywhere. Infinities and NaN, which have no exact text, are a constant of that name."""
        if dtype == "bool":
            return build("full", dims, int(bool(value)), dtype)
        if dtype not in REALS:
            return build("full", dims, int(value), dtype)
        with np.errstate(over="ignore"):
            rounded = float(np.asarray(value, RECORDS[dtype].numpy))
        if np.isfinite(rounded):
            return build("full", dims, repr(value) if isinstance(value, float) else int(value), dtype)
        return broadcast(self.constant(name, np.asarray(rounded, RECORDS[dtype].numpy)), dims)
