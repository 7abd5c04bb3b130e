"""Compares a function of open sizes with the interpreter at sizes whose programs have other terms than the samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from glenside.ir.dtypes import RECORDS
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.semantics.interpreter import evaluate

if TYPE_CHECKING:
    from glenside.codegen.open_sizes.function import OpenFunction

_TOLERANCE, _OF_ROUNDED = 1e-4, 3e-2
"""The largest difference of a float, relative to the largest number of a result: sums may be in another order, so that
programs that round may round some values to the next number."""


def differences(function: OpenFunction, program: Program, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yields a sentence for each result that differs from the interpreter's, on random inputs."""
    given = function.drawn(sizes)
    found = function(given)
    wanted = evaluate([program.term], {**program.constants, **given})[0]
    is_rounded = any(map(rounds, postorder(program.term)))
    tolerance = _OF_ROUNDED if is_rounded else _TOLERANCE
    pairs = zip(_flat(found), _flat(wanted), program.result_names(), strict=True)
    for own, right, name in pairs:
        if own.shape != right.shape or own.dtype != right.dtype:
            yield f"{name} is {own.shape} {own.dtype}, and {right.shape} {right.dtype} in the program of these sizes"
        elif own.size and is_rounded and own.dtype.kind in "iu" and own.dtype.itemsize == 1:
            if np.any(np.abs(own.astype(np.int64) - right) > 1):
                yield f"{name} has other values"
        elif own.size and _is_float(own):
            own, right = own.astype(np.float64), right.astype(np.float64)
            most = float(np.max(np.abs(right[np.isfinite(right)]), initial=1.0))
            with np.errstate(invalid="ignore"):
                same = (np.abs(own - right) <= tolerance * most) | (own == right) | (np.isnan(own) & np.isnan(right))
            if not np.all(same):
                yield f"{name} has other values"
        elif own.size and not np.array_equal(own, right):
            yield f"{name} has other values"


def rounds(term: Term) -> bool:
    """True if a term rounds to integers or to a float of fewer bits."""
    if term.operator.name == "cast":
        own, source = (RECORDS[t.access.dtype] for t in (term, term.children[0]))
        return own.kind == source.kind == "float" and own.bits < source.bits
    return "round" in term.attributes


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype in [r.numpy for r in RECORDS.values() if r.kind == "float"]


def _flat(value: object) -> Iterator[Array]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flat(item)
    else:
        yield np.asarray(value)
