"""Reads config.json of a checkpoint: the numbers of its decoder, and what it has that is not expressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from glenside.importers.checkpoint.files import CONFIG, read_json
from glenside.ir.bounds import MOST_COUNT, number, whole
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened, suggestion
from glenside.models.decoder import Decoder

_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu-tanh", "gelu_new": "gelu-tanh", "gelu": "gelu",
    "relu": "relu",
}  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """Describes the decoders of a model_type.

    names     name of a GGUF tensor without its ending -> name in the checkpoint; {} is the layer
    parts     name of a GGUF tensor -> its part among equal parts of the rows of a joined matrix
    biased    names of GGUF tensors that have a bias -> the key that says so, or True
    keys      a key of a Llama's config -> this architecture's key, or its value
    refused   key -> the value that it must have
    gains     what is added to the gains of norms
    turned    True if matrices of layers are stored transposed
    defaults  values of keys that a config.json leaves out, as transformers defines them
    """

    names: Mapping[str, str]
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    biased: Mapping[str, str | bool] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Any] = field(default_factory=dict)
    gains: int = 0
    turned: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)


_LAYER, _OWN = "model.layers.{}", "blk.{}"
_ATTENTION = {f"{_OWN}.attn_{n}": f"{_LAYER}.self_attn.{n}_proj" for n in "qkv"}
_LLAMA = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    f"{_OWN}.attn_norm": f"{_LAYER}.input_layernorm",
    f"{_OWN}.attn_output": f"{_LAYER}.self_attn.o_proj",
    f"{_OWN}.ffn_norm": f"{_LAYER}.post_attention_layernorm",
    **{f"{_OWN}.ffn_{n}": f"{_LAYER}.mlp.{n}_proj" for n in ("gate", "up", "down")},
}
_NORMS_OF_HEADS = {f"{_OWN}.attn_{n}_norm": f"{_LAYER}.self_attn.{n}_norm" for n in "qk"}
_GEMMA2 = {
    **_LLAMA,
    **_ATTENTION,
    f"{_OWN}.ffn_norm": f"{_LAYER}.pre_feedforward_layernorm",
    f"{_OWN}.post_attention_norm": f"{_LAYER}.post_attention_layernorm",
    f"{_OWN}.post_ffw_norm": f"{_LAYER}.post_feedforward_layernorm",
}
_OLMO2 = {
    **{own: name for own, name in _GEMMA2.items() if own not in (f"{_OWN}.attn_norm", f"{_OWN}.ffn_norm")},
    **_NORMS_OF_HEADS,
}
_JOINED = {
    f"{_OWN}.attn_qkv": f"{_LAYER}.self_attn.qkv_proj",
    **{f"{_OWN}.ffn_{n}": f"{_LAYER}.mlp.gate_up_proj" for n in ("gate", "up")},
}
_GPT2 = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    f"{_OWN}.attn_norm": "transformer.h.{}.ln_1",
    f"{_OWN}.attn_qkv": "transformer.h.{}.attn.c_attn",
    f"{_OWN}.attn_output": "transformer.h.{}.attn.c_proj",
    f"{_OWN}.ffn_norm": "transformer.h.{}.ln_2",
    f"{_OWN}.ffn_up": "transformer.h.{}.mlp.c_fc",
    f"{_OWN}.ffn_down": "transformer.h.{}.mlp.c_proj",
}
_IN_ATTENTION = dict.fromkeys([*_ATTENTION, f"{_OWN}.attn_output"], "attention_bias")
_IN_MLP = dict.fromkeys([f"{_OWN}.ffn_{n}" for n in ("gate", "up", "down")], "mlp_bias")
_GPT2_KEYS = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function",
}  # fmt: skip
_TIED, _WINDOWS = {"tie_word_embeddings": True}, {"use_sliding_window": True}
_WINDOWS_OF_GEMMA = {**_TIED, **_WINDOWS, "sliding_window": 4096, "query_pre_attn_scalar": 256}
ARCHITECTURES = {
    "llama": Architecture(_LLAMA | _ATTENTION, biased=_IN_ATTENTION | _IN_MLP),
    "mistral": Architecture(_LLAMA | _ATTENTION, defaults=_WINDOWS),
    "qwen2": Architecture(_LLAMA | _ATTENTION, biased=dict.fromkeys(_ATTENTION, True)),
    "qwen3": Architecture(_LLAMA | _ATTENTION | _NORMS_OF_HEADS, biased=_IN_ATTENTION),
    "phi3": Architecture(
        _LLAMA | _JOINED, {f"{_OWN}.ffn_gate": (0, 2), f"{_OWN}.ffn_up": (1, 2)}, defaults=_WINDOWS
    ),
    "gemma": Architecture(
        _LLAMA | _ATTENTION, biased=_IN_ATTENTION, gains=1, defaults=_TIED, own={"scaled": True},
        refused={"use_bidirectional_attention": None},
    ),
    "gemma2": Architecture(
        _GEMMA2, biased=_IN_ATTENTION, gains=1, own={"scaled": True, "norms": "both"},
        defaults={
            **_WINDOWS_OF_GEMMA, "sliding_window_pattern": 2, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        refused={"use_bidirectional_attention": None},
    ),
    "gemma3_text": Architecture(
        _GEMMA2 | _NORMS_OF_HEADS, biased=_IN_ATTENTION, gains=1, own={"scaled": True, "norms": "both"},
        defaults={
            **_WINDOWS_OF_GEMMA, "sliding_window_pattern": 6, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        },
        refused={"use_bidirectional_attention": False},
    ),
    "olmo2": Architecture(_OLMO2, biased=_IN_ATTENTION, own={"norms": "after", "joint_norms": True}),
    "gpt2": Architecture(
        _GPT2,
        biased=dict.fromkeys([name for name in _GPT2 if _OWN in name and "norm" not in name], True),
        keys=_GPT2_KEYS,
        refused={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
        turned=True,
        defaults=_TIED,
        own={"norm": "layer", "gated": False, "rotated": 0, "window": 0},
    ),
}  # fmt: skip
"""By the model_type of config.json."""


class Config:
    """The values of config.json, read by the keys of Llama's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found = read_json(path)
        if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
            raise BadInput(f"{path} has no model_type, which names the architecture of a checkpoint")
        self.type: str = found["model_type"]
        if self.type not in ARCHITECTURES:
            near = suggestion(self.type, ARCHITECTURES)
            raise BadInput(
                f"{path} is of the model_type {shortened(self.type)}; decoders of {', '.join(ARCHITECTURES)} are "
                f"read{near}; gl.from_torch takes others"
            )
        self.architecture = ARCHITECTURES[self.type]
        self.values: Mapping[str, Any] = {**self.architecture.defaults, **found}
        if found.get("quantization_config") is not None:
            raise BadInput(f"{path} has a quantization_config: weights in F32, F16 and BF16 are read")
        for key, value in self.architecture.refused.items():
            if found.get(key, value) != value:
                raise BadInput(f"{path} has {key} {shortened(str(found[key]))}, and {value} is read")

    def value(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key, the default if it is missing or null."""
        found = self.values.get(self.architecture.keys.get(key, key))
        return default if found is None else found

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Returns a whole number. Raises BadInput."""
        found = self.value(key, default)
        if found is None:
            raise BadInput(f"{self.path} has no {self.architecture.keys.get(key, key)}, which a decoder requires")
        return whole(f"{self.path}: {key}", found if isinstance(found, int) else str(found), least, MOST_COUNT)

    def number(self, key: str, default: float, values: Mapping[str, Any] | None = None) -> float:
        """Returns a number above zero. Raises BadInput."""
        found = self.value(key, default) if values is None else values.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise BadInput(f"{self.path}: {key} is a number, got {shortened(str(found))}")
        return number(f"{self.path}: {key}", found, 1e-30, 1e30)

    def truth(self, key: str, default: bool) -> bool:
        """Returns a truth value. Raises BadInput."""
        found = self.value(key, default)
        if not isinstance(found, bool):
            raise BadInput(f"{self.path}: {key} is true or false, got {shortened(str(found))}")
        return found

    def is_biased(self, name: str) -> bool:
        """True if the matrix of a GGUF name, with {} for the layer, has a bias."""
        said = self.architecture.biased.get(name, False)
        return said if isinstance(said, bool) else self.truth(said, False)


def decoder_of(config: Config) -> Decoder:
    """Returns the numbers of a decoder. Raises BadInput for what is not expressed, by its name."""
    own, hidden, heads = config.architecture.own, config.whole("hidden_size"), config.whole("num_attention_heads")
    head, kv = config.whole("head_dim", max(1, hidden // heads)), config.whole("num_key_value_heads", heads)
    default = "gelu_pytorch_tanh" if own.get("scaled") else "gelu_new" if config.type == "gpt2" else "silu"
    act = str(config.value("hidden_activation", config.value("hidden_act", default)))
    act = default if act == "gelu" and own.get("scaled") else act  # Gemma's first files mean the approximation by it
    if act not in _ACTIVATIONS:
        raise BadInput(f"{config.path} has the activation {shortened(act)}; {', '.join(_ACTIVATIONS)} are read")
    rope, layers, window = _rope(config), config.whole("num_hidden_layers"), own.get("window", _window(config))
    rotated = own.get("rotated", int(head * config.number("partial_rotary_factor", 1.0, rope)))
    return Decoder(
        config.type,
        layers,
        hidden,
        heads,
        kv,
        head,
        config.whole("intermediate_size", 4 * hidden if config.type == "gpt2" else None),
        config.whole("vocab_size"),
        config.number("rms_norm_eps", 1e-5 if config.type == "gpt2" else 1e-6),
        rotated,
        config.number("rope_theta", 10000.0, rope),
        _slower(config, rope, rotated // 2) if rotated else (),
        window,
        own.get("norm", "rms"),
        _ACTIVATIONS[act],
        own.get("gated", True),
        own.get("scaled", False),
        global_layers=_global_layers(config, layers) if window else (),
        local_base=_local_base(config),
        norms=own.get("norms", "before"),
        joint_norms=own.get("joint_norms", False),
        query_scale=_query_scale(config),
        score_limit=_limit(config, "attn_logit_softcapping"),
        logit_limit=_limit(config, "final_logit_softcapping"),
    )


def _query_scale(config: Config) -> float:
    """Returns the factor of scores, 0 for the usual one. Raises BadInput."""
    key = "query_pre_attn_scalar"
    return 0.0 if config.value(key) is None else 1 / sqrt(config.number(key, 1.0))


def _limit(config: Config, key: str) -> float:
    """Returns a limit of scores or logits, 0 if there is none. Raises BadInput."""
    return 0.0 if config.value(key) is None else config.number(key, 1.0)


def _local_base(config: Config) -> float:
    """Returns the base of the frequencies of layers with a window, 0 if it is that of all. Raises BadInput."""
    given, key = config.values.get("rope_parameters"), "rope_local_base_freq"
    own = given.get("sliding_attention") if isinstance(given, dict) else None
    if own is None:
        return 0.0 if config.value(key) is None else config.number(key, 10000.0)
    if not isinstance(own, dict) or own.get("rope_type", "default") != "default":
        raise BadInput(f"{config.path} scales positions of layers with a window, which is not expressed")
    return config.number("rope_theta", 10000.0, own)


def _rope(config: Config) -> Mapping[str, Any]:
    """Returns the keys of rotary positions: of rope_parameters, or of rope_scaling and others beside it.

    Those of layers that read all positions, if they have others.
    """
    beside = {key: config.values.get(key) for key in ("rope_theta", "partial_rotary_factor")}
    found: dict[str, Any] = {key: value for key, value in beside.items() if value is not None}
    for key in ("rope_scaling", "rope_parameters"):
        given = config.values.get(key)
        if given is not None and not isinstance(given, dict):
            raise BadInput(f"{config.path}: {key} is an object, got {shortened(str(given))}")
        given = (given or {}).get("full_attention", given)
        if given is not None and not isinstance(given, dict):
            raise BadInput(f"{config.path}: {key} is an object, got {shortened(str(given))}")
        found |= {name: value for name, value in (given or {}).items() if value is not None}
    return found


def _slower(config: Config, rope: Mapping[str, Any], half: int) -> tuple[float, ...]:
    """Returns the factors by which frequencies are divided."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return ()
    if kind == "linear":
        return (config.number("factor", 1.0, rope),) * half
    if kind != "llama3":
        raise BadInput(f"{config.path} scales positions by {shortened(str(kind))}; default, linear and llama3 are read")
    factor, low, high = (config.number(key, 1.0, rope) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if low >= high:
        raise BadInput(f"{config.path}: low_freq_factor is less than high_freq_factor, got {low} and {high}")
    turns = config.number("original_max_position_embeddings", 8192, rope) / (
        2 * pi * config.number("rope_theta", 10000.0, rope) ** (np.arange(half) / half)
    )
    share = np.clip((turns - low) / (high - low), 0, 1)  # of the frequency as it is
    return tuple(float(slower) for slower in 1 / ((1 - share) / factor + share))


def _window(config: Config) -> int:
    """Returns the window of attention of the layers that have one, 0 if none has. Raises BadInput."""
    kinds, window = config.value("layer_types"), config.whole("sliding_window", 0, 0)
    if isinstance(kinds, list) and kinds:
        for kind in kinds:
            if kind not in ("full_attention", "sliding_attention"):
                raise BadInput(f"{config.path} has layers of {shortened(str(kind))}, which is not expressed")
        return window if "sliding_attention" in kinds else 0
    return window if config.truth("use_sliding_window", False) else 0


def _global_layers(config: Config, layers: int) -> tuple[int, ...]:
    """Returns the layers that read all positions where others read a window. Raises BadInput."""
    kinds = config.value("layer_types")
    if isinstance(kinds, list) and kinds:
        if len(kinds) < layers:
            raise BadInput(f"{config.path} has {len(kinds)} layer_types, and {layers} layers")
        return tuple(layer for layer in range(layers) if kinds[layer] == "full_attention")
    if (period := config.whole("sliding_window_pattern", 0, 0)) > 0:
        return tuple(range(period - 1, layers, period))
    return tuple(range(min(layers, config.whole("max_window_layers", 0, 0))))


def config_of(path: Path) -> Config:
    """Returns the config of a folder, or of a config.json. Raises BadInput."""
    return Config(path / CONFIG if path.is_dir() else path)
