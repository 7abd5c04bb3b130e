"""Products of many operands compile: their formulas are not deep."""

from __future__ import annotations

import numpy as np
import pytest

import glenside as gl
from glenside.ir.text import parse


@pytest.mark.parametrize("dtype", ["float32", "uint64"])
def test_a_product_of_many_operands(dtype: str) -> None:
    f = gl.compile(parse(f"(input x (shape 400 3) {dtype})\n(compute dot-product (access (access-tensor x) 0))"), None)
    x = np.random.default_rng(0).choice([1, 2, 3] if dtype == "uint64" else [0.5, 1, 2], (400, 3)).astype(dtype)
    np.testing.assert_allclose(f(x), np.prod(x, axis=0).sum(), 1e-5)
