"""Runs OpenVINO, tuned for latency."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glenside.execution.peers.peer import Inputs, Run, peer


@peer("OpenVINO", {"openvino": "openvino"}, "in float32: where a processor has bfloat16, its default is that")
def load(path: Path, inputs: Inputs, threads: int) -> Run:
    """Loads a model with the dims of the inputs, since open dims would cost time."""
    import openvino

    model = openvino.Core().read_model(str(path))
    model.reshape({name: list(array.shape) for name, array in inputs.items()})
    how = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(model, "CPU", how)
    request = compiled.create_infer_request()
    given = dict(inputs)

    def run() -> list[np.ndarray]:
        found = request.infer(given)
        return [found[output] for output in compiled.outputs]

    return run
