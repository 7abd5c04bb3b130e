"""Builds the step of a decoder from a checkpoint of transformers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from glenside.builder import Builder
from glenside.builder.builder import Again
from glenside.builder.layout import gather
from glenside.builder.pointwise import cast
from glenside.importers.checkpoint.config import Config, config_of, decoder_of
from glenside.importers.checkpoint.files import CONFIG, FLOATS, StoredTensor, read_tensors
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened
from glenside.ir.open_program import OpenProgram
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.replacing import PathLike
from glenside.ir.term import Term
from glenside.models.decoder import Decoder, decoder_step
from glenside.models.decoder_weights import Matrix
from glenside.models.open_decoder import growing_decoder, ring_decoder

_LAYER = re.compile(r"^blk\.(\d+)\.")
_UNREAD = re.compile(r"rotary_emb\.inv_freq$|attn\.(masked_)?bias$|^lm_head\.weight$")
"""Tensors that files of earlier versions hold, and that are computed: frequencies, masks, tied embeddings."""


def is_checkpoint(path: PathLike) -> bool:
    """True for a folder with a config.json, and for a .safetensors file."""
    return Path(path).suffix.lower() == ".safetensors" or (Path(path) / CONFIG).is_file()


def read_decoder(path: PathLike) -> Decoder:
    """Returns the numbers of the decoder that a config.json, or one in a folder, describes. Raises BadInput."""
    return decoder_of(config_of(Path(path)))


def load_checkpoint(path: PathLike, rows: int = 1, past: int = 512, cache: str = "float32") -> Program:
    """Loads the step of a decoder from a checkpoint of transformers: `rows` tokens after up to `past` others.

    cache  dtype of the cache of keys and values: float32, bfloat16, float16 or int8

    The path is a folder with config.json and .safetensors files, or such a file. Weights in F16 and BF16 stay of 2
    bytes. Inputs and results are those of `glenside.models.decoder.decoder_step`. Raises BadInput.
    """
    folder = _folder(path)
    config = config_of(folder)
    shape = replace(decoder_of(config), cache=cache)
    weights = _Stored(folder, config)
    _require_positions(folder, config, past + rows)
    program = decoder_step(shape, weights, rows, past)
    weights.require_all_read()
    return replace(program, name=folder.resolve().name or shape.name)


def open_checkpoint(
    path: PathLike, rows: int | Sequence[int], past: int | Sequence[int], cache: str = "float32"
) -> OpenProgram:
    """Loads the step of a decoder for ranges of rows and of tokens before them, from a checkpoint of transformers.

    Inputs and results are those of `glenside.models.decoder.growing_step`. Raises BadInput.
    """
    folder = _folder(path)
    config = config_of(folder)
    shape, require = replace(decoder_of(config), cache=cache), partial(_require_positions, folder, config)
    load_checkpoint(path, past=1)  # it has the tensors that its architecture reads, and no others
    name = folder.resolve().name or shape.name
    return growing_decoder(name, shape, partial(_Stored, folder, config), rows, past, require)


def ring_checkpoint(path: PathLike, rows: int | Sequence[int] = 1, cache: str = "float32") -> Program | OpenProgram:
    """Loads the step of a decoder with a sliding window for any number of tokens, from a checkpoint of transformers.

    Inputs and results are those of `glenside.models.decoder.ring_step`. Raises BadInput.
    """
    folder = _folder(path)
    config = config_of(folder)
    shape = replace(decoder_of(config), cache=cache)
    load_checkpoint(path, past=1)  # it has the tensors that its architecture reads, and no others
    return ring_decoder(folder.resolve().name or shape.name, shape, partial(_Stored, folder, config), rows)


def _folder(path: PathLike) -> Path:
    return Path(path) if Path(path).is_dir() else Path(path).parent


def _require_positions(folder: Path, config: Config, count: int) -> None:
    most = config.whole("max_position_embeddings", count)
    if not decoder_of(config).rotated and count > most:
        raise BadInput(f"{folder} has positions for {most:,} tokens, and {count:,} are asked for")


class _Stored:
    """The weights of a checkpoint, by the names of GGUF files. Constants are read when they are needed.

    values  the functions that read constants, by name, which programs of several sizes share
    """

    def __init__(self, folder: Path, config: Config, values: dict[str, Again] | None = None) -> None:
        self.builder, self.folder, self.config = Builder(), folder, config
        self.values = {} if values is None else values
        self.names = config.architecture.names
        self.tensors = _with_prefix(read_tensors(folder), next(iter(self.names.values())).partition(".")[0] + ".")
        self.terms: dict[str, Term] = {}
        self.read: set[str] = set()

    def has(self, name: str) -> bool:
        layerless, ending = _LAYER.sub("blk.{}.", name).rsplit(".", 1)
        if ending == "bias":
            return self.config.is_biased(layerless)
        if layerless == "output":
            return not self.config.truth("tie_word_embeddings", False)
        return layerless in self.names

    def require_all_read(self) -> None:
        """Raises BadInput if the files have a tensor that the architecture does not read."""
        for name, found in self.tensors.items():
            if name not in self.read and not _UNREAD.search(name):
                raise BadInput(f"{self.folder} has a tensor {shortened(found.name)}, which {self.config.type} has not")

    def _tensor(self, name: str, *dims: int) -> StoredTensor:
        layer = _LAYER.match(name)
        layerless, ending = _LAYER.sub("blk.{}.", name).rsplit(".", 1)
        own = f"{self.names[layerless].format(layer[1] if layer else '')}.{ending}"
        found = self.tensors.get(own)
        if found is None:
            raise BadInput(f"{self.folder} has no tensor {own}, which {self.config.type} requires")
        if found.dims != dims:
            raise BadInput(f"{self.folder}: {own} has sizes {shortened(str(found.dims))}, where {dims} are required")
        if found.kind not in FLOATS:
            raise BadInput(f"{self.folder}: {own} is of type {found.kind}; {', '.join(FLOATS)} are read")
        self.read.add(own)
        return found

    def _constant(self, name: str, dims: tuple[int, ...], dtype: str, found: StoredTensor, value: Value) -> Term:
        if name not in self.terms:

            def copied() -> Array:
                array = np.array(value(found.elements()))
                found.file.forget()
                return array

            self.terms[name] = self.builder.constant(name, dims, dtype, self.values.setdefault(name, Again(copied)))
        return self.terms[name]

    def matrix(self, name: str, columns: int, depth: int, heads: int = 0) -> Matrix:
        layerless = _LAYER.sub("blk.{}.", name).rsplit(".", 1)[0]
        part, parts = self.config.architecture.parts.get(layerless, (0, 1))
        turned = self.config.architecture.turned and layerless.startswith("blk.")
        dims = (depth, columns) if turned else (parts * columns, depth)
        found = self._tensor(name, *dims)

        def value(elements: Array) -> Array:
            return elements.T if turned else elements[part * columns : (part + 1) * columns]

        return Matrix(cast(self._constant(name, (columns, depth), FLOATS[found.kind], found, value), "float32"))

    def vector(self, name: str, size: int, heads: int = 0) -> Term:
        found = self._tensor(name, size)
        added = self.config.architecture.gains if name.endswith("norm.weight") else 0

        def value(elements: Array) -> Array:
            return elements.astype(np.float32) + np.float32(added)

        return self._constant(name, (size,), "float32", found, value)

    def rows(self, name: str, count: int, size: int, indices: Term) -> Term:
        rows = count if name.startswith("token") else self.config.whole("max_position_embeddings", count)
        found = self._tensor(name, rows, size)
        table = self._constant(name, found.dims, FLOATS[found.kind], found, lambda elements: elements)
        return cast(gather(table, indices), "float32")


Value = Callable[[Array], Array]


def _with_prefix(tensors: dict[str, StoredTensor], prefix: str) -> dict[str, StoredTensor]:
    """Returns tensors by their names in the whole model: files of the model without its head leave out the prefix."""
    if any(name.startswith(prefix) for name in tensors):
        return tensors
    return {name if name.startswith("lm_head") else prefix + name: found for name, found in tensors.items()}
