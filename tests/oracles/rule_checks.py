"""Checks rules: each fires, all e-nodes of a class have the same value, types are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from glenside.egraph.examples import smallest_terms
from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.saturation import Limits, Saturation
from glenside.egraph.snapshot import Snapshot
from glenside.fuzzing import soundness
from glenside.ir.program import Program
from glenside.ir.rational import exact_numbers
from glenside.ir.types import AccessType, Tensor
from glenside.semantics import Arithmetic, Native, PrimeField
from glenside.semantics.interpreter import evaluate

_ENOUGH = 900.0  # seconds: what ends these searches is never the machine's load


def saturated(
    program: Program,
    rules: Iterable[Rule],
    parameters: Parameters,
    wants: str = "",
    iterations: int = 30,
    compiled: tuple[Rule, ...] = (),
) -> tuple[Snapshot, Saturation]:
    """Returns the program's e-graph under these rules, in this process; void when the next one of the same compiled
    rules begins: these, or those that they are some of.
    """
    limits = Limits(iterations=iterations, seconds=_ENOUGH)
    return soundness.saturated(program, rules, limits, parameters, wants, compiled)


def whole_numbers(tensors: Mapping[str, Tensor], seed: int) -> dict[str, np.ndarray]:
    """Draws small integers as float64: their sums and products are exact, so results are compared by `==`."""
    generator = np.random.default_rng(seed)
    return {n: generator.integers(-4, 5, t.dims).astype(t.dtype) for n, t in tensors.items()}


def assert_all_equal(snapshot: Snapshot, seed: int = 0, rounded: bool = False, reals: bool = False) -> None:
    """Every e-node, over any representative of its children, has its class's type and value. Floats that are `rounded`
    need only be close; of `reals` also those that are not finite are not compared.

    By induction every term that the e-graph holds equals every other one of its class, in sub-classes too.
    """
    representative = smallest_terms(snapshot)
    for own, known in zip(representative, snapshot.types, strict=True):
        assert own.type == known or not isinstance(own.type, AccessType)
    terms = soundness.pairs(snapshot, representative)
    assert not (wrong := soundness.ill_typed(terms)), wrong
    values = whole_numbers(snapshot.tensors, seed)
    roots = list(dict.fromkeys(t for pair in terms for t in pair))
    arrays = dict(zip(roots, evaluate(roots, values, exact_arithmetic(snapshot)), strict=True))
    for made, own in terms:
        one, other = arrays[made], arrays[own]
        near = (rounded or reals) and close(one, other, reals)
        assert same(one, other) or near, f"{made} differs from {own}"


def close(a: Any, b: Any, reals: bool = False) -> bool:
    """True if two arrays of floats differ by rounding alone, or where an element is no real number."""
    if not isinstance(a, np.ndarray) or a.dtype.kind in "iub" or a.shape != b.shape:
        return False
    if reals:
        finite = np.isfinite(a.astype(float)) & np.isfinite(b.astype(float))
        a, b = a[finite], b[finite]
    most = 1e-2 if a.dtype.itemsize < 4 else 1e-4
    return np.allclose(a.astype(float), b.astype(float), rtol=most, atol=most, equal_nan=True)


def same(a: Any, b: Any) -> bool:
    """True if two values, or two tuples of values, are equal."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(a, b, equal_nan=True)


def exact_arithmetic(snapshot: Snapshot) -> Arithmetic:
    """Returns an arithmetic in which small integers stay exact: float64, or a prime field if constants are fractions
    such as 1/3.
    """
    maps = (n.attributes[-1 if n.operator == "linear-map" else 1] for n in snapshot.nodes if n.operator in _CONSTANTS)
    fractions = any(value.denominator > 1 for text in maps for value in exact_numbers(text) or ())
    return PrimeField() if fractions else Native()


_CONSTANTS = ("linear-map", "numbers")
