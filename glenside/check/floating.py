"""Measures the error between two programs in floating point.

This is for rules that hold by properties of exp, which a pseudo-random function in its place does not have.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from glenside.check.comparison import Clock, OutOfTime, Progress, Trial, observe, steps
from glenside.check.confined import Confined
from glenside.check.indices import index_limits, picks
from glenside.check.input_generators import declared, draw_reals, drawn_within
from glenside.ir.operand import arrays
from glenside.ir.operators.opaque import require_meaning
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.semantics import Native


@dataclass(frozen=True, slots=True)
class FloatingReport:
    """The largest error of each layer and of the result, relative to the largest magnitude of the original's array.

    nan: not reached before the deadline; inf: the types differ.
    """

    layers: Mapping[str, float]
    result: float
    how: str
    seconds: float

    @property
    def largest(self) -> float:
        """The largest error of all; nan if any is nan."""
        return float(np.max([self.result, *self.layers.values()]))


def check_floating(
    original: Program,
    optimized: Program,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    deadline: float | None = None,
) -> FloatingReport:
    """Runs both programs on the same floats: the constants' own values, and normal values for all other tensors.

    The original's layers are kept in memory meanwhile. Raises BadInput when the programs declare a tensor differently,
    or have a black box, whose rounding errors are unknown.
    """
    started = time.perf_counter()
    roots = (original.term, *original.layers.values(), optimized.term, *optimized.layers.values())
    require_meaning("a check in floating point", *roots)
    reference = (original.term, *original.layers.values())
    limits = index_limits(*reference, others=roots)
    constants = {**optimized.constants, **original.constants}
    declarations = declared(*roots)
    draw = partial(draw_reals, seed=seed)
    values = {
        n: constants[n] if n in constants else drawn_within(draw, t, limits.get(n)) for n, t in declarations.items()
    }
    values = Confined(picks(*reference)).settle(values, Native(), constants) or values
    common = [name for name in original.layers if name in optimized.layers]
    alike = [n for n in (*common, "") if _term(original, n).type == _term(optimized, n).type]
    errors = {n: math.nan if n in alike else math.inf for n in (*common, "")}
    clock = Clock(sum(len(steps([p.term, *p.layers.values()])) for p in (original, optimized)), deadline, progress)
    trial, kept = Trial(Native(), values), dict[Term, Any]()

    def compare(term: Term, value: Any) -> None:
        for name in alike:
            if term is _term(optimized, name):
                errors[name] = relative_error(kept[_term(original, name)], value)

    try:
        observe([_term(original, name) for name in alike], trial, clock, kept.__setitem__)
        observe([_term(optimized, name) for name in alike], trial, clock, compare)
    except OutOfTime:
        pass
    result = errors.pop("")
    return FloatingReport(errors, result, f"floating point, seed {seed}", time.perf_counter() - started)


def _term(program: Program, name: str) -> Term:
    return program.layers[name] if name else program.term


def relative_error(expected: Any, found: Any) -> float:
    """Returns the largest |expected - found| over the largest |expected|.

    Equal infinities, and nan in both, are no error.
    """
    worst = 0.0
    for a, b in zip(arrays(expected), arrays(found), strict=True):
        x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
        apart = (x != y) & ~(np.isnan(x) & np.isnan(y))
        if not apart.any():
            continue
        distance = float(np.max(np.abs(x[apart] - y[apart])))
        scale = float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0))
        error = distance / scale if scale else math.inf
        worst = max(worst, math.inf if np.isnan(error) else error)
    return worst
