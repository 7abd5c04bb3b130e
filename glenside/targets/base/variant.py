"""Variants: the equal programs of one layer that a target chooses from, and the measures that it chooses by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glenside.ir.term import Term


@dataclass(frozen=True)
class Measure:
    """One thing that a variant takes, such as cycles or bytes sent; amounts are whole numbers of `unit`."""

    name: str
    unit: str
    doc: str
    adds: bool = True
    """Whether that of a program is the sum of those of its parts."""
    shown: str = "amount"
    """How tables show it: the "amount", its "growth" over the first baseline, or "" for not at all."""


Amounts = Mapping[str, int | None]
"""measure -> amount; None is an amount that is not known."""


@dataclass(frozen=True)
class Variant:
    """One equal program of a layer, and what it takes.

    label      in words: "plain", "Winograd F(2x2,3x3)", "operands swapped, K 512 in 8"
    term       None of a baseline that is priced and not built
    recipe     the steps from the layer's own product, as rules write them
    off        why the layer's product stays off the machine, or ""
    remarks    what must be said of the measures, such as what has no bound
    details    what else a program may want to know of it, as JSON
    """

    label: str
    term: Term | None
    measures: Amounts
    recipe: str = ""
    off: str = ""
    remarks: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
