"""Converts between tensors of PyTorch and arrays of numpy, which share memory on the CPU."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array


def is_tensor(value: object) -> bool:
    """True for a tensor of PyTorch, which is not imported for the question."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype of PyTorch, which is numpy's for those that both have."""
    return str(dtype).removeprefix("torch.")


def array_of(tensor: Any) -> Array:
    """Returns a tensor as an array that shares its memory. Raises BadInput.

    numpy's own DLPack does not know bfloat16 and float8, which are read as integers of their width.
    """
    import torch

    name = dtype_name(tensor.dtype)
    if name not in RECORDS or tensor.layout != torch.strided or tensor.device.type != "cpu":
        got = f"torch.{name} of layout {tensor.layout} on {tensor.device}"
        raise BadInput(f"requires a dense tensor in the memory of the CPU, of a dtype that we have, got {got}")
    plain = tensor.detach().resolve_conj().resolve_neg()
    if not RECORDS[name].wider:
        array: Array = plain.numpy()
        return array
    bits = torch.uint8 if tensor.element_size() == 1 else torch.uint16
    stored: Array = plain.view(bits).numpy().view(RECORDS[name].numpy)
    return stored


def tensor_of(array: Array) -> Any:
    """Returns an array as a tensor of PyTorch that shares its memory."""
    import torch

    name = array.dtype.name
    if not RECORDS[name].wider:
        return torch.from_numpy(array)
    bits = np.uint8 if array.dtype.itemsize == 1 else np.uint16
    return torch.from_numpy(array.view(bits)).view(getattr(torch, name))


def as_tensors(results: Any) -> Any:
    """Returns an array, or a nested tuple of arrays, as tensors of PyTorch."""
    return tuple(map(as_tensors, results)) if isinstance(results, tuple) else tensor_of(results)
