"""GGUF files of decoders with random weights, and llama.cpp on them, for benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama: `inner` is the width of the feed-forward layer."""

    blocks: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int

    @property
    def matrices(self) -> Mapping[str, tuple[int, int]]:
        """The matrices of a block, by name: columns and depth."""
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        return {
            "attn_q": (queries, self.hidden), "attn_k": (keys, self.hidden), "attn_v": (keys, self.hidden),
            "attn_output": (self.hidden, queries), "ffn_gate": (self.inner, self.hidden),
            "ffn_up": (self.inner, self.hidden), "ffn_down": (self.hidden, self.inner),
        }  # fmt: skip


def write_gguf(path: Path, shape: Shape, kind: str, *, tied: bool = False) -> None:
    """Writes a file with random weights of a type, such as "Q4_0"; `tied`: the embeddings are the last product, too."""
    import gguf

    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    raw = getattr(gguf.GGMLQuantizationType, kind)
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    pieces += [f"t{i}" for i in range(shape.vocabulary - len(pieces))]
    writer.add_block_count(shape.blocks)
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.head)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * shape.vocabulary)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (shape.vocabulary - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    matrices = {f"blk.{n}.{name}": dims for n in range(shape.blocks) for name, dims in shape.matrices.items()}
    matrices |= {name: (shape.vocabulary, shape.hidden) for name in ("token_embd", *(() if tied else ("output",)))}
    for name, dims in matrices.items():
        value = rng.standard_normal(dims, np.float32) / np.float32(dims[1] ** 0.5)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(value, raw), raw_dtype=raw)
    norms = [f"blk.{n}.{norm}_norm" for n in range(shape.blocks) for norm in ("attn", "ffn")]
    for name in (*norms, "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(shape.hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_cpp(file: Path, threads: int, past: int, written: int) -> Callable[[], tuple[float, float]]:
    """Returns a function that runs a prompt of `past` tokens and writes some: seconds of the prompt, and of a token."""
    import xllamacpp

    how = xllamacpp.CommonParams()
    how.model.path, how.n_ctx, how.n_parallel, how.verbosity = str(file), 2048, 1, -1
    how.cpuparams.n_threads = how.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(how)
    prompt = [int(token) for token in np.random.default_rng(0).integers(259, 512, past)]
    asked = {"prompt": prompt, "n_predict": written, "ignore_eos": True, "temperature": 0, "cache_prompt": False}

    def run() -> tuple[float, float]:
        timings = server.handle_completions(asked)["timings"]
        return timings["prompt_ms"] / 1e3, timings["predicted_ms"] / max(1, timings["predicted_n"] - 1) / 1e3

    run()
    return run
