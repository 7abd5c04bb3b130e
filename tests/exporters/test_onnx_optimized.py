"""Tests networks that are imported, optimized and exported: onnxruntime computes the same as before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx_images as images  # noqa: E402
import onnx_sequences as sequences  # noqa: E402
from onnx_networks import LIGHT, NETWORKS, random_inputs, run_onnxruntime, small, weighted  # noqa: E402

import glenside as gl  # noqa: E402

QUICK = ("lstm_tagger", "quantised_qdq", "super_resolution_nhwc")


def assert_survives(
    model: Any, folder: Path, dims: Mapping[str, int], *, highest: int = 2, exact: bool = False
) -> gl.Result:
    """Both files give the same outputs, up to rounding unless that is exact too; every layer is mapped and checked."""
    path, out = folder / "network.onnx", folder / "optimized.onnx"
    path.write_bytes(model.SerializeToString())
    program = gl.load(path, dims=dims)
    result = gl.optimize(program, gl.SystolicArray(64, 64))
    assert result.report.ok
    assert result.stopped == "saturated"
    gl.save(result.program, out)
    onnx.checker.check_model(str(out), full_check=True)
    declared = {value.name for value in onnx.load(out).graph.input}
    inputs = random_inputs(model, dims, highest=highest)
    want, got = run_onnxruntime(str(path), inputs), run_onnxruntime(str(out), {n: inputs[n] for n in declared})
    assert [(y.shape, y.dtype) for y in got] == [(y.shape, y.dtype) for y in want]
    for mine, theirs in zip(got, want, strict=True):
        assert np.isfinite(theirs).all()
        largest = np.abs(theirs).max()
        assert largest > 0
        close = 0 if exact or theirs.dtype.kind != "f" else 1e-5 * largest
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=close)
    return result


def _check(name: str, folder: Path) -> None:
    network = NETWORKS[name]
    assert_survives(small(name), folder, network.dims, highest=network.highest, exact=network.exact)


@pytest.mark.parametrize("name", QUICK)
def test_a_network_survives(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETWORKS.keys() - QUICK))
def test_every_network_survives(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("path", LIGHT, ids=[path.stem for path in LIGHT])
def test_networks_of_the_onnx_package_survive(path: Path, tmp_path: Path) -> None:
    assert_survives(weighted(path), tmp_path, {})


FULL = {
    "mobilenet_v2": (images.mobilenet_v2, {"batch": 1}),
    "bert": (sequences.bert, {"batch": 1, "sequence": 128}),
    "vit": (sequences.vit, {"batch": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_networks_of_full_size_survive(name: str, tmp_path: Path) -> None:
    make, dims = FULL[name]
    assert_survives(make(), tmp_path, dims)
