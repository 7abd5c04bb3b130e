"""Copies of the process that find waits and bounds while a program is written: they change nothing of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

import glenside as gl
from glenside.ir import copies
from glenside.ir.program import Program
from glenside.npu import files
from glenside.npu.instructions import Instruction
from glenside.npu.lowering import integers, network, waits_beside
from glenside.npu.lowering.integers import least, mappings
from glenside.npu.lowering.waits_beside import WaitsBeside
from glenside.npu.machine import Machine
from glenside.quantization.calibration import quantized

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no second process elsewhere")

MACHINE = Machine(8, 8, scratchpad=1 << 13, accumulators=128, bandwidth=8, latency=20)


def _made() -> bytes:
    """The file of a small network's program: tensors that stay, one that is added, and one that passes DRAM."""
    b = gl.Builder("block")
    x = b.relu(b.conv(b.input("x", (1, 3, 12, 12)), b.constant("a", (8, 3, 3, 3)), strides=2, padding=1))
    y = b.relu(b.conv(x, b.constant("b", (8, 1, 3, 3)), groups=8, padding=1))
    x = b.relu(b.add(b.conv(y, b.constant("c", (8, 8, 1, 1))), x))
    program: Program = b.finish(b.conv(x, b.constant("d", (10, 8, 3, 3)), padding=1)).seeded_constants(0)
    found = quantized(program, program.constants)
    result = gl.optimize(found.program, gl.NPU(MACHINE), verify=False)
    return files.content(least(found, mappings(result, found), MACHINE))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Copies are made for small networks too; whether each told anything."""
    found = list[bool]()
    queues, answer = WaitsBeside.queues, copies.Ahead.answer

    def noted_queues(self: WaitsBeside) -> Mapping[str, tuple[Instruction, ...]] | None:
        own = queues(self)
        found.append(own is not None)
        return own

    def noted_answer(self: copies.Ahead, *arguments: Any) -> Any:
        own = answer(self, *arguments)
        found.append(own is not None)
        return own

    monkeypatch.setattr(WaitsBeside, "queues", noted_queues)
    monkeypatch.setattr(copies.Ahead, "answer", noted_answer)
    for module in (network, integers):
        monkeypatch.setattr(module, "MANY", 1)
    for module in (copies, waits_beside):
        monkeypatch.setattr(module, "may_be_copied", lambda: True)
    return found


def _fail(*_: object) -> None:
    raise RuntimeError("something that only a copy meets")


def test_what_copies_tell_is_what_one_process_finds(monkeypatch: pytest.MonkeyPatch, told: list[bool]) -> None:
    made = _made()
    assert len(told) > 1
    assert all(told)
    for module in (copies, waits_beside):
        monkeypatch.setattr(module, "may_be_copied", lambda: False)
    told.clear()
    assert _made() == made
    assert not any(told)


def test_copies_that_tell_nothing_are_done_without(monkeypatch: pytest.MonkeyPatch, told: list[bool]) -> None:
    made = _made()
    told.clear()
    monkeypatch.setattr(waits_beside, "_serve", _fail)
    monkeypatch.setattr(integers, "_bounds", _fail)
    assert _made() == made
    assert told
    assert not any(told)
