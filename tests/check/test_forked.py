"""Tests the check in a second process: its report counts if everything is equal; otherwise the check is repeated."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pytest

import glenside as gl
from glenside.builder import Builder
from glenside.check.exact import CheckReport
from glenside.check.forked import forked_check
from glenside.check.verdicts import EXACT

EQUAL = CheckReport({"layer": EXACT}, EXACT, "random integers", 0.5)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a second process, whatever threads run the tests."""
    if sys.platform != "linux":
        pytest.skip("there is no second process elsewhere")
    monkeypatch.setattr("glenside.ir.forked_work.may_fork", lambda: True)


def _of(report: CheckReport) -> Callable[..., CheckReport]:
    return lambda _: report


@pytest.mark.usefixtures("copies")
def test_what_is_equal_is_believed_from_a_process_of_its_own() -> None:
    with forked_check(lambda _: CheckReport({}, EXACT, str(os.getpid()), 0.0)) as verdict:
        found = verdict()
    assert found is not None
    assert found.result == EXACT
    assert found.how != str(os.getpid())


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize(
    "report",
    [
        CheckReport({"layer": EXACT}, "differs", "", 0.0),
        CheckReport({"layer": "differs"}, EXACT, "", 0.0),
        CheckReport({"layer": EXACT}, EXACT, "", 0.0, "interrupted"),
    ],
)
def test_whatever_else_it_finds_is_found_again(report: CheckReport) -> None:
    with forked_check(_of(EQUAL)) as verdict:
        assert verdict() == EQUAL
    with forked_check(_of(report)) as verdict:
        assert verdict() is None


@pytest.mark.usefixtures("copies")
def test_a_process_that_fails_says_nothing() -> None:
    def failing(_: object) -> CheckReport:
        os._exit(3)

    with forked_check(failing) as verdict:
        assert verdict() is None


def test_where_there_may_be_none_this_process_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glenside.ir.forked_work.may_fork", lambda: False)
    with forked_check(_of(EQUAL)) as verdict:
        assert verdict() is None


@pytest.mark.usefixtures("copies")
def test_it_ends_with_the_block() -> None:
    begin, end = os.pipe()

    def waiting(_: object) -> CheckReport:
        os.write(end, str(os.getpid()).encode())
        time.sleep(600)
        return EQUAL

    with forked_check(waiting):
        process = int(os.read(begin, 20))
        os.kill(process, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("meanwhile", [False, True])
def test_an_answer_is_checked_whoever_checks_it(meanwhile: bool) -> None:
    b = Builder()
    program = b.finish(b.relu(b.conv(b.input("x", (1, 3, 6, 6)), b.constant("w", (4, 3, 3, 3)))))
    result = gl.optimize(program, gl.NPU(4), meanwhile=meanwhile)
    assert result.report.ok
    assert result.report.checked == EXACT
