"""Tests calibration for SPU: fitted costs reproduce the seconds, and their file is read back."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from glenside.execution.spu.calibration import described, fitted, workloads
from glenside.targets.mpc.costs import Costs, counts, load_costs
from glenside.targets.mpc.semi2k import NOTHING, Semi2k
from glenside.targets.mpc.traffic import counted, program_traffic
from glenside.targets.mpc.work import NO_WORK, program_work

MADE = Costs(3.0, 150.0, 100.0, 30.0, 500_000.0, 12.0, 40.0, 300_000.0, 6_000_000.0)


def _seconds(protocol: Semi2k) -> list[float]:
    """Computes the seconds of the programs from these costs alone."""
    found = []
    for _, program in workloads():
        sent = counted(program_traffic(program, protocol=protocol))
        found.append(MADE.start + MADE.seconds(sent, program_work(program), protocol.share))
    return found


@pytest.mark.parametrize("field", [32, 64, 128])
def test_the_programs_tell_all_costs_apart(field: int) -> None:
    protocol = Semi2k(field)
    fit = fitted(dict(workloads()), _seconds(protocol), protocol)
    assert np.allclose(astuple(fit.costs), astuple(MADE), rtol=1e-6)
    assert fit.largest_error < 1e-6


def test_noise_is_said_and_the_file_is_read_again(tmp_path: Path) -> None:
    protocol, random = Semi2k(64), np.random.default_rng(0)
    noisy = [seconds * random.uniform(0.9, 1.2) for seconds in _seconds(protocol)]
    fit = fitted(dict(workloads()), noisy, protocol)
    assert 0 < fit.median_error < 0.2
    path = tmp_path / "costs.toml"
    path.write_text(described(fit, protocol, 7))
    found = load_costs(path)
    assert (found.protocol, found.field) == ("semi2k", 64)
    assert np.allclose(astuple(found.costs), astuple(fit.costs), rtol=1e-3)


def test_each_kind_of_work_is_in_some_program() -> None:
    protocol = Semi2k(64)
    programs = dict.fromkeys(counts(NOTHING, NO_WORK, protocol.share), 0)
    for _, program in workloads():
        sent = counted(program_traffic(program, protocol=protocol))
        for name, count in counts(sent, program_work(program), protocol.share).items():
            programs[name] += count > 0
    assert all(count >= 2 for count in programs.values())
