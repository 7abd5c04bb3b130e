"""Builds the step of a decoder from the metadata and tensors of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.builder.builder import Again
from glenside.builder.layout import broadcast, gather, reshape
from glenside.builder.pointwise import cast, multiply, subtract
from glenside.importers.gguf.blocks import BLOCKS, FLOATS, floats, integers, minima, scales
from glenside.importers.gguf.file import GGUFFile, StoredTensor, read_gguf
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.open_program import OpenProgram
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.replacing import PathLike
from glenside.ir.term import Term
from glenside.models.decoder import Decoder, decoder_step
from glenside.models.decoder_weights import Matrix
from glenside.models.open_decoder import growing_decoder, ring_decoder

_OWN: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "gemma": {"activation": "gelu-tanh", "scaled": True},
    "gemma2": {"activation": "gelu-tanh", "scaled": True, "norms": "both"},
    "gemma3": {"activation": "gelu-tanh", "scaled": True, "norms": "both"},
    "olmo2": {"norms": "after", "joint_norms": True},
    "gpt2": {"activation": "gelu-tanh", "gated": False, "norm": "layer"},
}
"""Architecture -> what its decoders have besides the numbers of the metadata."""
_IN_PAIRS = ("llama",)
"""Architectures whose files rotate neighbours: their rows are reordered, so that halves of a head rotate together."""
_PERIODS = {"gemma2": 2, "gemma3": 6}
"""Architecture -> the number of layers of which the last reads all positions, and the others a window."""
_WIDE_QUERIES = {"gemma2": 46, "gemma3": 62}
"""Architecture -> the number of layers of its decoder of 27B, whose scores are divided by the root of hidden / heads.

