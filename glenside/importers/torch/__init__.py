"""Imports PyTorch: modules through `torch.export`, and .pt2 files without PyTorch."""

from glenside.importers.torch.export import from_torch

__all__ = ["from_torch"]
