"""Tests networks rewritten by onnxruntime's tools: quantized, optimized at each level, with fused attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx_networks import NETWORKS, random_inputs, run_onnxruntime, small  # noqa: E402
from onnx_nodes import saturates  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.check import is_equal  # noqa: E402
from glenside.importers.onnx import load_onnx  # noqa: E402
from glenside.ir.program import Program  # noqa: E402
from glenside.semantics.interpreter import evaluate  # noqa: E402

Rewrite = Callable[[Path, Path, str], None]


def optimized(level: str) -> Rewrite:
    """As onnxruntime saves it at a level of its optimizations."""

    def rewrite(source: Path, to: Path, name: str) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(to)
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    return rewrite


def dynamic(source: Path, to: Path, name: str) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(source, to, per_channel=True, reduce_range=saturates())


class Samples:
    """Inputs to calibrate with."""

    def __init__(self, source: Path, name: str) -> None:
        network, model = NETWORKS[name], onnx.load(source)
        samples = (random_inputs(model, network.dims, highest=network.highest, seed=seed) for seed in range(3, 7))
        self.rest = iter(list(samples))

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self.rest, None)


def static(source: Path, to: Path, name: str) -> None:
    from onnxruntime.quantization import QuantFormat, quantize_static

    quantize_static(source, to, Samples(source, name), quant_format=QuantFormat.QOperator)


def transformers(source: Path, to: Path, name: str) -> None:
    pytest.importorskip("sympy")  # which that optimizer wants
    from onnxruntime.transformers.optimizer import optimize_model

    optimize_model(str(source), "bert", num_heads=3, hidden_size=24, opt_level=0).save_model_to_file(str(to))


def then(*steps: Rewrite) -> Rewrite:
    """One after the other."""

    def rewrite(source: Path, to: Path, name: str) -> None:
        for i, step in enumerate(steps):
            target = to if i == len(steps) - 1 else to.with_suffix(f".{i}.onnx")
            step(source, target, name)
            source = target

    return rewrite


WAYS: dict[str, Rewrite] = {
    "extended": optimized("EXTENDED"),
    "all": optimized("ALL"),
    "dynamic": dynamic,
    "dynamic-all": then(dynamic, optimized("ALL")),
    "static": static,
    "static-all": then(static, optimized("ALL")),
    "transformers": transformers,
    "transformers-dynamic": then(transformers, dynamic),
}
OF_BERT = ("transformers", "transformers-dynamic")
FLOATS = ("mobilenet_v2", "residual", "unet", "pooling", "bert_whole_norms", "vit", "lstm_tagger")
CASES = [(name, way) for name in FLOATS for way in WAYS if way not in OF_BERT or name.startswith("bert")]


def rewritten(name: str, way: str, folder: Path) -> tuple[Path, Path]:
    """Returns the files before and after."""
    before, after = folder / "before.onnx", folder / "after.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(small(name)), before)
    WAYS[way](before, after, name)
    return before, after


def results(program: Program, inputs: Mapping[str, Any]) -> list[Any]:
    (result,) = evaluate([program.term], {**program.constants, **inputs})
    return list(result) if isinstance(result, tuple) else [result]


def apart(some: list[Any], others: list[Any]) -> float:
    return max(float(np.abs(a - b).max(initial=0)) for a, b in zip(some, others, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_rewritten_networks_compute_what_onnxruntime_computes(name: str, way: str, tmp_path: Path) -> None:
    """To rounding where they are of floats; else to half of what the quantization itself changes."""
    before, after = rewritten(name, way, tmp_path)
    network, model = NETWORKS[name], onnx.load(after)
    inputs = random_inputs(model, network.dims, highest=network.highest)
    want = run_onnxruntime(str(after), inputs)
    got = results(load_onnx(after, dims=network.dims), inputs)
    change = apart(want, run_onnxruntime(str(before), inputs))
    size = max(1.0, *(float(np.abs(y).max(initial=0)) for y in want))
    assert apart(got, want) <= max(1e-4 * size, 0.5 * change)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"), [("residual", "all"), ("residual", "static-all"), ("bert_whole_norms", "transformers-dynamic")]
)
@pytest.mark.filterwarnings("ignore")
def test_rewritten_networks_are_mapped_and_checked(name: str, way: str, tmp_path: Path) -> None:
    _, after = rewritten(name, way, tmp_path)
    assert any(node.domain for node in onnx.load(after).graph.node)
    report = gl.optimize(load_onnx(after, dims=NETWORKS[name].dims), gl.SystolicArray(16, 16)).report
    assert report.mapped == len(report.layers) > 0
    assert not report.black_boxes
    assert is_equal(report.checked), report.checked
