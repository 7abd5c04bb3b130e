"""Runs onnxruntime, with all of its optimizations."""

from __future__ import annotations

from pathlib import Path

from glenside.execution.peers.peer import Inputs, Run, peer


@peer("onnxruntime", {"onnxruntime": "onnxruntime"})
def load(path: Path, inputs: Inputs, threads: int) -> Run:
    """Loads a model; all optimizations are on by default."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(inputs))
