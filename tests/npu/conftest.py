"""Programs of the npu's tests are those that prices tell, unless a test is of the choices beside them: what is right of
one is no righter of the quickest of hundreds, which takes as many times as long to find.
"""

from __future__ import annotations

import pytest

from glenside.npu.lowering.selection import neighbourhood_search


@pytest.fixture(autouse=True)
def few_tries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small networks few programs are made, but for `tests/npu/test_nearby.py`."""
    if request.path.name != "test_nearby.py":
        monkeypatch.setattr(neighbourhood_search, "_INSTRUCTIONS", 2_000)
