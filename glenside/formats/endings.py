"""Files of programs by their ending: .onnx, .json, and .glenside, the text, which is also what any other one holds.

A .py file, a function of JAX, is written only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glenside.ir import files
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.replacing import PathLike

ENDINGS = (".glenside", ".onnx", ".json")
"""Of files that hold programs for certain."""


def ending(path: PathLike) -> str:
    """The ending of a path in lower case, with its dot."""
    return Path(path).suffix.lower()


def load(
    path: PathLike,
    shapes: Mapping[str, Sequence[int]] | None = None,
    weights: PathLike | None = None,
    dtypes: Mapping[str, str] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    allow_opaque: bool = False,
    values: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
) -> Program:
    """The program of a file.

    shapes        of tensors that a text does not declare, or of inputs of an ONNX file that leaves them open
    weights       an .npz file with values of constants; those that an ONNX file has come after these
    dtypes        of tensors that a text does not declare
    dims          of an ONNX file: name of a dimension, such as batch -> its size
    allow_opaque  whether operators of an ONNX file that have no meaning here are kept as black boxes
    values        of inputs, which are constants then: arrays, numbers, lists of numbers
    outputs       names of tensors of an ONNX file that are its results instead of its own

    Several outputs of an ONNX file are a tuple. Raises GlensideError.
    """
    kind = ending(path)
    if (dims or allow_opaque or outputs) and kind != ".onnx":
        raise BadInput(f"sizes of named dimensions, names of outputs and black boxes are for .onnx files, got {path}")
    if kind == ".py":
        raise BadInput(f"a program is read from a {', '.join(ENDINGS)} file, got {path}: a .py file is written only")
    if kind == ".onnx":
        open_ = {"dims": dims, "shapes": shapes, "allow_opaque": allow_opaque, "values": values, "outputs": outputs}
        return _load_onnx(path, weights, open_)
    if kind == ".json":
        from glenside.exporters.json import load_json

        if shapes:
            raise BadInput(f"shapes are for .glenside and .onnx files; {path} has its own")
        program = load_json(path, weights)
    else:
        program = files.load(path, shapes, weights, dtypes)
    return program.with_values(values or {})


def _load_onnx(path: PathLike, weights: PathLike | None, open_: Mapping[str, Any]) -> Program:
    from glenside.importers.onnx import load_onnx

    program = load_onnx(path, **open_)
    if weights is not None:
        try:
            program = program.with_constants(files.read_arrays(weights))
        except BadInput as error:
            raise BadInput(f"{weights}: {error.message}") from None
    return replace(program, name=Path(path).stem)


def save(program: Program, path: PathLike) -> str:
    """Write a program and the values of its constants, in the format that the ending names: whole or not at all.

    What is written is read back and compared before it takes its name; the sentence says what was compared.

    The text and JSON keep values in an .npz file beside them; ONNX needs the value of every constant, and keeps them in
    the file up to its limit of 2 GiB, beyond that in PATH.data beside it. A .py file is a function of JAX, which SPU
    runs too, with values in an .npz file beside it. Raises BadInput.
    """
    kind = ending(path)
    if kind == ".onnx":
        from glenside.exporters.onnx import save_onnx

        return str(save_onnx(program, path))
    if kind == ".json":
        from glenside.exporters.json import save_json

        save_json(program, path)
        return _SAME
    if kind == ".py":
        from glenside.exporters.jax import save_jax

        save_jax(program, path)
        return "read back: arguments and constants as meant; values not compared: it is a function of JAX"
    files.save(program, path)
    return _SAME


_SAME = "read back: the same term and constants"
