"""Threads share what they can in these tests, however little it is: programs are small here, and odd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from glenside.codegen import pipeline
from glenside.codegen.verify.verifier import verified_passes


@pytest.fixture(autouse=True)
def everything_is_shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "shared_by_price" not in request.fixturenames:
        kept = tuple(one for one in pipeline.PIPELINE if one.name != "parallelize")
        monkeypatch.setattr(pipeline, "PIPELINE", kept)


@pytest.fixture(autouse=True)
def passes_are_verified() -> Iterator[None]:
    """A pass that breaks loops is named, in whatever test it does so."""
    with verified_passes():
        yield


@pytest.fixture
def shared_by_price() -> None:
    """Asked for where what is shared is what pays, as in a program."""
