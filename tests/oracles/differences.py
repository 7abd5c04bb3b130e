"""Computes finite differences of programs in float64; converts float32 programs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, make, rebuild_all, weave
from glenside.ir.types import Tensor
from glenside.semantics.interpreter import evaluate

STEP = 1e-6


def doubled(program: Program, dtype: str = "float64") -> Program:
    """Returns a float32 program in float64, or in another float dtype."""

    def wider(term: Term, children: tuple[Term, ...]) -> Term:
        def wide(attribute: object) -> object:
            if isinstance(attribute, Tensor) and attribute.dtype == "float32":
                return replace(attribute, dtype=dtype)
            if term.operator.name == "bitcast" and attribute == "uint32":
                return f"uint{8 * np.dtype(dtype).itemsize}"
            return dtype if attribute == "float32" else attribute

        attributes = [wide(attribute) for attribute in term.attributes]
        return make(term.operator, weave(term.operator, children, attributes))  # type: ignore[arg-type]

    term, *layers = rebuild_all([program.term, *program.layers.values()], wider)
    constants = {n: np.asarray(v, dtype) if v.dtype == "float32" else v for n, v in program.constants.items()}
    return replace(
        program, term=term, layers=dict(zip(program.layers, layers, strict=True)), names={}, constants=constants
    )


def results(program: Program, values: Mapping[str, Array]) -> list[Array]:
    """Returns the arrays of a program, one or several."""
    (found,) = evaluate([program.term], {**program.constants, **values})
    return [*found] if isinstance(found, tuple) else [found]


def difference(program: Program, values: Mapping[str, Array], direction: Mapping[str, Array]) -> list[Array]:
    """Returns the change of each result along a direction: a central difference."""
    more = results(program, {**values, **{n: values[n] + STEP * d for n, d in direction.items()}})
    less = results(program, {**values, **{n: values[n] - STEP * d for n, d in direction.items()}})
    with np.errstate(all="ignore"):
        return [(a - b) / (2 * STEP) for a, b in zip(more, less, strict=True)]
