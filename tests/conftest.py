"""Property tests draw new programs on a person's machine, and the same ones in continuous integration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads what another one, or the person at the keyboard, has cached."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GLENSIDE_CACHE", str(folder))
    return folder
