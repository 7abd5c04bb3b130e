"""Tests calibration of the processor: fitted costs, written to a file and read back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.cli import application
from glenside.codegen.processor.model import MACHINES, is_here, machine_of
from glenside.codegen.processor.work_record import NAMES, Work
from glenside.codegen.runtime.compiled_function import Compiled
from glenside.execution import processor
from glenside.execution.background_load import Reading, reading
from glenside.execution.processor import Fit, Timed, described, fitted, workloads
from glenside.ir.program import Program
from glenside.ir.threads import processors

MACHINE = MACHINES["avx2"]
HERE = pytest.mark.skipif(not is_here(MACHINE), reason="its vectors are not here")


def _nests(prices: Work, count: int = 640, wrong: int = 0) -> list[Timed]:
    draw = np.random.default_rng(0)
    found = []
    for number in range(count):
        kinds = draw.random(len(NAMES)) < 0.5  # no nest does everything, but each does something
        kinds[0] = True
        work = Work(*(draw.uniform(0, 1e6, len(NAMES)) * kinds).tolist())
        factor = 5 if number < wrong else 1
        found.append(Timed("drawn", f"nest {number}", work, factor * 1e-9 * work.priced(prices)))
    return found


@pytest.mark.slow
def test_prices_are_found_again_though_some_nests_are_not_explained() -> None:
    prices = Work(*(0.5 + n for n in range(len(NAMES))))
    for wrong in (0, 96):
        found = fitted(MACHINE, _nests(prices, wrong=wrong)).machine.nanoseconds
        np.testing.assert_allclose(found.amounts(), prices.amounts(), rtol=0.05)


def test_what_a_program_repeats_counts_once() -> None:
    """A dozen blocks that are slower than another network's do not decide the price of both."""
    work = Work(cycles=1e6)
    nests = [Timed("quick", f"{n}", work.plus(Work(cycles=1e5 * n)), 1e-3 * (1 + n / 10)) for n in range(5)]
    slow = [Timed("slow", f"block {n}", work, 2e-3) for n in range(24)]
    found = fitted(MACHINE, [*nests, *slow]).machine.nanoseconds
    assert found.cycles == pytest.approx(1, rel=0.05)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    own, shared = Work(cycles=0.25, far=0.03), ((2, Work(cycles=0.125, far=0.02)),)
    machine = replace(MACHINE, l1=40960, l3=32 << 20, peak=68.5, nanoseconds=own, shared=shared)
    fit = Fit(machine, [replace(nest, together=(nest.work, nest.seconds / 2)) for nest in _nests(own, 5)])
    path = tmp_path / "here.toml"
    path.write_text(described(fit, "avx2", 7))
    assert machine_of(str(path)) == replace(machine, name="here")
    assert "5 nests" in path.read_text()


def test_what_others_take_is_what_is_neither_own_nor_of_children() -> None:
    before = reading()
    assert before.since(before) == 0
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    after = reading()
    spun = Reading(after.clock, after.others + 0.3)  # as if somebody else had done it
    assert spun.since(before) > after.since(before)
    assert after.since(before) <= processors() + 0.1


@pytest.mark.slow
@HERE
def test_calibrate_writes_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    b = gl.Builder("small")
    x = b.relu(b.input("x", (1, 16, 24, 24)))
    for step in range(12):
        x = b.relu(b.conv(x, b.constant(f"w{step}", (16, 16, 3, 3)), padding=1))
    program = b.finish(x)

    def small(searched: Callable[[Program], Program]) -> Iterator[Program]:
        yield program
        yield searched(program)

    monkeypatch.setattr(processor, "workloads", small)
    path = tmp_path / "here.toml"
    monkeypatch.setattr("sys.argv", ["glenside", "calibrate", "--target", "cpu:avx2", "-o", str(path), "--runs", "3"])
    assert application.run() == 0
    assert "nests of loops: prediction error" in capsys.readouterr().out
    machine = machine_of(str(path))
    assert machine is not None
    assert sum(machine.nanoseconds.amounts()) > 0
    assert gl.optimize(program, gl.parse_target(f"cpu:unlimited,machine={path}"), verify=False).cost["time"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cpu:mill", "a.toml"), "a machine is native, plain"),
        (("cpu:plain", "a.toml"), "calibration measures a native processor"),
        (("cpu", "a.json"), "costs are written as TOML"),
        (("cpu", "nowhere/a.toml"), "there is no folder"),
    ],
)
def test_bad_input_is_a_sentence(
    arguments: tuple[str, str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["glenside", "calibrate", "--target", arguments[0], "-o", arguments[1]])
    assert application.run() == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_networks_are_told_well_by_what_was_measured() -> None:
    """Nests of a network of another kind than the calibrated ones."""
    machine = machine_of("native")
    assert machine is not None
    found = processor.calibrate(machine, lambda p: gl.optimize(p, gl.CPU(), verify=False).program, rounds=10)
    assert {nest.program for nest in found.nests} >= {program.name for program in workloads(lambda p: p)}
    other = Compiled(gl.models.mobilenet_v1().seeded_constants(0), found.machine)
    measured = other.least_seconds(*other.drawn(), rounds=10)
    large = measured >= measured.sum() / 200
    assert np.mean(np.abs(np.array(other.predicted()) / measured - 1)[large]) < 0.3
