"""Runs PyTorch, eagerly and compiled. It reads no ONNX files, and no converter to it is maintained.

onnx2torch is the most used one, and its last version is of 2024.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glenside.execution.peers.peer import Inputs, Run, peer

_PACKAGES = {"torch": "torch", "onnx2torch": "onnx2torch"}
_HOW = "through onnx2torch, of 2024: no converter from ONNX is maintained"


@peer("PyTorch", _PACKAGES, _HOW)
def load(path: Path, inputs: Inputs, threads: int) -> Run:
    """Loads a model that runs operator by operator."""
    return _run(*_model(path, inputs, threads))


@peer("PyTorch compiled", _PACKAGES, f"torch.compile with its weights frozen, {_HOW}")
def load_compiled(path: Path, inputs: Inputs, threads: int) -> Run:
    """Loads a model for its compiler, with frozen weights."""
    import torch
    import torch._inductor.config

    torch._inductor.config.freezing = True
    model, given = _model(path, inputs, threads)
    return _run(torch.compile(model), given)


def _model(path: Path, inputs: Inputs, threads: int) -> tuple[Any, list[Any]]:
    """Returns the model, and its inputs in its order; images with channels last, which is faster here."""
    import onnx
    import onnx2torch
    import torch

    torch.set_num_threads(threads)
    file = onnx.load(path)
    weights = {tensor.name for tensor in file.graph.initializer}
    order = [entry.name for entry in file.graph.input if entry.name not in weights]
    last = {"memory_format": torch.channels_last}
    model = onnx2torch.convert(file).eval().to(**last)
    given = [torch.from_numpy(inputs[name].copy()) for name in order]
    return model, [tensor.to(**last) if tensor.dim() == 4 else tensor for tensor in given]


def _run(model: Any, given: list[Any]) -> Run:
    import torch

    def run() -> list[Any]:
        with torch.inference_mode():
            found = model(*given)
        return [tensor.numpy() for tensor in (found if isinstance(found, tuple | list) else [found])]

    return run
