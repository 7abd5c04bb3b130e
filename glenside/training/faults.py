"""Finds where NaN or infinity first appears in a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glenside.ir.dtypes import FLOATS
from glenside.ir.names import spelled_name
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program, by_node
from glenside.ir.term import Term, postorder
from glenside.semantics.interpreter import evaluate


class _Found(Exception):
    """Ends the search."""


def finite(array: Array) -> bool:
    """True if all numbers of an array are finite; the sum decides this for most arrays, without memory."""
    if array.dtype.name not in FLOATS:
        return True
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.sum(array))) or bool(np.isfinite(array).all())


def first_fault(program: Program, values: Mapping[str, Array]) -> str:
    """Returns where NaN first appears, or else a computed infinity, when the interpreter runs a program on these
    values.

    Infinities that are written in the program, such as the padding of max-pools, do not count.
    """
    return _first(program, values, np.isnan, "NaN") or _first(program, values, np.isinf, "infinity")


def _first(program: Program, values: Mapping[str, Array], wrong: Any, what: str) -> str:
    terms = program.info.order
    bad: set[Term] = set()
    first: list[Term] = []

    def watch(term: Term, value: Any) -> None:
        if not any(a.dtype.name in FLOATS and wrong(a).any() for a in arrays(value)):
            return
        bad.add(term)
        if what == "NaN" or (term.operator.name == "compute" and bad.isdisjoint(term.children)):
            first.append(term)
            raise _Found

    try:
        evaluate(terms, values, watch=watch)
    except _Found:
        return f"{what} first appears {_place(program, first[0])}"
    return ""


def _place(program: Program, term: Term) -> str:
    """Returns the layer of a term, or the nearest layer below it, and the operation of the term."""
    names = by_node({**program.names, **program.layers})
    below = next((t for t in reversed([*postorder(term)]) if t in names), None)
    words = [term.operator.name, *(str(a) for a in term.attributes[:1] if isinstance(a, str))]
    what = f"where {' '.join(words)} makes {term.type}"
    if below is None:
        return f"before the first layer, {what}"
    return f"{'in' if below is term else 'after'} {spelled_name(names[below][0])}, {what}"
