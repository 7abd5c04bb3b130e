"""Models that onnxruntime runs: loaded, their inputs as tensors, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glenside.ir.files import PathLike
from glenside.ir.names import shortened
from glenside.ir.operand import Array
from glenside.ir.packages import import_onnxruntime
from glenside.ir.types import Dims, Tensor

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
"""How much onnxruntime changes a model before it runs it. The first runs it as it stands."""


class CannotRun(Exception):
    """What onnxruntime says when it does not take a model, or not these inputs."""


class Session:
    """A model, a path or the bytes of one, at one of onnxruntime's levels of optimization."""

    def __init__(self, model: PathLike | bytes, what: str, level: str = LEVELS[0]) -> None:
        runtime = import_onnxruntime()
        options = runtime.SessionOptions()
        options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
        options.log_severity_level = 4
        self.what = what
        source = model if isinstance(model, bytes) else str(model)
        try:
            self.session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the package has a class for each of its reasons
            raise CannotRun(f"onnxruntime does not load {what}: {_reason(error)}") from None

    def inputs(self, known: Mapping[str, Tensor]) -> list[Tensor]:
        """What the model takes: tensors that are known, and others that nothing depends on."""
        return [known.get(entry.name) or self._unused(entry) for entry in self.session.get_inputs()]

    def _unused(self, entry: Any) -> Tensor:
        """An input that no output needs may have any size where the file leaves it open."""
        dtype = _DTYPES.get(entry.type)
        if dtype is None:
            raise CannotRun(f"the input {shortened(entry.name)} of {self.what} is a {entry.type}")
        return Tensor(entry.name, Dims(size if isinstance(size, int) else 1 for size in entry.shape), dtype)

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Any]:
        """The outputs in order."""
        taken = {entry.name: inputs[entry.name] for entry in self.session.get_inputs()}
        try:
            return list(self.session.run(None, taken))
        except Exception as error:
            raise CannotRun(f"onnxruntime cannot run {self.what}: {_reason(error)}") from None


_DTYPES = {
    **{f"tensor({name})": name for name in ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))},
    **{"tensor(float16)": "float16", "tensor(float)": "float32", "tensor(double)": "float64"},
}


def _reason(error: Exception) -> str:
    words = " ".join(str(error).split())
    return words if len(words) <= 200 else f"{words[:200]}..."
