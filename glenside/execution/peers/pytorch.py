"""Runs PyTorch, eagerly and compiled. It reads no ONNX files, and no converter to it is maintained.

onnx2torch is the most used one, and its last version is of 2024.
"""

from __future__ import annotations

import operator
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
    _fix_sizes(model, given)
    return _run(torch.compile(model), given)


def _model(path: Path, inputs: Inputs, threads: int) -> tuple[Any, list[Any]]:
    """Returns the model, and its inputs in its order; images with channels last, which is faster here."""
    import onnx
    import onnx2torch
    import torch

    torch.set_num_threads(threads)
    file = _readable(onnx.load(path))
    weights = {tensor.name for tensor in file.graph.initializer}
    order = [entry.name for entry in file.graph.input if entry.name not in weights]
    last = {"memory_format": torch.channels_last}
    model = onnx2torch.convert(file).eval()
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.to(**last) if tensor.dim() == 4 else tensor.data
    given = [torch.from_numpy(inputs[name].copy()) for name in order]
    return model, [tensor.to(**last) if tensor.dim() == 4 else tensor for tensor in given]


def _readable(file: Any) -> Any:
    """Returns a model as onnx2torch reads it: weights are reshaped already, and operators are of version 17 at most."""
    import onnx.version_converter
    from onnx import numpy_helper

    tensors = {tensor.name: tensor for tensor in file.graph.initializer}
    kept = []
    for node in file.graph.node:
        if node.op_type == "Reshape" and set(node.input) <= tensors.keys():
            values, dims = (numpy_helper.to_array(tensors[name]) for name in node.input)
            tensors[node.output[0]] = numpy_helper.from_array(values.reshape(dims), node.output[0])
        else:
            kept.append(node)
    del file.graph.node[:], file.graph.initializer[:]
    file.graph.node.extend(kept)
    file.graph.initializer.extend(tensors.values())
    return file if file.opset_import[0].version < 18 else onnx.version_converter.convert_version(file, 17)


def _fix_sizes(model: Any, given: list[Any]) -> None:
    """Writes the sizes of reshapes, broadcasts and slices into a graph. onnx2torch reads them when it runs, and then
    nothing is compiled.
    """
    import torch
    from torch import fx

    interpreter = fx.Interpreter(model, garbage_collect_values=False)
    with torch.no_grad():
        interpreter.run(*given)
    values: Any = interpreter.env
    for node in list(model.graph.nodes):
        kind = type(model.get_submodule(node.target)).__name__ if node.op == "call_module" else ""
        with model.graph.inserting_before(node):
            if kind in ("OnnxReshape", "OnnxExpand"):
                method = kind.removeprefix("Onnx").lower()
                fixed = model.graph.call_method(method, (node.args[0], tuple(values[node].shape)))
            elif kind == "OnnxSlice" and len(node.args) > 3:
                starts, ends, axes, *steps = (values[each].tolist() for each in node.args[1:])
                ranges = [slice(None)] * values[node.args[0]].dim()
                for start, end, axis, step in zip(starts, ends, axes, *steps or [[1] * len(axes)], strict=True):
                    ranges[axis] = slice(start, end, step)
                fixed = model.graph.call_function(operator.getitem, (node.args[0], tuple(ranges)))
            else:
                continue
        node.replace_all_uses_with(fixed)
        model.graph.erase_node(node)
    model.recompile()


def _run(model: Any, given: list[Any]) -> Run:
    import torch

    def run() -> list[Any]:
        with torch.inference_mode():
            found = model(*given)
        return [tensor.numpy() for tensor in (found if isinstance(found, tuple | list) else [found])]

    return run
