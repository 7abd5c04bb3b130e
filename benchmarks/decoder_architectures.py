"""Decoders of transformers with random weights, of two layers or more, as modules that take and return their cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers

VOCABULARY, WINDOW, KERNEL = 96, 6, 4
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 2048}
PADDING = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
ATTENTION = {**SMALL, **PADDING, "intermediate_size": 128, "num_attention_heads": 4}
GROUPED = {**ATTENTION, "num_key_value_heads": 2}
HEADS_OF_16 = {**GROUPED, "head_dim": 16}
KINDS: dict[str, dict[str, Any]] = {
    "Llama": GROUPED,
    "Qwen2": GROUPED,
    "Qwen3": HEADS_OF_16,
    "Mistral": {**GROUPED, "sliding_window": WINDOW},
    "Phi3": GROUPED,
    "Gemma": HEADS_OF_16,
    "Gemma2": {**HEADS_OF_16, "sliding_window": WINDOW},
    "Gemma3Text": {
        **HEADS_OF_16,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "GPT2": {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 2048, **PADDING},
    "Falcon": {**SMALL, **PADDING, "num_attention_heads": 4},
    "Olmo": GROUPED,
    "Olmo2": GROUPED,
    "Mixtral": {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "GPTNeoX": ATTENTION,
    "OPT": {**ATTENTION, "ffn_dim": 128, "word_embed_proj_dim": 64},
    "Bloom": {"vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 2, "n_head": 4, **PADDING},
    "Mamba": {**SMALL, **PADDING, "state_size": 8, "conv_kernel": KERNEL},
    "Rwkv": {**SMALL, **PADDING, "attention_hidden_size": 64, "context_length": 2048},
    "RecurrentGemma": {
        **HEADS_OF_16,
        "lru_width": 64,
        "attention_window_size": 2048,
        "block_types": ["recurrent", "attention"],
    },
}
RECURRENT = ("Mamba", "Rwkv", "RecurrentGemma")


def decoder_of(kind: str, **changed: Any) -> Any:
    """Returns a decoder of that kind with random weights."""
    config = getattr(transformers, f"{kind}Config")(**{**KINDS[kind], **changed})
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() and bool((parameter == parameter.view(-1)[0]).all()):
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return module


def of_layers(kind: str, layers: int) -> dict[str, Any]:
    """Returns the fields of a configuration with a number of layers; kinds of layers take turns."""
    name = "n_layer" if "n_layer" in KINDS[kind] else "num_hidden_layers"
    kinds = {own: KINDS[kind][own] for own in ("layer_types", "block_types") if own in KINDS[kind]}
    return {name: layers} | {own: (given * layers)[:layers] for own, given in kinds.items()}


class Prefill(torch.nn.Module):
    """Tokens ()(1 rows) to logits, and the tensors of the cache."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, ids: Any) -> Any:
        own = self.decoder.config.model_type in ("mamba", "rwkv", "recurrent_gemma")
        cache = {} if own else {"past_key_values": transformers.DynamicCache()}
        found = self.decoder(ids, use_cache=True, **cache)
        return {"logits": found.logits, "new": tensors_of(found)}


class Decode(torch.nn.Module):
    """Tokens ()(1 rows), and the tensors of the cache, to logits, and the tensors of the next cache."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, ids: Any, past: list[Any]) -> Any:
        if self.decoder.config.model_type == "rwkv":
            found = self.decoder(ids, state=[tensor.clone() for tensor in past], use_cache=True)
        else:
            found = self.decoder(ids, past_key_values=cache_of(self.decoder, past), use_cache=True)
        return {"logits": found.logits, "new": tensors_of(found)}


def cache_of(decoder: Any, past: Sequence[Any]) -> Any:
    """Returns the cache of a decoder whose tensors are `past`, two for each layer."""
    pairs = [(past[2 * n], past[2 * n + 1]) for n in range(len(past) // 2)]
    if decoder.config.model_type != "mamba":
        return transformers.DynamicCache(pairs)
    cache = transformers.DynamicCache(config=decoder.config)
    for layer, (window, state) in zip(cache.layers, pairs, strict=True):
        layer.lazy_initialization(conv_states=window, recurrent_states=state)
        layer.conv_states[0], layer.recurrent_states[0] = window.clone(), state.clone()
        layer.has_previous_state[0] = True
    return cache


def tensors_of(found: Any) -> list[Any]:
    """Returns the tensors of the cache of a decoder's result."""
    if getattr(found, "state", None) is not None:
        return list(found.state)
    cache = getattr(found, "past_key_values", None)
    cache = getattr(found, "cache_params", None) if cache is None else cache
    cache = getattr(found, "cache", None) if cache is None else cache
    tensors = []
    for layer in cache.layers:
        if hasattr(layer, "conv_states"):
            tensors += [layer.conv_states[0], layer.recurrent_states[0]]
        else:
            tensors += [layer.keys, layer.values]
    return tensors


def ids_of(rows: int, seed: int = 0) -> Any:
    """Returns random tokens ()(1 rows)."""
    return torch.randint(2, VOCABULARY - 2, (1, rows), generator=torch.Generator().manual_seed(seed))
