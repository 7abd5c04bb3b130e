"""Programs by what a user calls them: a built-in model and its parameters, or a file and its shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from glenside.ir.operand import Array
    from glenside.ir.program import Program


def pair(text: str, flag: str) -> tuple[str, str]:
    """`NAME=VALUE` -> (NAME, VALUE). Raises BadInput."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise BadInput(f"{flag} is written NAME=VALUE, got {text!r}")
    return name, value


def _dims(name: str, text: str) -> tuple[int, ...]:
    return tuple(whole(f"a size of {name}, as in 1,3,32,32,", part) for part in text.split(",") if part)


def _sizes(flags: Sequence[str]) -> dict[str, int]:
    """--dim NAME=SIZE, as often as it is given. Raises BadInput."""
    sizes: dict[str, int] = {}
    for name, text in (pair(flag, "--dim") for flag in flags):
        sizes[name] = whole(f"the size of the dimension {name}, as in --dim {name}=1,", text)
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
    inputs: Mapping[str, Array] | None = None,
) -> Callable[[], Program]:
    """How to load the program; a name that is neither a model nor a file is refused at once.

    `inputs` are at hand: their shapes and dtypes stand for those that a file leaves open.
    """
    from glenside import models as built_in
    from glenside.formats import ENDINGS, ending

    name = source.replace("_", "-")
    if ending(source) in ENDINGS or (name not in built_in.models() and Path(source).exists()):
        return partial(_of_file, source, shapes, shape, weights, parameters, dims, allow_opaque, inputs or {})

    def load() -> Program:
        if shapes or shape:
            raise BadInput(
                f"the shapes of the model {source} are its own; its size is set with --set, as resolution=128"
            )
        if dims or allow_opaque:
            raise BadInput(f"--dim and --allow-opaque are for .onnx files, and {source} is a built-in model")
        values = {n: _value(text) for n, text in (pair(text, "--set") for text in parameters or ())}
        if "seed" in built_in.parameters(name):
            values.setdefault("seed", seed)
        if weights:
            values["weights"] = weights
        return built_in.load(name, **values)

    if name not in built_in.models():
        try:
            built_in.parameters(name)
        except BadInput as error:
            raise BadInput(f"{error}, and there is no file of that name") from None
    return load


def _of_file(
    source: str,
    shapes: str | None,
    shape: Sequence[str] | None,
    weights: str | None,
    parameters: Sequence[str] | None,
    dims: Sequence[str] | None,
    allow_opaque: bool,
    inputs: Mapping[str, Array],
) -> Program:
    from glenside.formats import ending, load
    from glenside.ir.files import read_shapes

    if parameters:
        raise BadInput(f"--set gives a parameter of a built-in model, and {source} is a file")
    known: dict[str, tuple[int, ...]] = dict(read_shapes(shapes)) if shapes else {}
    known |= {name: _dims(name, text) for name, text in (pair(text, "--shape") for text in shape or ())}
    if ending(source) != ".json":  # which has them all
        known |= {name: array.shape for name, array in inputs.items()}
    dtypes = {name: array.dtype.name for name, array in inputs.items()}
    return load(source, known, weights, dtypes, dims=_sizes(dims or ()), allow_opaque=allow_opaque)


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