Files do not say so. Source: llama.cpp, src/models.
"""


def load_gguf(path: PathLike, rows: int = 1, past: int = 512, cache: str = "float32") -> Program:
    """Loads the step of a decoder from a GGUF file: `rows` tokens after up to `past` others.

    cache  dtype of the cache of keys and values: float32, bfloat16, float16 or int8

    Weights of the types Q4_0, Q8_0, Q4_K, Q6_K, F16 and BF16 stay of these widths. Architectures are llama (also
    Mistral), qwen2, qwen3, gemma, gemma2, gemma3, olmo2 and gpt2. Inputs and results are those of
    `glenside.models.decoder.decoder_step`. Raises BadInput.
    """
    file = read_gguf(path)
    shape = replace(_shape(file), cache=cache)
    _require_positions(file, shape, rows + past)
    return replace(decoder_step(shape, _Stored(file, shape), rows, past), name=Path(path).stem)


def open_gguf(
    path: PathLike, rows: int | Sequence[int], past: int | Sequence[int], cache: str = "float32"
) -> OpenProgram:
    """Loads the step of a decoder for ranges of rows and of tokens before them, from a GGUF file.

    Inputs and results are those of `glenside.models.decoder.growing_step`. Raises BadInput.
    """
    file = read_gguf(path)
    shape = replace(_shape(file), cache=cache)
    return growing_decoder(
        Path(path).stem, shape, partial(_Stored, file, shape), rows, past, partial(_require_positions, file, shape)
    )


def ring_gguf(path: PathLike, rows: int | Sequence[int] = 1, cache: str = "float32") -> Program | OpenProgram:
    """Loads the step of a decoder with a sliding window for any number of tokens, from a GGUF file.

    Inputs and results are those of `glenside.models.decoder.ring_step`. Raises BadInput.
    """
    file = read_gguf(path)
    shape = replace(_shape(file), cache=cache)
    return ring_decoder(Path(path).stem, shape, partial(_Stored, file, shape), rows)


def _require_positions(file: GGUFFile, shape: Decoder, count: int) -> None:
    context = int(file.field(f"{_architecture(file)}.context_length", count))
    if count > context and not shape.rotated:
        raise BadInput(f"{file.path} has positions for {context:,} tokens, and {count:,} are asked for")


def _architecture(file: GGUFFile) -> str:
    name = str(file.field("general.architecture"))
    if name not in _OWN:
        near = suggestion(name, _OWN)
        raise BadInput(f"{file.path} is of the architecture {name!r}; decoders of {', '.join(_OWN)} are read{near}")
    return name


def _shape(file: GGUFFile) -> Decoder:
    """Returns the numbers of a decoder. Raises BadInput for what is not expressed, by its name."""
    name = _architecture(file)

    def of(key: str, default: Any = None) -> Any:
        return file.field(f"{name}.{key}", default)

    if of("expert_count", 0):
        raise BadInput(f"{file.path} has experts, which decoders read from GGUF files do not have here")
    hidden, heads = int(of("embedding_length")), int(of("attention.head_count"))
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.dims) != 2:
        raise BadInput(f"{file.path} has no matrix token_embd.weight, which a decoder requires")
    own, epsilon = _OWN[name], "layer_norm_epsilon" if _OWN[name].get("norm") == "layer" else "layer_norm_rms_epsilon"
    if heads < 1 or hidden < 1:
        raise BadInput(f"{file.path} has {heads} heads and vectors of {hidden} elements")
    head = int(of("attention.key_length", max(1, hidden // heads)))
    layers = int(of("block_count"))
    rotated = 0 if name == "gpt2" else int(of("rope.dimension_count", head))
    return Decoder(
        name,
        layers,
        hidden,
        heads,
        int(of("attention.head_count_kv", heads)),
        head,
        int(of("feed_forward_length")),
        table.dims[0],
        float(of(f"attention.{epsilon}")),
        rotated,
        float(of("rope.freq_base", 10000.0)),
        _slower(file, of, rotated // 2),
        int(of("attention.sliding_window", 0)),
        global_layers=_global_layers(file, of, layers),
        local_base=float(of("rope.freq_base_swa", 10000.0)) if name == "gemma3" else 0.0,
        query_scale=sqrt(heads / hidden) if layers == _WIDE_QUERIES.get(name) else 0.0,
        score_limit=float(of("attn_logit_softcapping", 0.0)),
        logit_limit=float(of("final_logit_softcapping", 0.0)),
        **own,
    )


def _slower(file: GGUFFile, of: Callable[..., Any], half: int) -> tuple[float, ...]:
    """Returns the factors by which frequencies are divided. Raises BadInput."""
    kind, factor = str(of("rope.scaling.type", "none")) or "none", float(of("rope.scaling.factor", 1.0))
    factor = 1.0 if kind == "none" else factor
    if factor != 1 and kind != "linear":
        raise BadInput(f"{file.path} scales positions by {kind!r}, which is not expressed; 'linear' is read")
    stored = file.tensors.get("rope_freqs.weight")
    factors = [1.0] * half if stored is None else np.asarray(stored.data).reshape(-1)
    return () if stored is None and factor == 1 else tuple(factor * float(own) for own in factors)


def _global_layers(file: GGUFFile, of: Callable[..., Any], layers: int) -> tuple[int, ...]:
    """Returns the layers that read all positions where others read a window. Raises BadInput."""
    period = of("attention.sliding_window_pattern", _PERIODS.get(_architecture(file), 0))
    if not isinstance(period, int) or period < 0:
        raise BadInput(f"{file.path} has windows in layers of no period, which is not expressed")
    return tuple(range(period - 1, layers, period)) if period and of("attention.sliding_window", 0) else ()


class _Stored:
    """The weights of a file. Constants are decoded when they are read.

    values  the functions that decode constants, by name, which programs of several sizes share
    """

    def __init__(self, file: GGUFFile, shape: Decoder, values: dict[str, Again] | None = None) -> None:
        self.builder, self.file, self.shape = Builder(), file, shape
        self.values = {} if values is None else values
        self.terms: dict[str, Term] = {}
        self.in_pairs = shape.name in _IN_PAIRS and shape.rotated > 0

    def has(self, name: str) -> bool:
        return name in self.file.tensors

    def _tensor(self, name: str, *dims: int) -> StoredTensor:
        found = self.file.tensors.get(name)
        if found is None:
            raise BadInput(f"{self.file.path} has no tensor {name}, which its architecture requires")
        if found.dims != dims:
            raise BadInput(f"{self.file.path}: {name} has sizes {found.dims}, where {dims} are required")
        if found.kind not in BLOCKS and found.kind not in FLOATS:
            raise BadInput(
                f"{self.file.path}: {name} is of type {found.kind}; {', '.join((*BLOCKS, *FLOATS))} are read"
            )
        if found.kind in BLOCKS and len(dims) != 2:
            raise BadInput(f"{self.file.path}: {name} is a vector of type {found.kind}, where floats are required")
        return found

    def _constant(self, name: str, dims: tuple[int, ...], dtype: str, value: Callable[[], Array]) -> Term:
        if name not in self.terms:
            known = self.values.setdefault(name, Again(lambda: self._decoded(value)))
            self.terms[name] = self.builder.constant(name, dims, dtype, known)
        return self.terms[name]

    def _decoded(self, value: Callable[[], Array]) -> Array:
        """Returns a decoded array; the pages of the file that it was read from need not stay in memory."""
        found = value()
        found = found if found.flags.owndata else np.array(found)
        self.file.forget()
        return found

    def _order(self, count: int, heads: int) -> Array | None:
        """Returns the order of rows in which elements that rotate together are in the two halves of a head."""
        if not heads or not self.in_pairs or count // heads != self.shape.head:
            return None
        turned = np.arange(self.shape.rotated).reshape(-1, 2).T.reshape(-1)
        own = np.concatenate([turned, np.arange(self.shape.rotated, self.shape.head)])
        return np.asarray(np.arange(heads)[:, None] * self.shape.head + own).reshape(-1)

    def matrix(self, name: str, columns: int, depth: int, heads: int = 0) -> Matrix:
        found, order = self._tensor(name, columns, depth), self._order(columns, heads)
        kind, data = found.kind, found.data
        if kind in FLOATS:

            def elements() -> Array:
                every = floats(kind, data, found.dims)
                return np.asarray(every if order is None else every[order])

            return Matrix(cast(self._constant(name, found.dims, FLOATS[kind], elements), "float32"))
        codes, scale = self._blocks(found, order)
        term = multiply(cast(codes, "float32"), broadcast(cast(scale, "float32"), codes.access.dims))
        if BLOCKS[kind].minima is None:
            return Matrix(term)
        dims = codes.access.dims[:2]
        return Matrix(term, self._constant(f"{name}.minima", dims, "float32", lambda: minima(kind, data, order)))

    def _blocks(self, found: StoredTensor, order: Array | None) -> tuple[Term, Term]:
        """Returns the integers ()(N blocks steps) of a matrix, and their scales ()(N blocks 1)."""
        kind, data, (rows, depth) = found.kind, found.data, found.dims
        own = BLOCKS[kind]
        dims = (rows, depth // own.block, own.block)
        codes = self._constant(f"{found.name}.integers", dims, own.dtype, lambda: integers(kind, data, order))
        scale = self._constant(f"{found.name}.scales", (*dims[:2], 1), own.scale, lambda: scales(kind, data, order))
        return codes, scale

    def vector(self, name: str, size: int, heads: int = 0) -> Term:
        found = self._tensor(name, size)
        order = self._order(size, heads)

        def elements() -> Array:
            every = np.asarray(floats(found.kind, found.data, found.dims), np.float32)
            return every if order is None else every[order]

        return self._constant(name, (size,), "float32", elements)

    def rows(self, name: str, count: int, size: int, indices: Term) -> Term:
        found = self._table(name, count, size)
        if found.kind in FLOATS:
            kind, data = found.kind, found.data
            table = self._constant(name, found.dims, FLOATS[kind], lambda: np.asarray(floats(kind, data, found.dims)))
            return cast(gather(table, indices), "float32")
        codes, scale = (gather(part, indices) for part in self._blocks(found, None))
        blocks, dims = codes.access.dims, (indices.access.dims[0], size)

        def whole(part: Term) -> Term:
            return reshape(broadcast(part, blocks), dims)

        picked = multiply(whole(cast(codes, "float32")), whole(cast(scale, "float32")))
        if BLOCKS[found.kind].minima is not None:
            least = self._constant(
                f"{name}.minima", codes_dims(found), "float32", lambda: minima(found.kind, found.data)
            )
            least = gather(least, indices)
            picked = subtract(picked, whole(reshape(least, (*least.access.dims, 1))))
        return picked

    def _table(self, name: str, count: int, size: int) -> StoredTensor:
        """Returns a table with at least `count` rows."""
        found = self.file.tensors.get(name)
        most = found.dims[0] if found is not None and len(found.dims) == 2 else 0
        return self._tensor(name, max(count, most), size)


def codes_dims(found: StoredTensor) -> tuple[int, int]:
    """Returns (rows, blocks) of a matrix."""
    return found.dims[0], found.dims[1] // BLOCKS[found.kind].block
