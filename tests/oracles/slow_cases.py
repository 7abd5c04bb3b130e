"""Cases of a test of which some run by default, one of each kind, and the others with the slow tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def quick(cases: Iterable[Any], *places: int, unpacked: bool = False) -> list[Any]:
    """Returns the cases for `pytest.mark.parametrize`; all but those at `places` are slow.

    unpacked  each case is a tuple with a value for each of several names
    """
    values = [case if unpacked else (case,) for case in cases]
    assert not any(isinstance(own, ParameterSet) for case in values for own in case), "a case has marks of its own"
    return [pytest.param(*v, marks=() if i in places else pytest.mark.slow) for i, v in enumerate(values)]
