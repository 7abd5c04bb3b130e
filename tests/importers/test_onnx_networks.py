"""Compares imported ONNX networks with onnxruntime; importing takes seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx_images as images  # noqa: E402
import onnx_sequences as sequences  # noqa: E402
from onnx_failures import DEPENDS_ON_ROUNDING  # noqa: E402
from onnx_networks import LIGHT, NETWORKS, random_inputs, run_onnxruntime, small  # noqa: E402

from glenside.importers.onnx import load_onnx, program_of_model  # noqa: E402
from glenside.ir.program import Program  # noqa: E402
from glenside.ir.text import parse, print_program  # noqa: E402
from glenside.semantics.interpreter import evaluate  # noqa: E402

MEMORY = """
import sys, time
from glenside.importers.onnx import load_onnx
import onnx

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))

path, *dims = sys.argv[1:]
before, start = peak(), time.process_time()
program = load_onnx(path, dims={name: int(size) for name, size in (d.split("=") for d in dims)})
print(time.process_time() - start, before, peak(), len(program.layers))
"""


def evaluated(program: Program, inputs: Mapping[str, Any]) -> list[Any]:
    (result,) = evaluate([program.term], {**program.constants, **inputs})
    return list(result) if isinstance(result, tuple) else [result]


def assert_same(got: list[Any], want: list[Any], rtol: float, atol: float) -> None:
    assert [(y.shape, y.dtype) for y in got] == [(y.shape, y.dtype) for y in want]
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", NETWORKS)
def test_network_computes_what_onnxruntime_computes(name: str) -> None:
    network, model = NETWORKS[name], small(name)
    program = program_of_model(model, dims=network.dims)
    assert parse(print_program(program)).term is program.term
    for seed in range(2):
        inputs = random_inputs(model, network.dims, highest=network.highest, seed=seed)
        assert set(program.inputs) <= set(inputs)
        tolerance = 0.0 if network.exact else 2e-5
        assert_same(evaluated(program, inputs), run_onnxruntime(model, inputs), tolerance, tolerance)


def test_open_dims_take_the_sizes_that_are_given() -> None:
    model = small("bert")
    for dims in ({"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 12}):
        inputs = random_inputs(model, dims)
        program = program_of_model(model, dims=dims)
        assert_same(evaluated(program, inputs), run_onnxruntime(model, inputs), 2e-5, 2e-5)


def test_layers_have_the_names_of_nodes() -> None:
    model = small("super_resolution")
    names = [node.name for node in model.graph.node if node.op_type == "Conv"]
    assert list(program_of_model(model, dims={"N": 1}).layers) == names


def _light(path: Path) -> object:
    why = DEPENDS_ON_ROUNDING.get(path.stem.replace("light_", "test_"))
    return pytest.param(path, id=path.stem, marks=[pytest.mark.xfail(reason=why, strict=False)] if why else [])


@pytest.mark.slow
@pytest.mark.parametrize("path", [_light(path) for path in LIGHT])
def test_networks_of_the_onnx_package(path: Path) -> None:
    inputs = random_inputs(onnx.load(path), {})
    assert_same(evaluated(load_onnx(path), inputs), run_onnxruntime(str(path), inputs), 1e-3, 1e-6)


FULL: dict[str, tuple[Callable[[], Any], tuple[str, ...], int]] = {
    "mobilenet_v2": (images.mobilenet_v2, ("batch=1",), 53),
    "residual": (images.residual, ("N=1",), 161),
    "bert": (sequences.bert, ("batch=1", "sequence=128"), 97),
    "vit": (sequences.vit, ("batch=1",), 74),
    "super_resolution": (images.super_resolution, ("N=1",), 9),
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("name", FULL)
def test_networks_of_full_size_take_seconds_and_little_memory(name: str, tmp_path: Path) -> None:
    make, dims, layers = FULL[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(make().SerializeToString())
    command = [sys.executable, "-c", MEMORY, str(path), *dims]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    seconds, before, peak, found = (float(word) for word in outcome.stdout.split())
    size = path.stat().st_size / 2**20
    print(f"{name}: {seconds:.2f} s, {peak - before:.0f} MB over {before:.0f} for a file of {size:.0f} MB")
    assert found == layers
    assert seconds < 5
    assert peak - before < 100 + 3 * size
    assert peak < 2048
