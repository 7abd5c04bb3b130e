"""Writes torchvision's architectures as ONNX files, with initial weights.

    python -m benchmarks.files_of_torchvision FOLDER    # with torchvision, onnx and onnxscript

The benchmarks read the files, and do not need torchvision.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.files_of_packages import File

_PACKAGE = "torchvision==0.29.1"
NAMES = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet1_0 "
    "mobilenet_v2 mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnext50_32x4d shufflenet_v2_x1_0 squeezenet1_1 "
    "swin_t swin_v2_t vgg11_bn vit_b_32 wide_resnet50_2"
).split()


def exported(folder: Path) -> Sequence[File]:
    """Lists the existing files."""
    own = folder / _PACKAGE.replace("==", "-")
    return [File(_PACKAGE, f"{name}.onnx") for name in NAMES if (own / f"{name}.onnx").exists()]


def main() -> None:
    """Write a file for each architecture."""
    import torch
    import torchvision

    folder = Path(sys.argv[1]) / _PACKAGE.replace("==", "-")
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        torch.manual_seed(0)
        model = torchvision.models.get_model(name, weights=None).eval()
        x = torch.randn(1, 3, 224, 224)
        torch.onnx.export(model, (x,), folder / f"{name}.onnx", external_data=False)
        print(name, flush=True)


if __name__ == "__main__":
    main()
