"""Loads programs by what a user calls them: a built-in model with parameters, or a file with shapes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened, spelled_name, suggestion
from glenside.ir.open_program import Range, range_of
from glenside.ir.operators.requirements import spelled

if TYPE_CHECKING:
    from glenside.ir.program import Program


def pair(text: str, flag: str) -> tuple[str, str]:
    """Splits `NAME=VALUE` into (NAME, VALUE). Raises BadInput."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise BadInput(f"{flag} is written NAME=VALUE, got {text!r}")
    return name, value


def _dims(name: str, text: str) -> tuple[int, ...]:
    return tuple(whole(f"a size of {name}, as in 1,3,32,32,", part) for part in text.split(",") if part)


def are_open(dims: Sequence[str] | None) -> bool:
    """True if some --dim leaves a size open."""
    return any(".." in text.partition("=")[2] for text in dims or ())


def _sizes(flags: Sequence[str], *, may_be_open: bool) -> dict[str, int | Range]:
    """Parses --dim NAME=SIZE and NAME=LEAST..GREATEST[:STEP], which may be repeated. Raises BadInput."""
    sizes: dict[str, int | Range] = {}
    for name, text in (pair(flag, "--dim") for flag in flags):
        if name in sizes:
            raise BadInput(f"--dim gives {name} one size or one range, got two")
        if ".." not in text:
            sizes[name] = whole(f"the size of the dimension {name}, as in --dim {name}=1,", text)
            continue
        low, _, rest = text.partition("..")
        high, colon, step = rest.partition(":")
        what = f"a range of the dimension {name}, as in --dim {name}=1..512 or --dim {name}=32..512:32,"
        ends = [whole(what, end) for end in (low, high, *([step] if colon else []))]
        sizes[name] = found = range_of(name, tuple(ends))
        if not may_be_open:
            raise BadInput(
                f"--dim {name}={text} leaves a size open, and this command requires a number, such as --dim "
                f"{name}={found[1]}; `glenside compile` takes ranges"
            )
    return sizes


def loader(
    source: str,
    shapes: str | None,
    shape: list[str] | None,
    weights: str | None,
    parameters: list[str] | None,
    seed: int,
    *,
    dims: Sequence[str] | None = None,
    allow_opaque: bool = False,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    may_be_open: bool = False,
) -> Callable[[], Program]:
    """Returns a function that loads the program; a name that is neither a model nor a file is refused immediately.

    With `may_be_open` ranges of sizes give a program with open sizes.

    `inputs` are values of inputs, NAME=VALUE; the shapes and dtypes of arrays replace those that a file leaves open.
    `outputs` are lists of names, such as a,b.
    """
    from glenside import models as built_in
    from glenside.formats import ENDINGS, ending

    name = source.replace("_", "-")
    if ending(source) in ENDINGS or (name not in built_in.models() and Path(source).exists()):
        asked = (shapes, shape, weights, parameters, dims, allow_opaque, inputs or (), outputs or ())
        return partial(_of_file, source, *asked, may_be_open=may_be_open)

    def load() -> Program:
        if shapes or shape:
            raise BadInput(
                f"the shapes of the model {source} are its own; its size is set with --set, as resolution=128"
            )
        if dims or allow_opaque or outputs:
            raise BadInput(f"--dim, --outputs and --allow-opaque are for .onnx files, and {source} is a built-in model")
        values = {n: _value(text) for n, text in (pair(text, "--set") for text in parameters or ())}
        if "seed" in built_in.parameters(name):
            values.setdefault("seed", seed)
        if weights:
            values["weights"] = weights
        return built_in.load(name, **values).with_values(arrays_given(inputs or ()))

    if name not in built_in.models():
        raise BadInput(f"there is no model {name!r} and no file of that name{built_in.closest(name)}")
    return load


def _of_file(
    source: str,
    shapes: str | None,
    shape: Sequence[str] | None,
    weights: str | None,
    parameters: Sequence[str] | None,
    dims: Sequence[str] | None,
    allow_opaque: bool,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    may_be_open: bool,
) -> Any:
    from glenside.formats import ending, load
    from glenside.ir.files import read_shapes

    given = dict(pair(text, "--set") for text in parameters or ())
    if {*given} - {"cache", "ring"} or given.get("ring", "true") not in ("true", "false"):
        raise BadInput(
            f"--set gives a parameter of a built-in model, or cache= and ring=true of a decoder; {source} is a file"
        )
    how: dict[str, Any] = {**given, "ring": given.get("ring") == "true"}
    known: dict[str, tuple[int, ...]] = dict(read_shapes(shapes)) if shapes else {}
    known |= {name: _dims(name, text) for name, text in (pair(text, "--shape") for text in shape or ())}
    values = arrays_given(inputs)
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    if ending(source) not in (".json", ".onnx"):  # which have them all, or take them of the values
        known |= {name: array.shape for name, array in arrays.items()}
    return load(
        source,
        known,
        weights,
        {name: array.dtype.name for name, array in arrays.items()},
        dims=_sizes(dims or (), may_be_open=may_be_open),
        allow_opaque=allow_opaque,
        values=values,
        outputs=[name for text in outputs for name in text.split(",") if name],
        **how,
    )


def require_given(program: Program) -> None:
    """Raises BadInput if an input that the program reads has no value, and says how to give one on the command line."""
    from glenside.builder.dropout import SEED
    from glenside.ir.program import Program

    missing = [name for name in Program(program.term).inputs if name != SEED.name]
    if missing:
        words = ", ".join(map(spelled_name, missing))
        ways = " ".join(f"--input {spelled_name(name)}={_file_of(name)}" for name in missing[:3])
        name, kind = spelled_name(missing[0]), program.inputs[missing[0]]
        one = f"of {spelled(kind.dims)} {kind.dtype}, or --input {name}=0.5 for one number everywhere"
        raise BadInput(f"missing inputs: {words}; give {ways}{' ..' * (len(missing) > 3)}, {one}")


def _file_of(name: str) -> str:
    """Suggests a file for an array of that name."""
    return f"{re.sub('[^A-Za-z0-9_.-]', '_', name)}.npy"


def arrays_given(inputs: Sequence[str]) -> dict[str, Any]:
    """Parses --input NAME=VALUE, which may be repeated: arrays of files, numbers and lists. Raises BadInput."""
    values: dict[str, Any] = {}
    for name, text in (pair(text, "--input") for text in inputs):
        if name in values:
            raise BadInput(f"--input gives {spelled_name(name)} one value, got two")
        values[name] = _array(name, text)
    return values


def _array(name: str, text: str) -> Any:
    from glenside.formats import ending
    from glenside.ir.files import read_array, read_arrays

    archive, colon, member = text.rpartition(":")
    if (colon and ending(archive) == ".npz") or ending(text) == ".npz":
        path, key = (archive, member) if ending(text) != ".npz" else (text, name)
        arrays = read_arrays(path)
        if key not in arrays:
            raise BadInput(f"{path} has no array {spelled_name(key)}{suggestion(key, arrays)}")
        return arrays[key]
    if ending(text) == ".npy" or os.path.exists(text):
        return read_array(text)
    wanted = "a number, a list such as [1,2], a .npy file, or FILE.npz:NAME"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"the value of {spelled_name(name)} is {wanted}, got {shortened(text)}") from None
    if not isinstance(value, int | float | list):
        raise BadInput(f"the value of {spelled_name(name)} is {wanted}, got {shortened(text)}")
    return value


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
