"""Tests that the same source gives the same results on other processors: NEON in an emulator, AVX2 and plain C here."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quantized_network import network, values

import glenside as gl
from glenside.codegen.c_library.export import library
from glenside.codegen.processor.find_compiler import Kind, _zig, known_compiler
from glenside.codegen.processor.model import MACHINES, is_here
from glenside.codegen.runtime.compile_and_load import flags
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program
from glenside.passes.integer_sums import integer_sums
from glenside.passes.network import fold_batch_norms

pytestmark = pytest.mark.slow

NETWORKS = {
    "mobilenet-v1": {"resolution": 32},
    "unet-small": {"resolution": 16, "base": 8, "levels": 2},
    "vit-s-16": {"resolution": 32, "layers": 1, "hidden": 48, "heads": 3},
    "bert-base": {"layers": 1, "hidden": 48, "heads": 3, "intermediate": 40, "sequence": 9, "vocabulary": 31},
}


def _commands(machine: str) -> list[tuple[list[str], list[str]]]:
    """Ways to compile programs for a machine here, and the command that runs them."""
    found = []
    if MACHINES[machine].family == "aarch64":
        emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
        if emulator is None:
            return []
        if shutil.which("aarch64-linux-gnu-gcc"):
            found.append((["aarch64-linux-gnu-gcc", *flags(MACHINES[machine]), "-static"], [emulator]))
        if _zig():
            other = ["-target", "aarch64-linux-musl", *flags(MACHINES[machine], Kind.ZIG), "-static"]
            found.append(([*_zig(), *other], [emulator]))
    elif is_here(MACHINES[machine]):
        by = known_compiler()
        found.append(([*by.command, *flags(MACHINES[machine], by.kind)], []))
    return found


def _caller(lowered: Lowered) -> str:
    """Reads the inputs, runs on two threads, and writes the results."""
    sizes = [*((f"x{i + 1}", b) for i, b in enumerate(lowered.inputs))]
    results = [*((f"y{i + 1}", b) for i, b in enumerate(lowered.results))]
    kinds = {"float32": "float", "int64": "int64_t", "int32": "int32_t"}
    declared = "".join(f"static {kinds[b.dtype]} {n}[{b.dims.product()}];\n" for n, b in (*sizes, *results))
    read = "".join(f"    if (fread({n}, sizeof {n}, 1, stdin) != 1) return 2;\n" for n, _ in sizes)
    written = "".join(f"    if (fwrite({n}, sizeof {n}, 1, stdout) != 1) return 3;\n" for n, _ in results)
    names = ", ".join(["program", *(n for n, _ in (*sizes, *results))])
    return (
        f'#include <stdio.h>\n#include "net.h"\n{declared}int main(void)\n{{\n'
        f'    net_program *program = net_open("net.weights", 2);\n    if (!program) return 1;\n{read}'
        f"    if (net_run({names})) return 4;\n{written}    net_close(program);\n    return 0;\n}}\n"
    )


def _drawn(program: Program) -> dict[str, Array]:
    draw = np.random.default_rng(0)
    return {
        tensor.name: (
            draw.integers(0, 2, tensor.dims) if tensor.dtype == "int64" else draw.standard_normal(tensor.dims)
        ).astype(tensor.dtype)
        for tensor in program.tensors.values()
        if not tensor.constant
    }


@pytest.mark.parametrize("machine", ["neon", "avx2", "generic"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_on_other_machines(tmp_path: Path, name: str, machine: str) -> None:
    program, _ = fold_batch_norms(gl.models.load(name, **NETWORKS[name]).seeded_constants(0))
    _agrees(tmp_path, program, _drawn(program), machine)


@pytest.mark.parametrize("machine", ["neon", "avx2", "generic"])
@pytest.mark.parametrize("activation", ["uint8", "int8"])
def test_bytes_on_other_machines(tmp_path: Path, activation: str, machine: str) -> None:
    program = network(True, activation)
    given = values(program, 0)
    program = integer_sums(replace(program, constants={n: given[n] for n in program.constants_declared}))
    _agrees(tmp_path, program, {"x": given["x"]}, machine)


def _agrees(tmp_path: Path, program: Program, inputs: dict[str, Array], machine: str) -> None:
    """Programs compiled for a machine, in each available way, compute what the interpreter does."""
    commands = _commands(machine)
    if not commands:
        pytest.skip(f"there is nothing here that compiles for {machine} and runs it")
    want = arrays(gl.evaluate([program.term], {**program.constants, **inputs})[0])
    lowered = Lowered(program, MACHINES[machine])
    made = library([lowered], "net")
    (tmp_path / "net.weights").write_bytes(made.weights)
    for path, text in {**made.texts, "caller.c": _caller(lowered)}.items():
        (tmp_path / path).write_text(text)
    given = b"".join(inputs[buffer.name].tobytes() for buffer in lowered.inputs)
    for number, (build, runner) in enumerate(commands):
        whole = [*build, "-Wall", "-Wextra", "net.c", "caller.c", "-o", f"net{number}", "-lm", "-pthread"]
        environment = dict(os.environ, ZIG_LOCAL_CACHE_DIR=str(tmp_path))
        done = subprocess.run(whole, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        ran = subprocess.run([*runner, f"./net{number}"], cwd=tmp_path, input=given, capture_output=True, timeout=300)
        assert ran.returncode == 0, ran.stderr
        got = np.split(np.frombuffer(ran.stdout, np.float32), np.cumsum([array.size for array in want])[:-1])
        for one, other in zip(want, got, strict=True):
            assert np.allclose(one.reshape(-1), other, 1e-4, 1e-4 * float(np.abs(one).max()))
