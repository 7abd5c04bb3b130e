"""Threads share what they can in these tests, however little it is: programs are small here, and odd."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest

from glenside.codegen import pipeline
from glenside.codegen.loop_ir.pass_observer import observed
from glenside.codegen.verify.verifier import verified_passes


@pytest.fixture(autouse=True)
def everything_is_shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "shared_by_price" not in request.fixturenames:
        kept = tuple(one for one in pipeline.PIPELINE if one.name != "parallelize")
        monkeypatch.setattr(pipeline, "PIPELINE", kept)


@pytest.fixture(autouse=True)
def passes_are_verified(request: pytest.FixtureRequest) -> Iterator[None]:
    """A pass that breaks loops is named: in a fourth of the tests, as that takes a quarter of their time, and in slow
    ones. What breaks is refused in all: finished loops are verified before they run. Under an observer no loops are
    remembered from one test to the next.
    """
    chosen = crc32(request.node.nodeid.encode()) % 4 == 0 or request.node.get_closest_marker("slow")
    with verified_passes() if chosen else observed(lambda name, loops: None):
        yield


@pytest.fixture
def shared_by_price() -> None:
    """Asked for where what is shared is what pays, as in a program."""
