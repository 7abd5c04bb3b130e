"""Small GGUF files of each architecture, and the logits of their decoders in numpy, over whole sequences at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
HIDDEN, HEADS, KV, HEAD, INNER, VOCABULARY, LAYERS, CONTEXT = 256, 4, 2, 64, 512, 300, 2, 96


def written(path: Path, arch: str = "llama", kind: str = "F32", seed: int = 0, **more: Any) -> dict[str, Array]:
    """Writes a file with random weights of a type; returns its weights as float32."""
    import gguf

    rng, writer, found = np.random.default_rng(seed), gguf.GGUFWriter(path, arch), dict[str, Array]()
    writer.add_block_count(layers_of(arch))
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(_kv(arch))
    writer.add_key_length(HEAD)
    writer.add_layer_norm_eps(1e-5)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, number in more.items():
        (writer.add_uint32 if isinstance(number, int) else writer.add_float32)(f"{arch}.{key}", number)
    raw = getattr(gguf.GGMLQuantizationType, kind)
    for name, dims in dims_of(arch).items():
        value = 0.1 * rng.standard_normal(dims) + name.endswith("norm.weight") if len(dims) == 1 else None
        if value is not None:
            found[name] = value.astype(np.float32)
            writer.add_tensor(name, found[name])
            continue
        value = (rng.standard_normal(dims) / dims[1] ** 0.5).astype(np.float32)
        stored = _random_blocks(rng, dims, raw) if kind.endswith("_K") else gguf.quants.quantize(value, raw)
        found[name] = np.asarray(gguf.quants.dequantize(stored, raw), np.float32).reshape(dims)
        writer.add_tensor(name, stored, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return found


def _kv(arch: str) -> int:
    return HEADS if arch == "gpt2" else KV


def layers_of(arch: str) -> int:
    return 7 if arch == "gemma3" else LAYERS


def dims_of(arch: str) -> dict[str, tuple[int, ...]]:
    """Returns the sizes of the tensors of an architecture."""
    own = _kv(arch) * HEAD
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, HIDDEN), "output_norm.weight": (HIDDEN,)}
    if arch == "gpt2":
        found |= {"position_embd.weight": (CONTEXT, HIDDEN), "output_norm.bias": (HIDDEN,)}
    if not arch.startswith("gemma"):
        found["output.weight"] = (VOCABULARY, HIDDEN)
    for p in (f"blk.{layer}" for layer in range(layers_of(arch))):
        sizes = {"attn_q": HEADS * HEAD, "attn_k": own, "attn_v": own, "ffn_gate": INNER, "ffn_up": INNER}
        if arch == "gpt2":
            sizes = {"attn_qkv": HEADS * HEAD + 2 * own, "ffn_up": INNER}
        matrices = {name: (size, HIDDEN) for name, size in sizes.items()}
        matrices |= {"attn_output": (HIDDEN, HEADS * HEAD), "ffn_down": (HIDDEN, INNER)}
        with_bias = {"gpt2": [*matrices], "qwen2": ["attn_q", "attn_k", "attn_v"]}.get(arch, [])
        found |= {f"{p}.{name}.weight": dims for name, dims in matrices.items()}
        found |= {f"{p}.{name}.bias": matrices[name][:1] for name in with_bias}
        for norm in _norms(arch):
            found |= {
                f"{p}.{norm}.{part}": (HIDDEN,) for part in (["weight", "bias"] if arch == "gpt2" else ["weight"])
            }
        if arch in ("qwen3", "gemma3"):
            found |= {f"{p}.attn_{n}_norm.weight": (HEAD,) for n in "qk"}
        if arch == "olmo2":
            found |= {f"{p}.attn_{n}_norm.weight": matrices[f"attn_{n}"][:1] for n in "qk"}
    return found


def _norms(arch: str) -> list[str]:
    before, after = ["attn_norm", "ffn_norm"], ["post_attention_norm", "post_ffw_norm"]
    return after if arch == "olmo2" else [*before, *after] if arch in ("gemma2", "gemma3") else before


def _random_blocks(rng: np.random.Generator, dims: tuple[int, ...], raw: Any) -> Array:
    """Returns random bytes with small scales: the package rounds to no type of 256 steps."""
    import gguf

    steps, size = gguf.GGML_QUANT_SIZES[raw]
    data = rng.integers(0, 256, (dims[0], dims[1] // steps, size)).astype(np.uint8)
    small = ((0.5 + rng.random((*data.shape[:2], 2))) / 8000).astype(np.float16)
    if raw.name == "Q4_K":
        small[..., 1] *= np.float16(7.5)
        data[..., :4] = small.view(np.uint8).reshape(*data.shape[:2], 4)
    else:
        data[..., -2:] = np.ascontiguousarray(small[..., :1]).view(np.uint8)
    return data.reshape(dims[0], -1)


def logits(arch: str, w: dict[str, Array], tokens: list[int], window: int = 0) -> Array:
    """Returns the logits of each position, (tokens)(vocabulary), in float64.

    Of Gemma 2 every second layer reads all positions, and of Gemma 3 every sixth, of which frequencies have the base
    1e6. Gemma 2 has the limits 50 and 30.
    """
    period = {"gemma2": 2, "gemma3": 6}.get(arch, 0)
    x = w["token_embd.weight"][tokens].astype(np.float64)
    x = x * HIDDEN**0.5 if arch.startswith("gemma") else x
    x = x + w["position_embd.weight"][: len(tokens)] if arch == "gpt2" else x
    for layer in range(layers_of(arch)):
        p, reads_all = f"blk.{layer}", period > 0 and (layer + 1) % period == 0
        attended = _attention(arch, w, p, _norm(arch, w, x, f"{p}.attn_norm"), 0 if reads_all else window, reads_all)
        x = x + _norm(arch, w, attended, f"{p}.post_attention_norm")
        made = _feed_forward(arch, w, p, _norm(arch, w, x, f"{p}.ffn_norm"))
        x = x + _norm(arch, w, made, f"{p}.post_ffw_norm")
    table = w.get("output.weight", w["token_embd.weight"])
    found = _norm(arch, w, x, "output_norm") @ table.astype(np.float64).T
    return 30 * np.tanh(found / 30) if arch == "gemma2" else found


def _linear(w: dict[str, Array], x: Array, name: str) -> Array:
    return x @ w[f"{name}.weight"].astype(np.float64).T + w.get(f"{name}.bias", 0)


def _norm(arch: str, w: dict[str, Array], x: Array, name: str) -> Array:
    if f"{name}.weight" not in w:
        return x
    x = x - x.mean(-1, keepdims=True) if arch == "gpt2" else x
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x * w[f"{name}.weight"] + w.get(f"{name}.bias", 0)


def _rotated(arch: str, x: Array, base: float) -> Array:
    if arch == "gpt2":
        return x
    angle = np.arange(len(x))[:, None, None] * base ** (-np.arange(HEAD // 2) / (HEAD // 2))
    turn = np.exp(1j * angle)
    if arch == "llama":
        found = (x[..., ::2] + 1j * x[..., 1::2]) * turn
        return np.stack([found.real, found.imag], -1).reshape(x.shape)
    found = (x[..., : HEAD // 2] + 1j * x[..., HEAD // 2 :]) * turn
    return np.concatenate([found.real, found.imag], -1)


def _attention(arch: str, w: dict[str, Array], p: str, x: Array, window: int, reads_all: bool) -> Array:
    n, kv = len(x), _kv(arch)
    if arch == "gpt2":
        q, k, v = np.split(_linear(w, x, f"{p}.attn_qkv"), 3, -1)
    else:
        q, k, v = (_linear(w, x, f"{p}.attn_{name}") for name in "qkv")
    if arch == "olmo2":
        q, k = _norm(arch, w, q, f"{p}.attn_q_norm"), _norm(arch, w, k, f"{p}.attn_k_norm")
    q, k, v = (part.reshape(n, -1, HEAD) for part in (q, k, v))
    if arch in ("qwen3", "gemma3"):
        q, k = _norm(arch, w, q, f"{p}.attn_q_norm"), _norm(arch, w, k, f"{p}.attn_k_norm")
    base = 1e6 if arch == "gemma3" and reads_all else 1e4
    q, k = _rotated(arch, q, base), _rotated(arch, k, base)
    k, v = (np.repeat(part, HEADS // kv, 1) for part in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / HEAD**0.5
    scores = 50 * np.tanh(scores / 50) if arch == "gemma2" else scores
    distance = np.arange(n)[:, None] - np.arange(n)
    scores[:, (distance < 0) | (distance >= (window or n))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return _linear(w, np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1), f"{p}.attn_output")


def _feed_forward(arch: str, w: dict[str, Array], p: str, x: Array) -> Array:
    gate = _linear(w, x, f"{p}.ffn_{'up' if arch == 'gpt2' else 'gate'}")
    cubic = np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3))
    inner = gate * (1 + cubic) / 2 if arch.startswith(("gpt2", "gemma")) else gate / (1 + np.exp(-gate))
    return _linear(w, inner if arch == "gpt2" else inner * _linear(w, x, f"{p}.ffn_up"), f"{p}.ffn_down")
