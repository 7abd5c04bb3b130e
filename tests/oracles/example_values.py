"""Makes examples of operators and compute types: tensors with values, and the example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import glenside.ir.operators  # noqa: F401 (fills the tables)
from glenside.ir.operand import Array
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

VALUES: dict[str, Array] = {}


def leaf(array: Any, split: int = 0, dtype: str = "float32") -> Term:
    """Returns a tensor with a value and a split."""
    value = np.asarray(array, dtype)
    name = f"t{len(VALUES)}"
    VALUES[name] = value
    return build("access", build("access-tensor", Tensor(name, Dims(value.shape), dtype)), split)


def integers(*dims: int, seed: int = 0) -> Array:
    """Draws small integers, neither square nor symmetric, so that mistakes in axes and signs show."""
    return np.random.default_rng((seed, *dims)).integers(-9, 10, dims)


@dataclass(frozen=True)
class Example:
    term: Term
    type: str
    value: Any


A = integers(2, 3, 4)
B = integers(2, 5, 4, seed=1)
NARROW = np.array([[100, -128, 127], [-128, 120, -5]])
SAMPLES = np.array([[-2.5, -0.5, 0.0], [0.5, 1.5, 3.25]])
POSITIVE = np.array([[0.25, 1.0, 4.0], [9.0, 2.0, 0.5]])
