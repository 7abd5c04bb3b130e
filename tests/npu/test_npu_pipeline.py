"""Tests that the npu's pipeline is data: it has every measured stage, and each required stage runs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from command_line import run
from npu_layers import MACHINES
from npu_networks import network

import glenside as gl
from glenside.ir.stopwatch import OTHERS, watched
from glenside.npu.pipeline import AFTER, MAP, PIPELINE, STAGES
from glenside.quantization.network import integer_network


def test_every_stage_that_is_measured_is_in_the_pipeline() -> None:
    found = integer_network(network(random.Random(0)))
    result = gl.optimize(found.program, gl.NPU(MACHINES[0]), verify=False)
    with watched() as watch:
        gl.NPU(MACHINES[0]).network_code(result, found)
    made = {MAP.name, *(each.name for own in PIPELINE for each in own.stages)}
    assert set(watch.seconds) - {OTHERS} == made
    assert len({own.name for own in STAGES}) == len(STAGES) == len(made) + len(AFTER)


def test_passes_are_of_instructions_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.glenside").write_text(str(network(random.Random(0))))
    assert run("tensorize", tmp_path / "p.glenside", "--target", "npu:4x4", "--emit", "passes") == 2
    assert "give -o NAME.bin" in capsys.readouterr().err
