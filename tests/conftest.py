"""Configures property tests: new programs on a developer's machine, fixed ones in continuous integration."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path
from zlib import crc32

import pytest
import spu_simulation
from fuzzing import Fuzzing
from hypothesis import HealthCheck, settings

from glenside.codegen.open_sizes import lowered
from glenside.codegen.processor.find_compiler import compiler
from glenside.ir import interrupts

# Commands and processes of searches start by the hundred. Each would compile the package again, for half a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_QUIET = [HealthCheck.too_slow]  # on a busy machine all is slow
settings.register_profile("own", suppress_health_check=_QUIET)
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=_QUIET)
settings.load_profile("ci" if os.environ.get("CI") else "own")


_COUNT = count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-seed", type=int, help="the first seed of random cases, instead of the committed one")
    parser.addoption("--fuzz-minutes", type=float, help="minutes of each test of random cases, instead of a count")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported and collected is garbage, and to look for some takes a sixth of the time of all that."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported and collected stays to the end, so no collection of garbage need look at it again; terms and
    rows are no garbage either, so collections are seldom.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test that needs a C compiler where there is none. Continuous integration has one, so there it fails."""
    if item.get_closest_marker("needs_compiler") and not compiler() and not os.environ.get("CI"):
        pytest.skip("there is no C compiler")


@pytest.fixture
def fuzzing(request: pytest.FixtureRequest) -> Fuzzing:
    """Which random cases to try, and for how long."""
    return Fuzzing(request.config.getoption("--fuzz-seed"), request.config.getoption("--fuzz-minutes"))


@pytest.fixture
def spu() -> None:
    """Skips a test where there is no environment with SPU, and JAX."""
    if reason := spu_simulation.missing():
        pytest.skip(reason)


@pytest.fixture
def undisturbed_interrupt() -> Iterator[None]:
    """Lets Ctrl-C reach the tested code: Hypothesis has a callback in the garbage collector, where an exception is
    lost, and a shell lets its background processes ignore the signal.
    """
    callbacks, handler = gc.callbacks[:], signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = callbacks
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def press_ctrl_c(undisturbed_interrupt: None) -> Iterator[Callable[[float], None]]:
    """Yields a function that presses Ctrl-C once, after seconds, unless the test is over by then."""
    timers = list[threading.Timer]()

    def press(after: float) -> None:
        if not timers:
            timers.append(threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)))
            timers[0].start()

    yield press
    for timer in timers:
        timer.cancel()
        timer.join()


@pytest.fixture(autouse=True)
def no_signal_is_left() -> Iterator[None]:
    """Fails a test that leaves a signal behind, after which others would stop."""
    received = interrupts._received  # some tests put another list in its place
    yield
    left, received[:] = [*received], []
    assert not left


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads what another one, or the person at the keyboard, has cached."""
    folder = tmp_path_factory.getbasetemp() / f"cache-{next(_COUNT)}"  # made when something is cached, as few tests do
    monkeypatch.setenv("GLENSIDE_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def few_open_sizes_are_verified(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of open sizes are verified at the ends of ranges alone, except in an eighth of the tests, and in slow
    ones: verification is most of the time of compiling one, and the tests compare values at sizes between.
    """
    if crc32(request.node.nodeid.encode()) % 8 and not request.node.get_closest_marker("slow"):
        for limit in ("_SECONDS", "_LEAST_VERIFIED"):
            monkeypatch.setattr(lowered, limit, 0)
