"""Disables the search around the selected program, unless a test is about it: it takes many times as long, and
correctness does not depend on it.
"""

from __future__ import annotations

import pytest

from glenside.npu.lowering.selection import neighbourhood_search


@pytest.fixture(autouse=True)
def few_tries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small networks few programs are made, but for `tests/npu/test_nearby.py`."""
    if request.path.name != "test_nearby.py":
        monkeypatch.setattr(neighbourhood_search, "_INSTRUCTIONS", 2_000)
