"""ONNX files, whole or not at all."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from glenside.exporters.onnx.export import emitted
from glenside.exporters.onnx.model import inline, little_endian, model_of
from glenside.ir.errors import BadInput
from glenside.ir.files import PathLike, replacing
from glenside.ir.operand import Array
from glenside.ir.packages import import_onnx
from glenside.ir.program import Program

# A file of protocol buffers ends at 2 GiB; the nodes need some of it too.
_MOST_BYTES = 2**31 - 2**27

# External data begins at multiples of this, so that a runtime can map it.
_ALIGNMENT = 4096

# Constants smaller than this stay in the model, where tools read them to infer shapes.
_SMALL = 1024


def save_onnx(program: Program, path: PathLike, most_bytes: int = _MOST_BYTES) -> None:
    """Write `export_onnx(program)`, whole or not at all.

    Constants of more than `most_bytes` together go to PATH.data beside it, which must be moved with it: both or neither
    are written. Raises BadInput.
    """
    import_onnx()
    emit, outputs = emitted(program)
    constants = program.constants_declared.values()
    size = sum(tensor.dims.product() * np.dtype(tensor.dtype).itemsize for tensor in constants)
    with ExitStack() as files:
        store: Any = inline
        if size > most_bytes:
            beside = f"{Path(path).name}.data"
            store = _Beside(files.enter_context(replacing(Path(path).with_name(beside))), beside)
        model = model_of(program, emit, outputs, store)
        try:
            content = model.SerializeToString(deterministic=True)
        except Exception as error:  # each version of protobuf has another one for what is too large
            raise BadInput(f"cannot write {path}: {error}") from None
        files.enter_context(replacing(path)).write(content)


class _Beside:
    """Keeps the bytes of constants in another file."""

    def __init__(self, file: IO[bytes], location: str) -> None:
        self.file, self.location = file, location

    def __call__(self, tensor: Any, array: Array) -> None:
        if array.nbytes < _SMALL:
            inline(tensor, array)
            return
        start = -(-self.file.tell() // _ALIGNMENT) * _ALIGNMENT
        self.file.write(bytes(start - self.file.tell()))
        self.file.write(little_endian(array).data)
        tensor.data_location = tensor.EXTERNAL
        for key, value in (("location", self.location), ("offset", start), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
