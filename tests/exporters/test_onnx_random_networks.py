"""Tests random networks of unusual operators through `optimize`, `layout` and `tensorize`: outputs are equivalent."""

from __future__ import annotations

import random
from math import isfinite
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from command_line import completed  # noqa: E402
from fuzzing import Fuzzing  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.check.expected import Expected, values_of  # noqa: E402
from glenside.fuzzing.models import Model  # noqa: E402
from glenside.fuzzing.onnx_recipes import drawn_model  # noqa: E402
from glenside.ir.errors import GlensideError  # noqa: E402
from glenside.ir.operand import arrays  # noqa: E402

COMMANDS = (
    ("optimize", "--target", "convolution-unit:nhwc"),
    ("layout",),
    ("tensorize", "--target", "systolic-array:4x4"),
)


def _drawn(seed: int) -> Model:
    """Returns the model of a seed with 0 for infinities, which padding with zeros multiplies to nan."""
    model = Model.of(drawn_model(random.Random(seed)))
    for name, (dtype, dims, values) in model.constants.items():
        if values is not None:
            model.constants[name] = dtype, dims, [value if isfinite(value) else 0.0 for value in values]
    return model


def _wrong(seed: int, folder: Path) -> str:
    """Returns the fault of the file written for the network of a seed; "" for none, or for a refused network."""
    path = folder / "network.onnx"
    try:
        onnx.save(_drawn(seed).proto(), path)
        program = gl.load(path)
    except (GlensideError, ValueError, RuntimeError, onnx.shape_inference.InferenceError):
        return ""
    values = values_of(program, seed)
    expected = Expected(program, values, seed)
    for command in COMMANDS:
        out = folder / f"{command[0]}.onnx"
        done = completed(
            command[0], path, *command[1:], "-o", out, "--no-cache", "-q", "--time-limit", 5, folder=folder
        )
        if done.returncode not in (0, 1) or not out.exists():
            if "reads back differently" in done.stderr or "Traceback" in done.stderr:
                return f"{command}: {done.stderr}"
            continue
        onnx.checker.check_model(str(out), full_check=True)
        again = gl.load(out)
        given = {name: values[name] for name in again.inputs}
        found = arrays(gl.evaluate([again.term], {**again.constants, **given})[0])
        if said := expected.difference([np.asarray(each) for each in found]):
            return f"{command}: read again, {said}"
    return ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_random_networks_of_unusual_operators(fuzzing: Fuzzing, tmp_path: Path) -> None:
    found: dict[int, str] = {}
    tried = 0
    for seed in fuzzing.seeds(300):
        tried += 1
        for old in tmp_path.iterdir():
            old.unlink()
        if said := _wrong(seed, tmp_path):
            found[seed] = said
    assert found == {}, f"of {tried}"
