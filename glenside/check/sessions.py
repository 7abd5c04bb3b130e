"""Models that onnxruntime runs: loaded, their inputs as tensors, and what it says when it cannot."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glenside.ir.dtypes import RECORDS
from glenside.ir.names import shortened
from glenside.ir.operand import Array
from glenside.ir.packages import import_onnx, import_onnxruntime
from glenside.ir.packing import packed, unpacked
from glenside.ir.replacing import PathLike
from glenside.ir.types import Dims, Tensor

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
"""How much onnxruntime changes a model before it runs it. The first runs it as it stands."""


class CannotRun(Exception):
    """What onnxruntime says when it does not take a model, or not these inputs."""


class Session:
    """A model, a path or the bytes of one, at one of onnxruntime's levels of optimization.

    threads  how many, which do not spin after a run: what runs next has the processors; None leaves it to onnxruntime
    """

    def __init__(
        self, model: PathLike | bytes, what: str, level: str = LEVELS[0], *, threads: int | None = None
    ) -> None:
        runtime = import_onnxruntime()
        options = runtime.SessionOptions()
        options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
        options.log_severity_level = 4
        if threads is not None:
            options.intra_op_num_threads = threads
            options.add_session_config_entry("session.force_spinning_stop", "1")
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
        kinds = [entry.type for entry in (*self.session.get_inputs(), *self.session.get_outputs())]
        try:
            if any(kind in _AS_BITS for kind in kinds):
                given = {name: _value_of(array) for name, array in taken.items()}
                return [_array_of(value) for value in self.session.run_with_ort_values(None, given)]
            return list(self.session.run(None, taken))
        except Exception as error:
            raise CannotRun(f"onnxruntime cannot run {self.what}: {_reason(error)}") from None


_DTYPES = {f"tensor({record.onnx.lower()})": record.name for record in RECORDS.values()}
_AS_BITS = {f"tensor({record.onnx.lower()})" for record in RECORDS.values() if record.wider}
"""What onnxruntime takes and gives as bytes alone: numpy has no dtype for it."""


def _value_of(array: Array) -> Any:
    """An array as onnxruntime holds it."""
    runtime, onnx = import_onnxruntime(), import_onnx()
    record = RECORDS[array.dtype.name]
    if not record.wider:
        return runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
    kind = onnx.TensorProto.DataType.Value(record.onnx)
    value = runtime.OrtValue.ortvalue_from_shape_and_type(list(array.shape), kind)
    ctypes.memmove(value.data_ptr(), packed(array).tobytes(), value.tensor_size_in_bytes())
    return value


def _array_of(value: Any) -> Any:
    """What onnxruntime holds as an array, a copy."""
    if value.data_type() not in _AS_BITS:
        return value.numpy()
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return unpacked(np.frombuffer(data, np.uint8), value.shape(), _DTYPES[value.data_type()])


def _reason(error: Exception) -> str:
    words = " ".join(str(error).split())
    return words if len(words) <= 200 else f"{words[:200]}..."
