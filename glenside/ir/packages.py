"""Packages that are not always there. Whoever needs one is told how to install it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.interrupts import undisturbed


def load(names: Iterable[str]) -> None:
    """Load modules that declare something, each as a whole: half of one would be loaded once more, and declare the same
    again. Raises KeyboardInterrupt between two of them.
    """
    for name in names:
        with undisturbed(then=True):
            import_module(name)


def import_onnx() -> Any:
    """The package onnx. Raises BadInput."""
    return _optional("onnx", "ONNX files require")


def import_onnxruntime() -> Any:
    """The package onnxruntime. Raises BadInput."""
    return _optional("onnxruntime", "a check in onnxruntime requires")


def _optional(name: str, need: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise BadInput(f"{need} the package {name}: pip install 'glenside[onnx]'") from None
