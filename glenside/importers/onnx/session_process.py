"""Runs models in onnxruntime in its own process: `python -m glenside.importers.onnx.session_process`.

Messages have the format of `glenside.ir.child_processes`; arrays are sent as bytes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glenside.importers.onnx.sessions import array_of, described
from glenside.ir.child_processes import answers, receive, send, watch_parent
from glenside.ir.dtypes import RECORDS
from glenside.ir.operand import Array
from glenside.ir.packing import packed, unpacked

_DTYPES = {f"tensor({record.onnx.lower()})": record for record in RECORDS.values()}
_AS_BITS = {kind for kind, record in _DTYPES.items() if record.wider}
"""Types that numpy lacks, which onnxruntime exchanges as bytes."""
_LONGEST = 200  # characters of an error


class _Sessions:
    """The loaded models, by number."""

    def __init__(self) -> None:
        import onnxruntime

        self.runtime, self.sessions = onnxruntime, dict[int, Any]()
        onnxruntime.set_default_logger_severity(4)

    def answer(self, request: Mapping[str, Any], parts: Sequence[bytearray]) -> tuple[Any, list[memoryview]]:
        """Answers a request. Raises onnxruntime's own errors, which have one class per reason."""
        for number in request["unused"]:
            self.sessions.pop(number, None)
        if "run" not in request and "load" not in request:
            return [], []
        if "load" in request:
            return self._load(request, parts), []
        given = [array_of(dtype, shape, data) for (dtype, shape), data in zip(request["arrays"], parts, strict=True)]
        return described(self._run(self.sessions[request["run"]], dict(zip(request["names"], given, strict=True))))

    def _load(self, request: Mapping[str, Any], parts: Sequence[bytearray]) -> Any:
        options = self.runtime.SessionOptions()
        options.graph_optimization_level = getattr(self.runtime.GraphOptimizationLevel, request["level"])
        options.log_severity_level = 4
        if request["threads"] is not None:
            options.intra_op_num_threads = request["threads"]
            options.add_session_config_entry("session.force_spinning_stop", "1")
        source = bytes(parts[0]) if parts else request["path"]
        session = self.runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        self.sessions[request["load"]] = session
        return [[(e.name, e.type, e.shape) for e in ends] for ends in (session.get_inputs(), session.get_outputs())]

    def _run(self, session: Any, inputs: Mapping[str, Array]) -> list[Array]:
        kinds = [entry.type for entry in (*session.get_inputs(), *session.get_outputs())]
        for entry in session.get_outputs():
            if entry.type not in _DTYPES:
                raise TypeError(f"its output {entry.name} is a {entry.type}")
        if any(kind in _AS_BITS for kind in kinds):
            given = {name: self._value_of(array) for name, array in inputs.items()}
            return [_array_of(value) for value in session.run_with_ort_values(None, given)]
        return [np.asarray(array) for array in session.run(None, dict(inputs))]

    def _value_of(self, array: Array) -> Any:
        """Converts an array to onnxruntime's value."""
        from onnx import TensorProto

        record = RECORDS[array.dtype.name]
        if not record.wider:
            return self.runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))
        kind = TensorProto.DataType.Value(record.onnx)
        value = self.runtime.OrtValue.ortvalue_from_shape_and_type(list(array.shape), kind)
        ctypes.memmove(value.data_ptr(), packed(array).tobytes(), value.tensor_size_in_bytes())
        return value


def _array_of(value: Any) -> Array:
    """Copies onnxruntime's value to an array."""
    if value.data_type() not in _AS_BITS:
        return np.asarray(value.numpy())
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return unpacked(np.frombuffer(data, np.uint8), value.shape(), _DTYPES[value.data_type()].name)


def main() -> None:
    """Serves until the input ends."""
    watch_parent()
    stream, sessions = answers(), None
    while True:
        try:
            request, parts = receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            sessions = sessions or _Sessions()
            content, made = sessions.answer(request, parts)
        except Exception as error:
            words = " ".join(str(error).split()) or type(error).__name__
            send(stream, {"failed": words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."})
        else:
            send(stream, {"found": content}, made)


if __name__ == "__main__":
    main()
