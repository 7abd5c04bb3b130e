"""Encoders, classifiers and detectors with open batch, length or image size, with random weights, for PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Network:
    """A module with open sizes.

    module  made when it is called
    axes    name of an input -> axis -> the name of its size, or (name, factor) where an axis is a multiple of a size
    fixed   the dims of each input; those of open axes are not read
    ranges  name of a size -> (least, greatest, step)
    sizes   those that are timed
    whole   name of an input of integers -> their number
    """

    module: Callable[[], nn.Module]
    axes: Mapping[str, Mapping[int, str]]
    dims: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, tuple[int, int, int]]
    sizes: Sequence[tuple[int, ...]]
    whole: Mapping[str, int]

    def inputs(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Tensor]:
        """Returns random inputs of these sizes."""
        draw = torch.Generator().manual_seed(seed)
        found = {}
        for name, dims in self.dims.items():
            own = [sizes[self.axes[name][i]] if i in self.axes[name] else n for i, n in enumerate(dims)]
            if name in self.whole:
                found[name] = torch.randint(0, self.whole[name], own, generator=draw)
            else:
                found[name] = torch.randn(own, generator=draw)
        return found


class _Bert(nn.Module):
    """A BERT of two layers of the sizes of BERT base."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(num_hidden_layers=2, vocab_size=1000, attn_implementation="eager")
        self.model = BertModel(config, add_pooling_layer=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return found


class _Whisper(nn.Module):
    """The encoder of Whisper tiny; positions of a shorter recording are the first ones."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
        config._attn_implementation = "eager"
        self.encoder = WhisperEncoder(config)

    def forward(self, input_features: Tensor) -> Tensor:
        own = self.encoder
        x = functional.gelu(own.conv2(functional.gelu(own.conv1(input_features)))).permute(0, 2, 1)
        x = x + own.embed_positions.weight[: x.shape[1]]
        for layer in own.layers:
            found = layer(x, None)
            x = found[0] if isinstance(found, tuple) else found
        result: Tensor = own.layer_norm(x)
        return result


class _Detector(nn.Module):
    """The backbone and the head of a detector of torchvision: scores and boxes of all anchors."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = detector.backbone, detector.head

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        found: dict[str, Tensor] = self.head(list(self.backbone(image).values()))
        return tuple(found.values())


class _Block(nn.Module):
    """A convolution of YOLO: batch norm and SiLU."""

    def __init__(self, inside: int, outside: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outside)

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(self.norm(self.conv(x)))


class _Split(nn.Module):
    """The block of YOLO whose halves are joined with those of its bottleneck."""

    def __init__(self, inside: int, outside: int, adds: bool = True) -> None:
        super().__init__()
        half = outside // 2
        self.first, self.last = _Block(inside, outside), _Block(3 * half, outside)
        self.one, self.other, self.adds = _Block(half, half, 3), _Block(half, half, 3), adds

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x).chunk(2, 1)
        c = self.other(self.one(b))
        joined: Tensor = self.last(torch.cat((a, b, b + c if self.adds else c), 1))
        return joined


