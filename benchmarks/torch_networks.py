"""Networks of torchvision, timm and transformers with random weights, small or of two layers, for `bench_torch.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Network = tuple[Any, tuple[Any, ...]]
"""A module and its arguments."""

TORCHVISION = {
    **dict.fromkeys(
        "resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 mobilenet_v2 mobilenet_v3_small mnasnet0_5 "
        "shufflenet_v2_x0_5 squeezenet1_0 efficientnet_b0 efficientnet_v2_s regnet_y_400mf convnext_tiny "
        "swin_t".split(),
        (1, 3, 64, 64),
    ),
    **dict.fromkeys("alexnet vgg11 googlenet inception_v3".split(), (1, 3, 96, 96)),
    **dict.fromkeys("deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large fcn_resnet50".split(), (1, 3, 64, 64)),
    **dict.fromkeys("r3d_18 mc3_18 r2plus1d_18".split(), (1, 3, 8, 48, 48)),
}
TIMM = (
    "vit_tiny_patch16_224 deit_tiny_patch16_224 mixer_s16_224 resmlp_12_224 convnextv2_atto levit_128s mobilevit_xxs "
    "edgenext_xx_small poolformer_s12 ghostnet_100 repvgg_a0 res2net50_26w_4s nf_regnet_b0 fastvit_t8 gmlp_s16_224 "
    "crossvit_tiny_240 pit_ti_224 twins_svt_small visformer_tiny focalnet_tiny_srf davit_tiny dla34 hrnet_w18_small "
    "xcit_nano_12_p16_224 cait_xxs24_224 eva02_tiny_patch14_224"
).split()

SMALL = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
DECODERS: dict[str, dict[str, Any]] = {
    "Llama": GROUPED,
    "Qwen2": GROUPED,
    "Qwen3": {**GROUPED, "head_dim": 16},
    "Mistral": GROUPED,
    "Phi3": {**GROUPED, "pad_token_id": 0},
    "Gemma": {**GROUPED, "head_dim": 16},
    "Gemma2": {**GROUPED, "head_dim": 16},
    "GPT2": {"vocab_size": 96, "n_embd": 64, "n_layer": 2, "n_head": 4},
    "Falcon": {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    "Olmo": GROUPED,
    "Mixtral": {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Mamba": {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8},
    "Rwkv": {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "attention_hidden_size": 64},
    "GPTNeoX": SMALL,
    "OPT": {**SMALL, "ffn_dim": 128, "word_embed_proj_dim": 64},
    "Bloom": {"vocab_size": 96, "hidden_size": 64, "n_layer": 2, "n_head": 4},
}
ENCODERS: dict[str, dict[str, Any]] = {
    "Bert": SMALL,
    "Roberta": SMALL,
    "DistilBert": {"vocab_size": 96, "dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4},
    "Albert": {**SMALL, "embedding_size": 32},
    "Electra": {**SMALL, "embedding_size": 32},
    "DebertaV2": SMALL,
    "MPNet": SMALL,
    "ConvBert": {**SMALL, "embedding_size": 64},
}


def _vision(name: str, shape: tuple[int, ...]) -> Network:
    import torch
    import torchvision.models as models

    options: dict[str, Any] = {"weights": None}
    if ("_resnet50" in name and name.startswith("fcn")) or name.startswith(("deeplab", "lraspp")):
        options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": False}
    return models.get_model(name, **options), (torch.randn(shape),)


def _timm(name: str) -> Network:
    import timm
    import torch

    module = timm.create_model(name, pretrained=False)
    size = module.default_cfg["input_size"]
    return module, (torch.randn(1, *size),)


def _language(kind: str, auto: str, config: dict[str, Any]) -> Network:
    import torch
    import transformers

    own = getattr(transformers, f"{kind}Config")(**config)
    own._attn_implementation = "eager" if kind in ("GPTNeoX",) else own._attn_implementation
    module = getattr(transformers, auto).from_config(own)

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, ids: Any) -> Any:
            options = {"use_cache": False} if auto == "AutoModelForCausalLM" else {}
            return self.model(ids, **options)[0]

    return Plain(), (torch.randint(2, 90, (1, 11)),)


def _decode(kind: str, config: dict[str, Any]) -> Network:
    """A step of two tokens behind seven: caches are inputs, and longer ones are results."""
    import torch
    import transformers

    own = getattr(transformers, f"{kind}Config")(**config)
    module = transformers.AutoModelForCausalLM.from_config(own).eval()
    with torch.no_grad():
        cache = module(torch.randint(2, 90, (1, 7)), use_cache=True).past_key_values
    past = [(layer.keys, layer.values) for layer in cache.layers]

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, ids: Any, past: Any) -> Any:
            given = transformers.DynamicCache(past)
            found = self.model(ids, past_key_values=given, use_cache=True)
            return found.logits, [(layer.keys, layer.values) for layer in found.past_key_values.layers]

    return Step(), (torch.randint(2, 90, (1, 2)), past)


def _sequences(kind: str) -> Network:
    """Encoders with decoders, and encoders of images and sounds, of two layers."""
    import torch
    import transformers as t

    class Plain(torch.nn.Module):
        def __init__(self, module: Any, *names: str) -> None:
            super().__init__()
            self.module, self.names = module, names

        def forward(self, *inputs: Any) -> Any:
            return self.module(**dict(zip(self.names, inputs, strict=True)))[0]

    ids = torch.randint(2, 90, (1, 9)), torch.randint(2, 90, (1, 5))
    if kind == "T5":
        config = t.T5Config(vocab_size=96, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, use_cache=False)
        return Plain(t.T5ForConditionalGeneration(config), "input_ids", "decoder_input_ids"), ids
    both = dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
    both |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    both |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 128)
    if kind == "Bart":
        bart = t.BartForConditionalGeneration(t.BartConfig(vocab_size=96, d_model=64, use_cache=False, **both))
        return Plain(bart, "input_ids", "decoder_input_ids"), ids
    if kind == "Whisper":
        tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
        both |= {"vocab_size": 96, "num_mel_bins": 80, "max_source_positions": 50}
        config = t.WhisperConfig(d_model=64, use_cache=False, **tokens, **both)
        whisper = t.WhisperForConditionalGeneration(config)
        return Plain(whisper, "input_features", "decoder_input_ids"), (torch.randn(1, 80, 100), ids[1])
    if kind == "Wav2Vec2":
        config = t.Wav2Vec2Config(conv_dim=[32] * 7, **SMALL)
        return Plain(t.Wav2Vec2Model(config), "input_values"), (torch.randn(1, 4000),)
    if kind == "ViT":
        config = t.ViTConfig(image_size=32, patch_size=8, **{k: v for k, v in SMALL.items() if k != "vocab_size"})
        return Plain(t.ViTModel(config), "pixel_values"), (torch.randn(1, 3, 32, 32),)
    if kind == "Segformer":
        config = t.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64])
        return Plain(t.SegformerForSemanticSegmentation(config), "pixel_values"), (torch.randn(1, 3, 64, 64),)
    assert kind == "CLIPText"
    text = t.CLIPTextModel(t.CLIPTextConfig(**SMALL, eos_token_id=2, bos_token_id=1, pad_token_id=0))
    return Plain(text, "input_ids"), ids[:1]


def draw_constants(module: Any) -> None:
    """Draws running statistics and constant parameters, such as a head of zeros, which would hide a mistake in them."""
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() and bool((parameter == parameter.view(-1)[0]).all()):
                parameter.add_(torch.randn_like(parameter) * 0.1)

    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.randn_like(buffer) * 0.1)
        elif name.endswith("running_var"):
            buffer.copy_(torch.rand_like(buffer) + 0.5)


def networks() -> dict[str, Callable[[], Network]]:
    """Returns name -> a function that makes the network."""
    found: dict[str, Callable[[], Network]] = {}
    found |= {f"torchvision {name}": partial(_vision, name, shape) for name, shape in TORCHVISION.items()}
    found |= {f"timm {name}": partial(_timm, name) for name in TIMM}
    for kind, config in DECODERS.items():
        found[f"transformers {kind}"] = partial(_language, kind, "AutoModelForCausalLM", config)
        if kind not in ("Mamba", "Rwkv"):  # whose state is no cache of keys and values
            found[f"transformers {kind} decode"] = partial(_decode, kind, config)
    for kind, config in ENCODERS.items():
        found[f"transformers {kind}"] = partial(_language, kind, "AutoModel", config)
    for kind in ("T5", "Bart", "Whisper", "Wav2Vec2", "ViT", "Segformer", "CLIPText"):
        found[f"transformers {kind}"] = partial(_sequences, kind)
    return found
