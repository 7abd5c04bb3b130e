"""Loads and saves programs in the format that the ending of a path names: .onnx, .json, and .glenside for the text.

Files of other endings hold the text too. A .py file, a function of JAX, is only written; a .pt2 file, which
`torch.export.save` writes, an .mlir file, StableHLO text, a .gguf file, a decoder, and a folder of a checkpoint of
transformers are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

from glenside.ir import files
from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput
from glenside.ir.open_program import OpenProgram, changed, is_range
from glenside.ir.program import Program
from glenside.ir.replacing import PathLike

ENDINGS = (".glenside", ".onnx", ".pt2", ".mlir", ".gguf", ".safetensors", ".json")
"""The endings that only files of programs have."""
_PICKLED = (".pt", ".pth", ".ckpt", ".pkl")


def _require_names(**options: object) -> None:
    """Raises BadInput for an option by name that is no dict."""
    for option, given in options.items():
        if given is not None and not isinstance(given, Mapping):
            raise BadInput(f"{option}= is a dict by name, got {given!r}")


def ending(path: PathLike) -> str:
    """Returns the ending of a path in lower case, with its dot. Raises BadInput."""
    try:
        return Path(path).suffix.lower()
    except TypeError:
        raise BadInput(f"the path of a file must be a text or a Path, got {path!r}") from None


@overload
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
    cache: str = "float32",
    ring: bool = False,
) -> Program: ...


@overload
def load(
    path: PathLike,
    shapes: Mapping[str, Sequence[int]] | None = None,
    weights: PathLike | None = None,
    dtypes: Mapping[str, str] | None = None,
    *,
    dims: Mapping[str, int | Sequence[int]],
    allow_opaque: bool = False,
    values: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    cache: str = "float32",
    ring: bool = False,
) -> Program | OpenProgram: ...


def load(
    path: PathLike,
    shapes: Mapping[str, Sequence[int]] | None = None,
    weights: PathLike | None = None,
    dtypes: Mapping[str, str] | None = None,
    *,
    dims: Mapping[str, Any] | None = None,
    allow_opaque: bool = False,
    values: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    cache: str = "float32",
    ring: bool = False,
) -> Program | OpenProgram:
    """Loads a program from a file.

      shapes        shapes of tensors that a text does not declare, or of inputs whose shapes an ONNX file leaves open
      weights       an .npz file with values of constants, which take precedence over those of an ONNX file
      dtypes        dtypes of tensors that a text does not declare
      dims          sizes of named dimensions of an ONNX file, such as batch; of the symbols of a .pt2 file, such as
                    s31; rows and past of a decoder in a GGUF file or a checkpoint.
                    With a range, (1, 512) or (0, 512, 32) by steps, for some of them the result is an OpenProgram,
                    which `gl.compile` takes
      allow_opaque  whether ONNX operators that Glenside does not know are kept as black boxes
      values        values of inputs, which become constants: arrays, numbers or lists of numbers
      outputs       names of tensors of an ONNX file to return instead of its own outputs
      cache         dtype of the keys and values that a decoder stores: float32, bfloat16, float16 or int8
      ring          True: a decoder with a sliding window stores the rows of the window only, for any number of tokens;
                    `dims` has rows

    Several outputs of an ONNX file become a tuple. Raises GlensideError.
    """
    kind = ending(path)
    _require_names(dims=dims, shapes=shapes, values=values, dtypes=dtypes)
    load_decoder = _decoder_loader(path, cache, ring=ring)
    if dims and any(map(is_range, dims.values())) and kind == ".onnx":
        own = {"shapes": shapes, "allow_opaque": allow_opaque, "values": values, "outputs": outputs}
        return _load_open(path, dims, {"weights": weights, "dtypes": dtypes, **own})
    if load_decoder:
        _require_own_sizes(path, bool(shapes or weights or dtypes or allow_opaque or outputs), dims or {})
        sizes = {n: size if is_range(size) else whole(f"the size {n}", size) for n, size in (dims or {}).items()}
        return load_decoder(path, sizes, values or {})
    if any(((dims and kind != ".pt2"), allow_opaque, outputs)) and kind != ".onnx" and Path(path).exists():
        raise BadInput(f"sizes of named dimensions, names of outputs and black boxes are for .onnx files, got {path}")
    if kind == ".py":
        raise BadInput(f"a program is read from a {', '.join(ENDINGS)} file, got {path}: a .py file is written only")
    if kind in (".pt2", ".mlir"):
        from glenside.importers.stablehlo import load_stablehlo
        from glenside.importers.torch.archive import load_pt2

        if shapes or weights:
            raise BadInput(f"shapes and weights are for other files; {path} has its own")
        found = load_pt2(path, dims) if kind == ".pt2" else replace(load_stablehlo(path), name=Path(path).stem)
        made: Program | OpenProgram = changed(found, lambda program: program.with_values(values or {}))
        return made
    if kind == ".onnx":
        open_ = {"dims": dims, "shapes": shapes, "allow_opaque": allow_opaque, "values": values, "outputs": outputs}
        return _load_onnx(path, weights, open_)
    if kind == ".json":
        from glenside.exporters.json import load_json

        if shapes:
            raise BadInput(f"shapes are for .glenside and .onnx files; {path} has its own")
        program = load_json(path, weights)
    else:
        _require_text(path, kind)
        program = files.load(path, shapes, weights, dtypes)
    return program.with_values(values or {})


def _require_text(path: PathLike, kind: str) -> None:
    """Raises BadInput for a file of bytes that has no ending of a program."""
    if kind in ENDINGS or not Path(path).is_file():
        return
    with suppress(OSError), Path(path).open("rb") as file:
        if b"\0" in file.read(1 << 12):
            torch = (
                "; gl.from_torch(module, example_inputs) takes a module of PyTorch, and torch.export.save writes .pt2"
            )
            more = torch if kind in _PICKLED else ""
            raise BadInput(f"a program is read from a {', '.join(ENDINGS)} file, got {path}{more}")


def _decoder_loader(path: PathLike, cache: str, *, ring: bool) -> Callable[..., Program | OpenProgram] | None:
    """Returns the importer of a file or folder of a decoder, None for other files. Raises BadInput."""
    from glenside.importers.checkpoint import is_checkpoint, load_checkpoint, open_checkpoint, ring_checkpoint

    if cache != "float32" and (ending(path) == ".gguf" or is_checkpoint(path)):
        from glenside.models.decoder_cache import require_cache

        require_cache(cache)
    if ending(path) == ".gguf":
        from glenside.importers.gguf import load_gguf, open_gguf, ring_gguf

        if ring:
            return partial(_load_ring, partial(ring_gguf, cache=cache))
        return partial(_load_decoder, partial(load_gguf, cache=cache), partial(open_gguf, cache=cache))
    if is_checkpoint(path):
        if ring:
            return partial(_load_ring, partial(ring_checkpoint, cache=cache))
        return partial(_load_decoder, partial(load_checkpoint, cache=cache), partial(open_checkpoint, cache=cache))
    if Path(path).is_dir():
        raise BadInput(f"{path} is a folder without config.json, which a checkpoint of a decoder has")
    if cache != "float32" or ring:
        raise BadInput(f"cache= and ring= are for decoders of GGUF files and checkpoints, got {path}")
    return None


def _load_decoder(
    load_fixed: Callable[..., Program],
    load_open: Callable[..., OpenProgram],
    path: PathLike,
    dims: Mapping[str, Any],
    values: Mapping[str, Any],
) -> Program | OpenProgram:
    if not any(map(is_range, dims.values())):
        return load_fixed(path, **dims).with_values(values)
    if values:
        raise BadInput(f"values of inputs are for programs whose sizes are numbers: {path}")
    return load_open(path, **{"rows": 1, "past": (0, 511), **dims})


def _load_ring(
    load_any: Callable[..., Program | OpenProgram], path: PathLike, dims: Mapping[str, Any], values: Mapping[str, Any]
) -> Program | OpenProgram:
    if values or "past" in dims:
        raise BadInput(f"{path} as a ring has rows, and neither a size past nor values of inputs: its window is fixed")
    return load_any(path, **dims)


def _require_own_sizes(path: PathLike, other: bool, dims: Mapping[str, Any]) -> None:
    if other or {*dims} - {"rows", "past"}:
        raise BadInput(f"{path} has rows, new tokens, and past, tokens before them, and no other sizes")


def _load_onnx(path: PathLike, weights: PathLike | None, open_: Mapping[str, Any]) -> Program:
    from glenside.importers.onnx import load_onnx

    program = load_onnx(path, **open_)
    if weights is not None:
        try:
            program = program.with_constants(files.read_arrays(weights))
        except BadInput as error:
            raise BadInput(f"{weights}: {error.message}") from None
    return replace(program, name=Path(path).stem)


def _load_open(path: PathLike, dims: Mapping[str, Any], others: Mapping[str, Any]) -> OpenProgram:
    """Returns the program of a file some of whose dims are ranges; `others`: of `load`. Raises BadInput."""
    from glenside.importers.onnx import input_sizes

    ranges = {name: size for name, size in dims.items() if is_range(size)}
    fixed = {name: size for name, size in dims.items() if name not in ranges}
    known = list(dict.fromkeys(n for sizes in input_sizes(path).values() for n in sizes if isinstance(n, str) and n))
    for name in dims:
        if name not in known:
            hint = f"; there are {', '.join(known)}" if known else "; all its sizes are numbers"
            raise BadInput(f"{path} has no open dimension {name!r}{hint}")

    def make(sizes: Mapping[str, int]) -> Program:
        found = load(path, dims={**fixed, **sizes}, **others)
        assert isinstance(found, Program), "all its sizes are numbers"
        return found

    return OpenProgram(make, ranges, Path(path).stem)


def save(program: Program, path: PathLike) -> str:
    """Saves a program with the values of its constants, in the format that the ending names.

    The file is read back and compared before it takes its name, so that it is written whole or not at all. Returns a
    sentence that says what was compared.

    The text, JSON and .py formats keep values in an .npz file next to the file. ONNX needs the value of every constant;
    it keeps them in the file up to the limit of 2 GiB, and otherwise in PATH.data next to it. A .py file is a function
    of JAX, which SPU also runs. Raises BadInput.
    """
    if not isinstance(program, Program):
        raise BadInput(f"save takes a program and a path, got {type(program).__name__} as the program")
    kind = ending(path)
    if kind in (".pt2", ".mlir", ".gguf", ".safetensors"):
        raise BadInput(f"a program is saved as .onnx, .json, .py or .glenside, got {path}: a {kind} file is only read")
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
