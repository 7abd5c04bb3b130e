"""Tests forked processes that infer waits and bounds while a program is emitted: they do not change the program."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import run as command

import glenside as gl
from glenside.cli import npu_runs
from glenside.ir import forked_work
from glenside.ir.program import Program
from glenside.npu.isa.base import Instruction
from glenside.npu.lowering.emission import infer_synchronization_forked
from glenside.npu.lowering.emission.infer_synchronization_forked import ForkedWaits
from glenside.npu.lowering.pipeline import compile_network, emit_network
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.lowering.util.identity_memo import Memo
from glenside.npu.machine.model import Machine
from glenside.npu.model import split_execution
from glenside.npu.model.execute import run
from glenside.npu.model.reference_results import results_meant, results_wanted, wrong
from glenside.npu.pipeline import compile_fronts
from glenside.npu.program import binary_format
from glenside.npu.program.program import NpuProgram
from glenside.quantization.calibration import quantized
from glenside.quantization.layers import IntegerNetwork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no second process elsewhere")

MACHINE = Machine(8, 8, scratchpad=1 << 13, accumulators=128, bandwidth=8, latency=20)


def _made() -> bytes:
    """Returns the file of a small network's program: tensors that stay, one that is added, and one that passes DRAM."""
    return binary_format.content(_program())


def _block() -> IntegerNetwork:
    b = gl.Builder("block")
    x = b.relu(b.conv(b.input("x", (1, 3, 12, 12)), b.constant("a", (8, 3, 3, 3)), strides=2, padding=1))
    y = b.relu(b.conv(x, b.constant("b", (8, 1, 3, 3)), groups=8, padding=1))
    x = b.relu(b.add(b.conv(y, b.constant("c", (8, 8, 1, 1))), x))
    return _quantized(b.finish(b.conv(x, b.constant("d", (10, 8, 3, 3)), padding=1)))


def _quantized(program: Program) -> IntegerNetwork:
    program = program.seeded_constants(0)
    return quantized(program, program.constants)


def _of(found: IntegerNetwork) -> NpuProgram:
    result = gl.optimize(found.program, gl.NPU(MACHINE), verify=False)
    return compile_fronts(found, map_layers(result, found), MACHINE)


def _program() -> NpuProgram:
    return _of(_block())


def _alike() -> IntegerNetwork:
    """Returns pairs of layers that are alike, each with weights and parameters of its own."""
    b = gl.Builder("pairs")
    x = b.input("x", (1, 8, 6, 6))
    for n in range(3):
        x = b.relu(b.conv(x, b.constant(f"d{n}", (8, 1, 3, 3)), groups=8, padding=1))
        x = b.relu(b.conv(x, b.constant(f"p{n}", (8, 8, 1, 1))))
    return _quantized(b.finish(x))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Copies are made for small networks too; whether each told anything."""
    found = list[bool]()
    queues, answer = ForkedWaits.queues, forked_work.RoundWorker.answer

    def noted_queues(self: ForkedWaits) -> Mapping[str, tuple[Instruction, ...]] | None:
        own = queues(self)
        found.append(own is not None)
        return own

    def noted_answer(self: forked_work.RoundWorker, *arguments: Any) -> Any:
        own = answer(self, *arguments)
        found.append(own is not None)
        return own

    monkeypatch.setattr(ForkedWaits, "queues", noted_queues)
    monkeypatch.setattr(forked_work.RoundWorker, "answer", noted_answer)
    for module in (emit_network, compile_network):
        monkeypatch.setattr(module, "MANY", 1)
    for module in (forked_work, infer_synchronization_forked):
        monkeypatch.setattr(module, "may_fork", lambda: True)
    return found


def _fail(*_: object) -> None:
    raise RuntimeError("something that only a copy meets")


def test_what_copies_tell_is_what_one_process_finds(monkeypatch: pytest.MonkeyPatch, told: list[bool]) -> None:
    made = _made()
    assert len(told) > 1
    assert all(told)
    for module in (forked_work, infer_synchronization_forked):
        monkeypatch.setattr(module, "may_fork", lambda: False)
    told.clear()
    assert _made() == made
    assert not any(told)


@pytest.mark.slow
def test_layers_that_are_alike_are_written_as_if_they_were_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found, kept = _of(_alike()), list[int]()
    once = Memo.once

    def counted(self: Memo, find: Any, what: str, *of: Any) -> Any:
        before = len(self._known)
        own = once(self, find, what, *of)
        if what == "items":
            kept.append(len(self._known) - before)
        return own

    monkeypatch.setattr(Memo, "once", counted)
    assert binary_format.content(_of(_alike())) == binary_format.content(found)
    assert 0 in kept, "nothing is found once for several layers"
    monkeypatch.setattr(Memo, "once", lambda self, find, *_: find())
    assert binary_format.content(_of(_alike())) == binary_format.content(found)


def test_what_a_copy_says_of_results_finds_what_the_interpreter_finds() -> None:
    for program in (_of(_block()), _of(_alike())):
        dram, meant = run(program).dram, results_meant(program)
        ends = [own.result for own in program.stretches if own.result is not None and own.meaning]
        assert meant.keys() == {own.name for own in program.stretches if own.result is not None and own.meaning}
        assert wrong(program, dram, meant) == wrong(program, dram) == []
        for place in ends:
            there = place.addresses[place.addresses >= 0]
            for at in (int(there[0]), int(there[-1])):
                bad = dram.copy()
                bad[at] ^= 1
                assert wrong(program, bad, meant) == wrong(program, bad) != []


def test_what_the_network_says_of_results_finds_what_the_interpreter_finds() -> None:
    for found in (_block(), _alike()):
        program = _of(found)
        dram, wanted, meant = run(program).dram, results_wanted(found, 0), results_meant(program)
        whole = {own.name for own in program.stretches if own.result is not None and (own.result.addresses >= 0).all()}
        assert {name: wanted[name] for name in meant if name in whole} == {n: meant[n] for n in meant if n in whole}
        assert whole
        assert wrong(program, dram, wanted) == wrong(program, dram, results_wanted(found, 1)) == []
        for own in (own.result for own in program.stretches if own.result is not None):
            bad = dram.copy()
            bad[int(own.addresses[own.addresses >= 0][-1])] ^= 1
            assert wrong(program, bad, wanted) == wrong(program, bad) != []


def test_a_program_is_run_by_two_processes_as_by_one(
    monkeypatch: pytest.MonkeyPatch, told: list[bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.bin"
    monkeypatch.setattr(forked_work, "may_fork", lambda: False)
    binary_format.save(_program(), path)
    told.clear()

    def ran() -> tuple[int, str]:
        return command("run", path, "--on", "simulator", "--json", "-"), capsys.readouterr().out

    one = ran()
    assert one[0] == 0
    monkeypatch.setattr(npu_runs, "_MANY", 1)
    monkeypatch.setattr(forked_work, "may_fork", lambda: True)
    assert ran() == one
    assert told == [True]
    monkeypatch.setattr(split_execution, "require_order", _fail)
    assert ran() == one
    assert told == [True, False]


def test_copies_that_tell_nothing_are_done_without(monkeypatch: pytest.MonkeyPatch, told: list[bool]) -> None:
    made = _made()
    told.clear()
    monkeypatch.setattr(infer_synchronization_forked, "_serve", _fail)
    monkeypatch.setattr(compile_network, "_bounds", _fail)
    assert _made() == made
    assert told
    assert not any(told)