class _Pools(nn.Module):
    """Three pools in a row, joined."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = _Block(width, width // 2), _Block(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        found = [self.first(x)]
        for _ in range(3):
            found.append(functional.max_pool2d(found[-1], 5, 1, 2))
        joined: Tensor = self.last(torch.cat(found, 1))
        return joined


class _Yolo(nn.Module):
    """A network like YOLOv8 nano: five strides of two, a pyramid in both directions, and heads of three scales."""

    def __init__(self, width: int = 16, classes: int = 20) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(_Block(3, w, 3, 2), _Block(w, 2 * w, 3, 2), _Split(2 * w, 2 * w))
        self.third = nn.Sequential(_Block(2 * w, 4 * w, 3, 2), _Split(4 * w, 4 * w))
        self.fourth = nn.Sequential(_Block(4 * w, 8 * w, 3, 2), _Split(8 * w, 8 * w))
        self.fifth = nn.Sequential(_Block(8 * w, 16 * w, 3, 2), _Split(16 * w, 16 * w), _Pools(16 * w))
        self.up4, self.up3 = _Split(24 * w, 8 * w, adds=False), _Split(12 * w, 4 * w, adds=False)
        self.down4, self.down5 = _Block(4 * w, 4 * w, 3, 2), _Block(8 * w, 8 * w, 3, 2)
        self.out4, self.out5 = _Split(12 * w, 8 * w, adds=False), _Split(24 * w, 16 * w, adds=False)
        widths = (4 * w, 8 * w, 16 * w)
        self.heads = nn.ModuleList(nn.Sequential(_Block(n, n, 3), nn.Conv2d(n, 4 + classes, 1)) for n in widths)

    def forward(self, image: Tensor) -> Tensor:
        three = self.third(self.stem(image))
        four = self.fourth(three)
        five = self.fifth(four)
        up4 = self.up4(torch.cat((functional.interpolate(five, scale_factor=2.0), four), 1))
        out3 = self.up3(torch.cat((functional.interpolate(up4, scale_factor=2.0), three), 1))
        out4 = self.out4(torch.cat((self.down4(out3), up4), 1))
        out5 = self.out5(torch.cat((self.down5(out4), five), 1))
        scales = zip(self.heads, (out3, out4, out5), strict=True)
        return torch.cat([head(x).flatten(2) for head, x in scales], 2)


def _vision(name: str) -> nn.Module:
    import torchvision.models as models

    found: nn.Module = models.get_model(name, weights=None)
    return found


def _vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    torch.backends.mha.set_fastpath_enabled(False)  # whose operator has no form in ONNX
    found: nn.Module = VisionTransformer(224, 16, num_layers=2, num_heads=6, hidden_dim=384, mlp_dim=1536)
    nn.init.normal_(found.heads.head.weight)
    return found


def _ssdlite() -> nn.Module:
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    return _Detector(ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21))


def _fcos() -> nn.Module:
    from torchvision.models.detection import FCOS
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None, returned_layers=[2, 3, 4])
    return _Detector(FCOS(backbone, num_classes=20))


def _images(module: Callable[[], nn.Module], least: int = 64, most: int = 640, step: int = 32) -> Network:
    sizes = ((64, 64), (128, 96), (160, 224), (224, 224), (256, 320), (320, 320), (416, 352))
    ranges = {"height": (least, most, step), "width": (least, most, step)}
    axes = {"image": {2: "height", 3: "width"}}
    return Network(module, axes, {"image": (1, 3, 0, 0)}, ranges, sizes, {})


def _batches(module: Callable[[], nn.Module]) -> Network:
    sizes = tuple((n,) for n in (1, 2, 3, 4, 6, 7, 8))
    return Network(module, {"x": {0: "batch"}}, {"x": (0, 3, 224, 224)}, {"batch": (1, 8, 1)}, sizes, {})


_TOKENS = ((1, 8), (1, 37), (1, 128), (1, 384), (2, 21), (4, 64), (8, 17), (8, 128))
_BOTH = {0: "batch", 1: "length"}

NETWORKS = {
    "bert": Network(
        _Bert,
        {"input_ids": _BOTH, "attention_mask": _BOTH},
        {"input_ids": (0, 0), "attention_mask": (0, 0)},
        {"batch": (1, 8, 1), "length": (1, 512, 1)},
        _TOKENS,
        {"input_ids": 1000, "attention_mask": 2},
    ),
    "whisper": Network(
        _Whisper,
        {"input_features": {2: "frames"}},
        {"input_features": (1, 80, 0)},
        {"frames": (2, 3000, 2)},
        [(n,) for n in (20, 74, 200, 500, 1000, 1538, 3000)],
        {},
    ),
    "resnet18": _batches(partial(_vision, "resnet18")),
    "mobilenet_v3_small": _batches(partial(_vision, "mobilenet_v3_small")),
    "vit": _batches(_vit),
    "yolo": _images(_Yolo),
    "ssdlite": _images(_ssdlite),
    "fcos": _images(_fcos),
}


def onnx_file(network: Network, module: nn.Module, path: str) -> None:
    """Writes a module as an ONNX file with open dimensions."""
    example = network.inputs({name: low + step * 2 for name, (low, _, step) in network.ranges.items()})
    axes = {name: dict(own) for name, own in network.axes.items()}
    torch.onnx.export(
        module,
        tuple(example.values()),
        path,
        input_names=list(example),
        dynamic_axes=axes,
        dynamo=False,
        opset_version=17,
    )


def dynamic_shapes(network: Network) -> dict[str, dict[int, Any]]:
    """Returns the dims of the open axes for `torch.export`, multiples of a size where it has a step."""
    dims = {}
    for name, (low, high, step) in network.ranges.items():
        own = torch.export.Dim(name, min=-(-low // step), max=high // step)
        dims[name] = own * step if step > 1 else own
    return {name: {axis: dims[size] for axis, size in own.items()} for name, own in network.axes.items()}
