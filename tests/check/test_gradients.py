"""The exact check of gradients: right ones are exact, wrong ones are found with their place."""

from __future__ import annotations

import pytest
from hand_gradients import RIGHT, WRONG

from glenside.check import check_gradient


@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_are_exact(name: str) -> None:
    program, gradient, wrt = RIGHT[name]()
    report = check_gradient(program, gradient, wrt)
    assert report.ok
    assert report.gradients == dict.fromkeys(wrt, "exact"), report


@pytest.mark.parametrize("name", WRONG)
def test_wrong_gradients_are_found(name: str) -> None:
    made, wrong = WRONG[name]
    program, gradient, wrt = made()
    report = check_gradient(program, gradient, wrt)
    assert not report.ok
    for name, verdict in report.gradients.items():
        expected = f"differs: gradient with respect to {name}, first at (" if name in wrong.split() else "exact"
        assert verdict.startswith(expected), report
