"""Runs ncnn on models that pnnx converts from ONNX files."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from glenside.execution.peers.peer import Inputs, Run, peer

_LETTERS = {"float32": "f32", "int64": "i64", "int32": "i32", "float16": "f16", "uint8": "u8", "int8": "i8"}


@peer("ncnn", {"ncnn": "ncnn", "pnnx": "pnnx"}, "through pnnx, in float32")
def load(path: Path, inputs: Inputs, threads: int) -> Run:
    """Converts the model first, which takes some seconds."""
    import ncnn
    import onnx

    file = onnx.load(path, load_external_data=False)
    weights = {tensor.name for tensor in file.graph.initializer}
    given = [inputs[entry.name] for entry in file.graph.input if entry.name not in weights]
    net = ncnn.Net()
    net.opt.num_threads, net.opt.use_vulkan_compute = threads, False
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    with tempfile.TemporaryDirectory() as folder:
        begin = _converted(path, given, Path(folder))
        if net.load_param(f"{begin}.param") or net.load_model(f"{begin}.bin"):
            raise ValueError("ncnn does not load the converted model")
    batched = [array.ndim > 1 and array.shape[0] == 1 for array in given]

    def run() -> list[np.ndarray]:
        with net.create_extractor() as extractor:
            for name, array, batch in zip(net.input_names(), given, batched, strict=True):
                extractor.input(name, _mat(array, batch))
            found = [extractor.extract(name) for name in net.output_names()]
        wrong = [status for status, _ in found if status]
        if wrong:
            raise ValueError(f"ncnn ends with {wrong[0]}")
        return [np.array(made.numpy(batch_index=0) if batched[0] else made) for _, made in found]

    return run


def _mat(array: Any, batch: bool) -> Any:
    import ncnn

    kept = array.astype(np.int32) if array.dtype.kind == "i" else array
    return (ncnn.Mat(kept, batch_index=0) if batch else ncnn.Mat(kept)).clone()


def _converted(path: Path, given: list[Any], folder: Path) -> str:
    """Converts a model, and returns the path of ncnn's files without their endings."""
    import pnnx

    shapes = ",".join(f"[{','.join(map(str, array.shape))}]{_LETTERS[array.dtype.name]}" for array in given)
    model = folder / "model.onnx"
    model.symlink_to(path.resolve())
    done = subprocess.run(
        [pnnx.EXEC_PATH, str(model), f"inputshape={shapes}", "fp16=0"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    begin = folder / "model.ncnn"
    if done.returncode or not begin.with_suffix(".ncnn.param").exists():
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise ValueError(f"pnnx does not convert it: {said[-1] if said else f'status {done.returncode}'}")
    return str(begin)
