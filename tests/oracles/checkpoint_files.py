"""Small checkpoints of each architecture with random weights, written without the package safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gguf_files import CONTEXT, HEAD, HEADS, HIDDEN, INNER, KV, LAYERS, VOCABULARY, dims_of, layers_of

from glenside.importers.checkpoint.config import ARCHITECTURES

Array = np.ndarray
_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64}
CONFIG = {
    "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV,
    "head_dim": HEAD, "intermediate_size": INNER, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
GPT2 = {
    "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": VOCABULARY, "n_positions": CONTEXT,
    "n_inner": INNER, "activation_function": "gelu_new", "tie_word_embeddings": False,
}  # fmt: skip


def written(folder: Path, arch: str = "llama", kind: str = "F32", files: int = 1, **more: Any) -> dict[str, Array]:
    """Writes a checkpoint with random weights of a type; returns them as float32, by the names of GGUF files."""
    folder.mkdir(exist_ok=True)
    rng, known = np.random.default_rng(0), ARCHITECTURES[arch]
    found, stored = dict[str, Array](), dict[str, Array]()
    of = arch.removesuffix("_text")
    for name, dims in dims_of(of).items():
        value = rng.standard_normal(dims) / HIDDEN**0.5
        value = (value + name.endswith("norm.weight") if len(dims) == 1 else value).astype(_DTYPES[kind])
        found[name] = value.astype(np.float32)
        within, _, ending = name.rpartition(".")
        layer = within.split(".")[1] if within.startswith("blk.") else ""
        own = known.names[within.replace(f"blk.{layer}.", "blk.{}.")].format(layer)
        value = value - known.gains if name.endswith("norm.weight") else value
        stored[f"{own}.{ending}"] = value.T if known.turned and layer and len(dims) == 2 else value
    layers = {} if arch == "gpt2" else {"num_hidden_layers": layers_of(of)}
    config = {**(GPT2 if arch == "gpt2" else CONFIG), **layers, "model_type": arch, **more}
    (folder / "config.json").write_text(json.dumps(config))
    if files == 1:
        write_safetensors(folder / "model.safetensors", stored)
        return found
    places = {name: f"model-{number % files}.safetensors" for number, name in enumerate(stored)}
    for file in set(places.values()):
        write_safetensors(folder / file, {name: stored[name] for name in stored if places[name] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return found


def write_safetensors(path: Path, tensors: dict[str, Array]) -> None:
    """Writes a file of the format."""
    kinds = {np.dtype(dtype): kind for kind, dtype in _DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, value in tensors.items():
        place = [len(body), len(body) + value.nbytes]
        header[name] = {"dtype": kinds[value.dtype], "shape": value.shape, "data_offsets": place}
        body += value.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
