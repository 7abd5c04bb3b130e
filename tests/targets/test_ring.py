"""Tests that numbers outside the ring, and unbounded errors, are reported before anything is run."""

from __future__ import annotations

import numpy as np
import pytest

from glenside.builder import Builder
from glenside.targets.mpc.ring import reach, said


@pytest.mark.parametrize(("weight", "layer"), [(3000.0, "dense1"), (0.003, "")])
def test_the_first_layer_that_may_overflow_is_named(weight: float, layer: str) -> None:
    b = Builder("three")
    y = b.input("x", (4, 256))
    for i in range(3):
        y = b.linear(y, b.constant(f"w{i}", (256, 256)), name=f"dense{i}")
    weights = np.full((256, 256), weight, np.float32)
    found = reach(b.finish(y).with_constants({f"w{i}": weights for i in range(3)}), 18, 64, 1.0)
    assert found.layer == layer
    assert bool(said(found, 18, 64, 1.0)) == bool(layer)
    assert found.unbounded == ()
    if layer:
        assert found.largest == pytest.approx((256 * weight) ** 2)


def test_what_has_no_bound_of_errors_is_named() -> None:
    b = Builder("soft")
    found = reach(b.finish(b.softmax(b.input("x", (4, 8)), 1)), 18, 64, 1.0)
    assert found.unbounded == ("softmax",)
    assert "softmax" in said(found, 18, 64, 1.0)[0]
